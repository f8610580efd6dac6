"""SML (Smart Message Language, German meters): transport version 1 and the values of a GetList response.

``1b1b1b1b 01010101 messages 1b1b1b1b 1a fill crc16``, the CRC-16/X.25 over everything before it, low byte first. An
escape within the messages is written twice. A list entry is seven fields: name, status, time, unit, scaler, value,
signature; the reading is value * 10^scaler.
"""

from undertone_device.sensors.crc import X25, crc16
from undertone_device.sensors.decimals import scaled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_device.sensors.decimals import Scale

LARGEST = 4096
_ESCAPE = b"\x1b\x1b\x1b\x1b"
_START = _ESCAPE + b"\x01\x01\x01\x01"
_DEPTH = 16
# The DLMS unit codes of what is counted: watt hours, watts, cubic metres.
UNITS = {"Wh": 30, "W": 27, "m3": 13}


class Sml:
    """The register ``obis``, six bytes (such as ``b"\\x01\\x00\\x01\\x08\\x00\\xff"``), in ``unit`` times ``scale``."""

    def __init__(self, obis: bytes, unit: str = "Wh", scale: "Scale" = (1, 1)):
        self._obis = obis
        self._unit = UNITS[unit]
        self._scale = scale
        self._buffer = b""
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """The readings that ``data`` completes."""
        self._buffer += data
        readings = []
        while True:
            start = self._buffer.find(_START)
            if start < 0:
                # The last seven bytes may be the beginning of a start.
                self._buffer = self._buffer[-len(_START) + 1 :]
                break
            end = _end(self._buffer, start + len(_START))
            if end is None:
                self._buffer = self._buffer[start:]
                if len(self._buffer) <= LARGEST:
                    break
                self.bad += 1
                self._buffer = self._buffer[1:]
                continue
            frame = self._buffer[start:end]
            crc = crc16(memoryview(frame)[:-2], X25, 0xFFFF) ^ 0xFFFF
            if frame[-2] | frame[-1] << 8 != crc or frame[-3] > 3:
                self.bad += 1
                # The last of what looks like several starts is tried next: no byte is summed more than twice.
                last = self._buffer.rfind(_START, start + 1, end)
                self._buffer = self._buffer[end - len(_START) + 1 if last < 0 else last :]
                continue
            self._buffer = self._buffer[end:]
            body = frame[len(_START) : -8 - frame[-3]].replace(_ESCAPE + _ESCAPE, _ESCAPE)
            try:
                readings.append(self._value(body))
            except (ValueError, IndexError):
                self.bad += 1
        return readings

    def _value(self, body: bytes) -> int:
        entries: list[Any] = []
        at = 0
        while at < len(body):
            at, value = _parse(body, at, 0)
            _entries(value, self._obis, entries)
        if len(entries) != 1:
            raise ValueError("the register is missing, or there twice")
        _, _, _, unit, exponent, value, _ = entries[0]
        if unit != self._unit or not isinstance(value, int):
            raise ValueError("the register has another unit")
        exponent = exponent or 0
        if not isinstance(exponent, int) or not -12 <= exponent <= 12:
            raise ValueError("the scaler is out of range")
        return scaled(value * 10 ** max(exponent, 0), 10 ** max(-exponent, 0), self._scale)


def _end(buffer: bytes, at: int) -> "int | None":
    """Where the frame that begins before ``at`` ends, None if it does not yet."""
    while True:
        at = buffer.find(_ESCAPE, at)
        if at < 0 or len(buffer) < at + 8:
            return None
        if buffer[at + 4] == 0x1A:
            return at + 8
        at += 8 if buffer[at + 4 : at + 8] == _ESCAPE else 1


def _parse(data: bytes, at: int, depth: int) -> "tuple[int, Any]":
    """(where it ends, value): list, int, bool or bytes; None where an optional field is absent."""
    if depth > _DEPTH:
        raise ValueError("lists are nested too deeply")
    if data[at] == 0:
        # The end of a message.
        return at + 1, None
    kind = data[at] & 0x70
    length = data[at] & 0x0F
    size = 1
    while data[at + size - 1] & 0x80:
        length = length << 4 | data[at + size] & 0x0F
        size += 1
    at += size
    if kind == 0x70:
        values = []
        for _ in range(length):
            at, value = _parse(data, at, depth + 1)
            values.append(value)
        return at, values
    end = at + length - size
    if not at <= end <= len(data):
        raise ValueError("a field does not end")
    field = data[at:end]
    if kind == 0:
        return end, field if field else None
    if not field or kind not in (0x40, 0x50, 0x60):
        raise ValueError("a field is of no known type")
    value = 0
    for byte in field:
        value = value << 8 | byte
    if kind == 0x50 and field[0] & 0x80:
        value -= 1 << 8 * len(field)
    return end, value


def _entries(value: "Any", name: bytes, entries: "list[Any]") -> None:
    if isinstance(value, list):
        if len(value) == 7 and value[0] == name:
            entries.append(value)
        for inner in value:
            _entries(inner, name, entries)

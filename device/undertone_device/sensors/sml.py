"""Decoder of SML (Smart Message Language, German meters): transport version 1 and the values of a GetList response.

A frame is ``1b1b1b1b 01010101 messages 1b1b1b1b 1a fill crc16``, where crc16 is the CRC-16/X.25 of everything before
it, low byte first. An escape (1b1b1b1b) within the messages is written twice. A list entry is seven fields: name,
status, time, unit, scaler, value, signature; the reading is value * 10^scaler.
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
_LENGTH_BYTES = 3
_INTEGER_BYTES = 8
# The DLMS unit codes of the supported units: watt hours, watts, cubic metres.
UNITS = {"Wh": 30, "W": 27, "m3": 13}
# DZG DVS-7412 meters with these serial numbers write a power of less than four bytes as an unsigned number that is
# marked as signed; a negative power always has four bytes there.
_SERIAL = b"\x01\x00\x60\x01\x00\xff"
_POWER = b"\x01\x00\x10\x07\x00\xff"
_DZG = b"\x0a\x01DZG"
_DZG_BYTES = 10
_UNSIGNED_POWER = ((42000000, 48999999), (55000000, 58999999))


class Sml:
    """Decoder. A reading is the register ``obis``, six bytes (such as ``b"\\x01\\x00\\x01\\x08\\x00\\xff"``), which the
    meter gives in ``unit``, times ``scale``.
    """

    def __init__(self, obis: bytes, unit: str = "Wh", scale: "Scale" = (1, 1)):
        self._obis = obis
        self._unit = UNITS[unit]
        self._scale = scale
        # The bytes of the current frame, None outside a frame.
        self._frame: bytearray | None = None
        # Three counts of bytes: escape bytes (1b) read so far (5 to 7 within a sequence that is written twice), start
        # bytes (01) read after them, and bytes of the frame's end that have yet to arrive.
        self._escapes = 0
        self._ones = 0
        self._left = 0
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """Return the readings that ``data`` completes, in time linear in its length."""
        readings: list[int] = []
        for byte in data:
            if self._frame is not None:
                self._frame.append(byte)
                if len(self._frame) > LARGEST:
                    self._drop()
            if self._left:
                self._left -= 1
                if not self._left:
                    self._finish(readings)
            elif byte == 0x1B:
                self._ones = 0
                self._escapes = (self._escapes + 1) % 8
            elif self._escapes >= 4 or self._ones:
                self._mark(byte)
            else:
                self._escapes = 0
        return readings

    def _mark(self, byte: int) -> None:
        """Process a byte after an escape."""
        if byte == 1:
            self._ones += 1
            if self._ones == 4:
                # Within a frame these bytes would be escaped, so they begin a new one. A frame still open is damaged.
                self._drop()
                self._frame = bytearray(_START)
        elif byte == 0x1A and not self._ones and self._frame is not None:
            self._left = 3
        if byte != 1 or self._ones == 4:
            self._ones = 0
        self._escapes = 0

    def _drop(self) -> None:
        if self._frame is not None:
            self.bad += 1
        self._frame = None
        self._left = 0

    def _finish(self, readings: "list[int]") -> None:
        frame = bytes(self._frame or b"")
        crc = crc16(memoryview(frame)[:-2], X25, 0xFFFF) ^ 0xFFFF
        if frame[-2] | frame[-1] << 8 != crc or frame[-3] > 3:
            self._drop()
            # The last bytes of the invalid frame may be the beginning of the next frame.
            while self._escapes < 3 and frame[-1 - self._escapes] == 0x1B:
                self._escapes += 1
            return
        self._frame = None
        try:
            readings.append(self._value(frame[len(_START) : -8 - frame[-3]].replace(_ESCAPE + _ESCAPE, _ESCAPE)))
        except (ValueError, IndexError):
            self.bad += 1

    def _value(self, body: bytes) -> int:
        entries: list[Any] = []
        at = 0
        while at < len(body):
            at, value = _parse(body, at, 0)
            _collect(value, entries)
        wanted = [entry for entry in entries if entry[0] == self._obis]
        if len(wanted) != 1:
            raise ValueError("the register is missing or occurs twice")
        _, _, _, unit, exponent, value, _, size = wanted[0]
        if unit != self._unit or not isinstance(value, int):
            raise ValueError("the register has another unit, or no integer")
        exponent = exponent or 0
        if not isinstance(exponent, int) or not -12 <= exponent <= 12:
            raise ValueError("the scaler is out of range")
        if value < 0 and size < 4 and self._obis == _POWER and _writes_unsigned(entries):
            value += 1 << 8 * size
        return scaled(value * 10 ** max(exponent, 0), 10 ** max(-exponent, 0), self._scale)


def _parse(data: bytes, at: int, depth: int) -> "tuple[int, Any]":
    """Return (end index, value): a list, int, bool or bytes; None for an absent optional field.

    A list gets an extra element at its end: the number of bytes of its sixth element, which in an entry is the value.
    """
    if depth > _DEPTH:
        raise ValueError("lists are nested too deeply")
    if data[at] == 0:
        # A byte of zero marks the end of a message.
        return at + 1, None
    kind = data[at] & 0x70
    length = data[at] & 0x0F
    size = 1
    while data[at + size - 1] & 0x80:
        length = length << 4 | data[at + size] & 0x0F
        size += 1
        if size > _LENGTH_BYTES:
            raise ValueError("a length is too long")
    at += size
    if kind == 0x70:
        values = []
        width = 0
        for i in range(length):
            start = at
            at, value = _parse(data, at, depth + 1)
            values.append(value)
            if i == 5:
                width = at - start - 1
        values.append(width)
        return at, values
    end = at + length - size
    if not at <= end <= len(data):
        raise ValueError("a field does not end")
    field = data[at:end]
    if kind == 0:
        return end, field if field else None
    if not 1 <= len(field) <= _INTEGER_BYTES or kind not in (0x40, 0x50, 0x60):
        raise ValueError("a field is of no known type")
    value = 0
    for byte in field:
        value = value << 8 | byte
    if kind == 0x50 and field[0] & 0x80:
        value -= 1 << 8 * len(field)
    return end, value


def _collect(value: "Any", entries: "list[Any]") -> None:
    """Add each list within ``value`` that may be an SML list entry: seven fields, and what `_parse` adds."""
    if isinstance(value, list):
        if len(value) == 8 and isinstance(value[0], bytes):
            entries.append(value)
        for inner in value:
            _collect(inner, entries)


def _writes_unsigned(entries: "list[Any]") -> bool:
    """Return True if an entry is the serial number of a meter that marks unsigned powers as signed."""
    for entry in entries:
        serial = entry[5]
        if entry[0] != _SERIAL or not isinstance(serial, bytes):
            continue
        if len(serial) == _DZG_BYTES and serial[: len(_DZG)] == _DZG:
            number = 0
            for byte in serial[len(_DZG) :]:
                number = number << 8 | byte
            for low, high in _UNSIGNED_POWER:
                if low <= number <= high:
                    return True
    return False

"""DSMR P1 telegrams (Netherlands, Belgium, Luxembourg, Sweden): DSMR 4 and later, which end with a CRC.

``/ident CR LF CR LF lines !CRC CR LF``, the CRC-16/ARC from ``/`` to ``!`` as four upper-case hexadecimal digits.
Telegrams of DSMR 2 and 3 carry none and are refused: nothing would tell a damaged one.
"""

from undertone_device.sensors.crc import ARC, crc16
from undertone_device.sensors.decimals import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

LARGEST = 4096
_TAIL = 6


class P1:
    """The sum of the registers ``obis`` (such as ``1-0:1.8.1`` and ``1-0:1.8.2``) in ``unit`` times ``scale``."""

    def __init__(self, obis: "tuple[str, ...]", unit: str = "kWh", scale: "Scale" = (1000, 1)):
        self._obis = obis
        self._unit = unit
        self._scale = scale
        self._buffer = b""
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """The readings that ``data`` completes."""
        self._buffer += data
        readings = []
        while True:
            start = self._buffer.find(b"/")
            end = self._buffer.find(b"!", start + 1)
            if start < 0:
                self._buffer = b""
                break
            if end < 0 or len(self._buffer) < end + 1 + _TAIL:
                self._buffer = self._buffer[start:]
                if len(self._buffer) > LARGEST:
                    self._drop(1)
                    continue
                break
            telegram = self._buffer[start : end + 1]
            tail = self._buffer[end + 1 : end + 1 + _TAIL]
            if tail != b"%04X\r\n" % crc16(telegram, ARC, 0):
                # The last of what looks like several beginnings is tried next: no byte is summed more than twice.
                last = self._buffer.rfind(b"/", start + 1, end)
                self._drop(end + 1 if last < 0 else last)
                continue
            self._buffer = self._buffer[end + 1 + _TAIL :]
            try:
                readings.append(self._sum(telegram.decode()))
            except ValueError:
                self.bad += 1
        return readings

    def _drop(self, length: int) -> None:
        self.bad += 1
        self._buffer = self._buffer[length:]

    def _sum(self, telegram: str) -> int:
        total = 0
        for code in self._obis:
            head = "\n%s(" % code
            at = telegram.find(head)
            if at < 0 or telegram.find(head, at + 1) >= 0:
                raise ValueError("a register is missing, or there twice")
            value = telegram[at + len(head) : telegram.find(")", at)].split("*")
            if value[1:] != [self._unit]:
                raise ValueError("a register has another unit")
            total += units(value[0], self._scale)
        return total

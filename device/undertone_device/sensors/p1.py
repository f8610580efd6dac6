"""Decoder of DSMR P1 telegrams (Netherlands, Belgium, Sweden): DSMR 4 and later, which end with a CRC.

A telegram is ``/ident CR LF CR LF lines !CRC CR LF``, with the CRC-16/ARC from ``/`` to ``!`` in four upper-case
hexadecimal digits; some meters omit leading zeros. Telegrams of DSMR 2 and 3 have no CRC and are refused here.

Gas, water and heat meters are connected to the electricity meter on channels of their own:
``0-1:24.2.1(time)(value*unit)``, where the channel is the digit after ``0-``. The time is when that meter was read,
``YYMMDDhhmmss`` and S or W.
"""

from undertone_device.sensors.crc import ARC, crc16
from undertone_device.sensors.lines import RegisterLines, brackets, quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

_SLASH = 0x2F
_BANG = 0x21
_LF = 10
# Number of bytes of the CRC, CR and LF that end a telegram.
_TAIL = 6
_OUTSIDE = 0
_INSIDE = 1
_ENDING = 2
_TIME = 13


class P1:
    """Decoder. A reading is the sum of the registers ``obis`` (such as ``1-0:1.8.1`` and ``1-0:1.8.2``), which the
    meter gives in ``unit``, times ``scale``.
    """

    def __init__(self, obis: "tuple[str, ...]", unit: str = "kWh", scale: "Scale" = (1000, 1)):
        self._lines = RegisterLines(obis, False)
        self._unit = unit
        self._scale = scale
        self._state = _OUTSIDE
        self._crc = 0
        self._tail = b""
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """Return the readings that ``data`` completes, in time linear in its length."""
        readings: list[int] = []
        view = memoryview(data)
        # Index of the first byte that the CRC does not cover yet.
        start = 0
        for i in range(len(data)):
            byte = data[i]
            if byte == _SLASH:
                # ``/`` always begins a telegram, because no value and no name contains it. One that is still open
                # counts as damaged.
                if self._state != _OUTSIDE:
                    self.bad += 1
                self._state = _INSIDE
                self._lines.begin()
                self._crc = 0
                start = i
            elif self._state == _INSIDE:
                if byte == _BANG:
                    self._crc = crc16(view[start : i + 1], ARC, self._crc)
                    self._tail = b""
                    self._state = _ENDING
                else:
                    self._lines.add(byte)
            elif self._state == _ENDING:
                self._tail += bytes([byte])
                if byte == _LF or len(self._tail) == _TAIL:
                    self._finish(readings)
                    self._state = _OUTSIDE
        if self._state == _INSIDE:
            self._crc = crc16(view[start:], ARC, self._crc)
        return readings

    def _finish(self, readings: "list[int]") -> None:
        try:
            if self._tail not in (b"%04X\r\n" % self._crc, b"%X\r\n" % self._crc):
                raise ValueError("the CRC does not fit")
            readings.append(sum([self._value(text) for text in self._lines.values()]))
        except ValueError:
            self.bad += 1

    def _value(self, text: str) -> int:
        fields = brackets(text)
        if len(fields) == 2:
            _check_time(fields[0])
        elif len(fields) != 1:
            raise ValueError("a register is no single value")
        return quantity(fields[-1], self._unit, self._scale, False)


def _check_time(text: str) -> None:
    """Raise ValueError unless the text is a time such as ``101209110000W``; an absent meter has none."""
    for digit in text[:-1]:
        if digit not in "0123456789":
            raise ValueError("not a time")
    if len(text) != _TIME or text[-1] not in "SW" or not 1 <= int(text[2:4]) <= 12 or not 1 <= int(text[4:6]) <= 31:
        raise ValueError("not a time")

"""IEC 62056-21 (formerly IEC 1107) by an optical head: readouts on request (modes A, B, C), unasked telegrams (mode D).

Characters have 7 bits and even parity; open the port with 8 bits and no parity, because the parity is checked here. A
readout is ``STX lines ETX BCC``, where BCC is the exclusive or of everything after STX, ETX included. A telegram that a
meter sends by itself is ``/ident CR LF CR LF lines ! CR LF`` and has no BCC, only the parity.
"""

from undertone_device.sensors.lines import RegisterLines, brackets, quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

STX = 2
ETX = 3
# Baud rate of the sign-on, and of the readout of a meter that offers no other rate.
BAUD = 300
_SLASH = 0x2F
_END = "!"
# The fifth character of a meter's name offers a speed: in mode C a digit, which the reader answers; in mode B a letter,
# after which the meter changes its speed without an answer.
_MODE_C = "0123456"
_MODE_B = "ABCDEF"


def _parity(byte: int) -> int:
    byte ^= byte >> 4
    byte ^= byte >> 2
    return (byte ^ byte >> 1) & 1


def even(text: bytes) -> bytes:
    """Return the characters with their parity bits, as they are sent."""
    return bytes([byte | _parity(byte) << 7 for byte in text])


# The request for a meter's name.
SIGN_ON = even(b"/?!\r\n")


def answer_to(name: bytes) -> "tuple[bytes, int]":
    """Return (the answer to a meter's name that requests its readout, the readout's baud rate).

    ``name`` is ``/XXXZ...``, with or without parity bits: Z offers a speed, and the answer accepts it. A meter of mode
    A or B expects no answer. Raises ValueError for an invalid name.
    """
    text = bytes([byte & 0x7F for byte in name])
    if len(text) < 5 or text[0] != _SLASH:
        raise ValueError("the meter does not say its name")
    offer = chr(text[4])
    speed = _MODE_C.find(offer)
    if speed >= 0:
        return even(b"\x060" + offer.encode() + b"0\r\n"), BAUD << speed
    # Mode B begins at 600 baud; without an offer the meter keeps its speed (mode A).
    return b"", BAUD << _MODE_B.find(offer) + 1


class _Registers:
    """Base of readouts and telegrams: checks the parity of bytes, and adds up the values of the wanted registers."""

    def __init__(self, obis: "tuple[str, ...]", unit: str = "kWh", scale: "Scale" = (1000, 1)):
        self._lines = RegisterLines(obis, True)
        self._unit = unit
        self._scale = scale
        self._inside = False
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """Return the readings that ``data`` completes. Each byte is processed once."""
        readings: list[int] = []
        for byte in data:
            if _parity(byte):
                self._drop()
            else:
                self._take(byte & 0x7F, readings)
        return readings

    def _take(self, character: int, readings: "list[int]") -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        self._drop()
        self._inside = True
        self._lines.begin()

    def _drop(self) -> None:
        if self._inside:
            self.bad += 1
        self._inside = False

    def _finish(self, readings: "list[int]") -> None:
        try:
            # The first brackets have the value; a time may follow. A meter may omit a unit that the code implies.
            texts = [brackets(text)[0] for text in self._lines.values()]
            readings.append(sum([quantity(text, self._unit, self._scale, True) for text in texts]))
        except ValueError:
            self.bad += 1
        self._inside = False


class Readout(_Registers):
    """Decoder of readouts with BCC. A reading is the sum of the registers ``obis`` (such as ``1.8.0``), which the meter
    gives in ``unit``, times ``scale``.
    """

    def __init__(self, obis: "tuple[str, ...]", unit: str = "kWh", scale: "Scale" = (1000, 1)):
        super().__init__(obis, unit, scale)
        self._check = 0
        self._ended = False

    def _take(self, character: int, readings: "list[int]") -> None:
        if self._inside and self._ended:
            if character == self._check:
                self._lines.end()
                self._finish(readings)
            else:
                self._drop()
        elif character == STX:
            self._begin()
            self._check = 0
            self._ended = False
        elif self._inside:
            self._check ^= character
            if character == ETX:
                self._ended = True
            else:
                self._lines.add(character)


class Telegram(_Registers):
    """Decoder of telegrams that a meter sends unasked. A reading is made as in `Readout`."""

    def _take(self, character: int, readings: "list[int]") -> None:
        if character == _SLASH:
            # ``/`` begins a telegram; no value and no name contains it.
            self._begin()
        elif self._inside and self._lines.add(character) == _END:
            self._finish(readings)

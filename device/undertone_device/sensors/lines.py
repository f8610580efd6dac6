"""Parser of the meters' text lines (IEC 62056-21, DSMR P1): ``code(value*unit)``, ended by CR LF.

Lines are read character by character, and only those of the wanted registers are stored, so a readout may have any
length.
"""

from undertone_device.sensors.decimals import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

LONGEST = 256
_LF = 10
_CR = 13
_CURRENT = "*255"


class RegisterLines:
    """The lines of the registers ``codes`` in one readout.

    With ``shortened``, ``1.8.0`` also means ``1-0:1.8.0`` and ``1-0:1.8.0*255``, if no line has exactly that code.
    """

    def __init__(self, codes: "tuple[str, ...]", shortened: bool):
        self._codes = codes
        self._shortened = shortened
        self._line = bytearray(LONGEST)
        self._length = 0
        self.begin()

    def begin(self) -> None:
        """Start a new readout."""
        self._length = 0
        self._values: list[str | None] = [None] * len(self._codes)
        # State of each register code. 0: no line seen; 1: a line whose code is longer; 2: a line of exactly this code;
        # -1, -2: several of these lines.
        self._fits = [0] * len(self._codes)

    def add(self, character: int) -> "str | None":
        """Take one character. If it ends a line, return the line as `end` does, otherwise None."""
        if character == _LF:
            return self.end()
        if character != _CR and self._length < LONGEST:
            self._line[self._length] = character
            self._length += 1
        return None

    def end(self) -> str:
        """End the line and return it. Return "" if it is too long to be a register's line, or not UTF-8."""
        length = self._length
        self._length = 0
        if length >= LONGEST:
            return ""
        try:
            line = bytes(memoryview(self._line)[:length]).decode()
        except ValueError:
            return ""
        at = line.find("(")
        if at > 0:
            for i in range(len(self._codes)):
                self._keep(i, line[:at], line[at:])
        return line

    def _keep(self, i: int, code: str, value: str) -> None:
        fit = _fit(code, self._codes[i], self._shortened)
        if fit > abs(self._fits[i]):
            self._fits[i] = fit
            self._values[i] = value
        elif fit and fit == abs(self._fits[i]):
            self._fits[i] = -fit

    def values(self) -> "list[str]":
        """Return the text after each code, with brackets.

        Raises ValueError if a register is missing or occurs twice.
        """
        values = []
        for i in range(len(self._codes)):
            value = self._values[i]
            if value is None or self._fits[i] < 0:
                raise ValueError("a register is missing or occurs twice")
            values.append(value)
        return values


def _fit(code: str, wanted: str, shortened: bool) -> int:
    if code == wanted:
        return 2
    if shortened:
        if ":" not in wanted:
            code = code.split(":")[-1]
        if "*" not in wanted and code.endswith(_CURRENT):
            code = code[: -len(_CURRENT)]
        if code == wanted:
            return 1
    return 0


def brackets(text: str) -> "list[str]":
    """Return the contents of ``(a)(b)``. Raises ValueError for anything else."""
    if text[:1] != "(" or text[-1:] != ")":
        raise ValueError("a value is not in brackets")
    return text[1:-1].split(")(")


def quantity(text: str, unit: str, scale: "Scale", unit_may_miss: bool) -> int:
    """Return ``value*unit`` times ``scale``. Raises ValueError for another unit, or if a unit is needed and missing."""
    parts = text.split("*")
    if parts[1:] != [unit] and not (unit_may_miss and len(parts) == 1):
        raise ValueError("a register has another unit")
    return units(parts[0], scale)

"""Certified integer tables: mechanisms designed elsewhere, which a device checks before it uses them.

W[k][j] are positive integers, each row sums to 2^bits. Level k stands for the reading mu_k / 2^shift, where mu_k is an
integer. The device rounds its reading stochastically between neighbouring levels, so a decode with
sum_j W[k][j] y_j = 2^bits mu_k is exactly unbiased, no matter how W was rounded. The designer of a table need not be
trusted: the device computes the certificate from the table itself.
"""

import binascii

from undertone_shared.checks import SMALL, check_cap, check_integer, integers
from undertone_shared.errors import Invalid

try:
    from undertone_shared.off_board.analysis import TableAnalysis
except ImportError:  # MicroPython boards do not have the package off_board.
    TableAnalysis = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from undertone_shared.entropy import Entropy

# Number of bytes of one weight, big-endian.
WIDTH = 3
LARGEST_LEVEL = 1 << 20
_MOST_LEVELS = 257
# Largest number of base64 characters in all rows, and the bytes that they encode.
LARGEST_ROWS = 6600
LARGEST_PACKED = LARGEST_ROWS // 4 * 3


class TableMechanism(TableAnalysis):
    """The mechanism P(j|k) = W[k][j] / 2^bits for levels k = 0..K and symbols j = 0..symbols-1.

    ``reach``: the range that the levels cover is [0, reach], with reach = floor(mu_K / 2^shift). Readings of another
    range [0, theta], as another block of the day has, are scaled to [0, reach]. ``rows``: the rows of W, WIDTH bytes a
    weight, big-endian. ``values``: mu_0 < ... < mu_K with mu_0 <= 0. ``decoded``: numerators of the decoded readings
    and their common denominator; None on a device, which never decodes. Raises Invalid naming the wrong row, column or
    level.
    """

    edges = None
    first = 0

    def __init__(
        self,
        bits: int,
        rows: "Sequence[bytes]",
        values: tuple[int, ...],
        shift: int,
        decoded: "tuple[tuple[int, ...], int] | None" = None,
    ):
        check_integer("bits", bits, 8, 8 * WIDTH)
        check_integer("shift", shift, 0, 20)
        levels = len(values) - 1
        check_integer("the table's number of levels less one", levels, 1, _MOST_LEVELS - 1)
        if len(rows) != levels + 1:
            raise Invalid("the table has %d rows, expected one for each of %d levels" % (len(rows), levels + 1))
        for k in range(levels + 1):
            check_integer("level value %d" % k, values[k], -LARGEST_LEVEL, LARGEST_LEVEL)
            if k and values[k] <= values[k - 1]:
                raise Invalid("level value %d is %d, expected more than %d" % (k, values[k], values[k - 1]))
        if values[0] > 0:
            raise Invalid("level value 0 is %d, expected at most 0" % values[0])
        self.bits = bits
        self.levels = levels
        self.values = values
        self.shift = shift
        self.reach = values[levels] >> shift
        self.symbols = len(rows[0]) // WIDTH
        self.rows = rows
        self.decoded = decoded
        for k in range(levels + 1):
            if not rows[k] or len(rows[k]) != self.symbols * WIDTH:
                raise Invalid("row %d of the table has %d bytes, expected %d" % (k, len(rows[k]), self.symbols * WIDTH))
            total = 0
            for j in range(self.symbols):
                weight = self._weight(k, j)
                if weight < 1:
                    raise Invalid("the table's weight in row %d, column %d is 0, expected at least 1" % (k, j))
                total += weight
            if total != 1 << bits:
                raise Invalid("row %d of the table sums to %d, expected 2^%d = %d" % (k, total, bits, 1 << bits))
        if decoded is not None and len(decoded[0]) != self.symbols:
            raise Invalid("there are %d decode values, expected %d" % (len(decoded[0]), self.symbols))

    def _weight(self, k: int, j: int) -> int:
        row = self.rows[k]
        j *= WIDTH
        return row[j] << 16 | row[j + 1] << 8 | row[j + 2]

    def covers(self, theta: int) -> bool:
        """Return True if readings in [0, theta] can be scaled to the levels in small integers."""
        return theta >= 1 and (theta == self.reach or 1 <= self.reach <= (SMALL - 1) // theta)

    def choose(self, entropy: "Entropy") -> "TableMechanism":
        """Return the mechanism that draws this report: itself."""
        return self

    def level(self, x: int, theta: int, entropy: "Entropy") -> int:
        """Return the index of the level below or above x in [0, theta], at random so that the levels' mean is x.

        It uses one word of ``entropy``. If theta is not ``reach``, x is first scaled to the table's range, at random so
        that the mean is exact, with one word more. Raises Invalid for x or theta out of range.
        """
        if x < 0 or x > theta or not self.covers(theta):
            raise Invalid(
                "the truncated reading is %d, expected 0 to theta = %d, within the table's range" % (x, theta)
            )
        if theta != self.reach:
            scaled = x * self.reach
            x = scaled // theta
            x += entropy.below(theta) < scaled - x * theta
        x <<= self.shift
        values = self.values
        k = 0
        # Every inner level is compared whatever x is, so that the time does not depend on the reading.
        for i in range(1, self.levels):
            k += values[i] <= x
        low = values[k]
        return k + (entropy.below(values[k + 1] - low) < x - low)

    def draw(self, level: int, entropy: "Entropy") -> int:
        """Draw a symbol from the row ``level``, in constant time, with one word of ``entropy``.

        Raises Invalid for a level out of range.
        """
        if level < 0 or level > self.levels:
            raise Invalid("level is %d, expected 0 to %d" % (level, self.levels))
        u = entropy.below(1 << self.bits)
        row = self.rows[level]
        end = (self.symbols - 1) * WIDTH
        i = 0
        cumulative = 0
        symbol = 0
        while i < end:
            cumulative += row[i] << 16 | row[i + 1] << 8 | row[i + 2]
            symbol += u >= cumulative
            i += WIDTH
        return symbol

    def _column(self, j: int) -> tuple[int, int]:
        largest = smallest = self._weight(0, j)
        for k in range(1, self.levels + 1):
            weight = self._weight(k, j)
            largest = max(largest, weight)
            smallest = min(smallest, weight)
        return largest, smallest

    def certificate(self) -> tuple[int, int]:
        """Return the largest ratio of two weights in a column; its logarithm is the event-level epsilon."""
        worst = (1, 1)
        for j in range(self.symbols):
            column = self._column(j)
            if column[0] * worst[1] > worst[0] * column[1]:
                worst = column
        return worst

    def breach(self, cap: tuple[int, int]) -> "int | None":
        """Return the first column whose ratio exceeds the rational cap (p, q), or None."""
        check_cap(cap)
        for j in range(self.symbols):
            largest, smallest = self._column(j)
            if largest * cap[1] > cap[0] * smallest:
                return j
        return None

    def permits(self, cap: tuple[int, int]) -> bool:
        """Return True if every column's largest weight is at most p/q times its smallest."""
        return self.breach(cap) is None


def parse_table(name: str, fields: "dict[str, Any]") -> TableMechanism:
    """Parse the table of a JSON object, see `undertone_shared.notation`.

    Raises Invalid, naming the field as part of ``name``.

    Deletes each row's text from ``fields`` once the row is decoded: a board has no memory for all texts and all rows.
    """
    encoded = fields["rows"]
    if not isinstance(encoded, list):
        raise Invalid("%s.rows is not a list of rows" % name)
    rows = []
    size = 0
    for k in range(len(encoded)):
        row = b""
        try:
            text = encoded[k].encode()
            row = binascii.a2b_base64(text)
        # Bad base64 raises ValueError, or a plain Exception where binascii is written in Python; a value that is not
        # text raises AttributeError.
        except Exception:
            pass
        if not row or binascii.b2a_base64(row).strip() != text:
            raise Invalid("%s.rows[%d] is not plain base64" % (name, k))
        rows.append(row)
        encoded[k] = None
        size += len(row)
        if size > LARGEST_PACKED:
            raise Invalid("%s.rows have more than %d characters" % (name, LARGEST_ROWS))
    values = integers(name + ".values", fields["values"], 2, _MOST_LEVELS)
    return TableMechanism(fields["bits"], rows, values, fields["shift"])

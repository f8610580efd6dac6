"""What anybody can compute of a mechanism from its integers, and a device never does: bases of the classes there.

A board does not carry this module. Rationals and units as in `undertone_shared.mechanism`.
"""

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.mechanism import WindowMechanism


class WindowAnalysis:
    """Weights, decode and variance of a `WindowMechanism`."""

    a: int
    b: int
    window: int
    stride: int
    levels: int
    cells: int
    total: int
    edges: "tuple[int, ...] | None"
    first: int
    symbols: int

    def weights(self, level: int) -> list[int]:
        """The integer weights of the symbols at ``level``; they sum to ``row_total()``. Raises Invalid."""
        check_integer("level", level, 0, self.levels)
        row = [0] * self.first + [self.b] * self.cells
        for j in range(self.window):
            row[self.first + self.stride * level + j] = self.a
        return row

    def row_total(self) -> int:
        """The sum of each row of ``weights``: Z."""
        return self.total

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """The reading k theta/K for which ``level`` stands. Raises Invalid for a mechanism with edges."""
        check_integer("level", level, 0, self.levels)
        if self.edges is not None:
            raise Invalid("a mechanism with edges has no value per level: its bins are not evenly spaced")
        return (level * theta, self.levels)

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """The unbiased estimate (y + 1) theta/2 of the truncated reading, y = Z(2j - N + 1)/((a-b) w s K), exactly.

        Raises Invalid for a symbol out of range, or for a mechanism with edges, which has no unbiased decode.
        """
        check_integer("symbol", symbol, self.first, self.symbols - 1)
        if self.edges is not None:
            raise Invalid("a mechanism with edges has no unbiased decode: its bins are not evenly spaced")
        unit = (self.a - self.b) * self.window * self.stride * self.levels
        j = symbol - self.first
        return (theta * (unit + self.total * (2 * j - self.cells + 1)), 2 * unit)

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Var of ``decode`` at ``level``, exactly: (theta/2)^2 (V0 + c x^2) with x = 2k/K - 1, c = bN/((a-b)w),

        V0 = D^2 [bN(N^2-1) + (a-b)w(w^2-1)]/(12Z), D = 2Z/((a-b) w s K). Raises Invalid like ``value``.
        """
        k, levels = self.value(level, 1)
        n = self.cells
        w = self.window
        inside = (self.a - self.b) * w
        unit = inside * self.stride * levels
        # D^2/(12Z) = Z/(3 unit^2).
        spread = self.total * (self.b * n * (n * n - 1) + inside * (w * w - 1)) * inside * levels * levels
        slope = 3 * unit * unit * self.b * n * (2 * k - levels) * (2 * k - levels)
        return (theta * theta * (spread + slope), 12 * unit * unit * inside * levels * levels)


class HybridAnalysis:
    """Weights, decode and variance of a `Hybrid`."""

    coin: int
    rounding: "WindowMechanism"
    piecewise: "WindowMechanism"
    levels: int
    symbols: int

    def weights(self, level: int) -> list[int]:
        """The integer weights of the symbols at ``level``, stochastic rounding's own rounding included."""
        check_integer("level", level, 0, self.levels)
        r = self.rounding
        p = self.piecewise
        low = r.weights(0)
        high = r.weights(1)
        share = (65536 - self.coin) * p.total
        row = [share * ((self.levels - level) * low[j] + level * high[j]) for j in range(r.symbols)]
        scale = self.coin * r.total * self.levels
        return row + [scale * weight for weight in p.weights(level)[p.first :]]

    def row_total(self) -> int:
        """The sum of each row of ``weights``."""
        return 65536 * self.rounding.total * self.piecewise.total * self.levels

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """The reading k theta/K for which ``level`` stands. Raises Invalid."""
        return self.piecewise.value(level, theta)

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """The unbiased estimate of the truncated reading by the part that drew the symbol, exactly. Raises Invalid."""
        check_integer("symbol", symbol, 0, self.symbols - 1)
        return (self.rounding if symbol < self.rounding.symbols else self.piecewise).decode(symbol, theta)

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Var of ``decode`` at ``level``, exactly: the coin's mixture of the parts' second moments about the reading.

        Stochastic rounding contributes (theta/2)^2 (((a+b)/(a-b))^2 - x^2), its own rounding included. Raises Invalid.
        """
        num, den = self.piecewise.variance(level, theta)
        r = self.rounding
        outer = (r.a + r.b) * self.levels
        x = (2 * level - self.levels) * (r.a - r.b)
        scale = 4 * (r.a - r.b) * (r.a - r.b) * self.levels * self.levels
        return (
            self.coin * num * scale + (65536 - self.coin) * theta * theta * (outer * outer - x * x) * den,
            65536 * den * scale,
        )

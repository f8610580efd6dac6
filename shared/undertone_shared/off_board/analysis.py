"""Public computations on a mechanism's integers, which a device never needs: base classes of the mechanisms.

A board does not carry this module. Rationals and units are those of `undertone_shared.mechanism`.
"""

import binascii

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class WindowAnalysis:
    """Weights, decode and variance of a `WindowMechanism`, whose docstring defines the letters used here.

    Further letters: theta is the width of the range of readings, k a level, j a symbol less ``first``.
    """

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

    @property
    def kind(self) -> str:
        """The mechanism's kind in a campaign."""
        return "window" if self.edges is None else "square-wave"

    @property
    def name(self) -> str:
        """The mechanism's name for people."""
        if self.edges is not None:
            return "square wave"
        return "stochastic rounding" if self.window == self.stride == self.levels == 1 else "piecewise"

    @property
    def decodes(self) -> bool:
        """True if the mechanism has an unbiased decode."""
        return self.edges is None

    @property
    def parts(self) -> "tuple[WindowAnalysis, ...]":
        """The mechanisms that may draw: only itself."""
        return (self,)

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value from which ``parse_mechanism`` makes the same mechanism."""
        fields: dict[str, Any] = {"kind": self.kind, "a": self.a, "b": self.b, "window": self.window}
        if self.edges is not None:
            fields["edges"] = list(self.edges)
        else:
            fields["stride"] = self.stride
            fields["levels"] = self.levels
        return fields

    def occurs(self, symbol: int) -> bool:
        """Return True if a device can draw the symbol, which is then possible at every level."""
        return self.first <= symbol < self.symbols

    def weights(self, level: int) -> list[int]:
        """Return the integer weights of the symbols at ``level``; they sum to ``row_total()``. Raises Invalid."""
        return [0] * self.first + self.cells_at(level, self.a, self.b)

    def cells_at(self, level: int, inside: int, outside: int) -> list[int]:
        """Return a value for each cell: ``inside`` in the window of ``level``, ``outside`` elsewhere.

        Raises Invalid.
        """
        check_integer("level", level, 0, self.levels)
        before = self.stride * level
        return [outside] * before + [inside] * self.window + [outside] * (self.cells - before - self.window)

    def row_total(self) -> int:
        """Return Z = (a-b)w + bN, the sum of each row of ``weights``."""
        return self.total

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """Return the reading that ``level`` represents: level · theta/``levels``. Raises Invalid if there are edges."""
        check_integer("level", level, 0, self.levels)
        if self.edges is not None:
            raise Invalid("a mechanism with edges has no value per level: its bins may have different widths")
        return (level * theta, self.levels)

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """Return the unbiased estimate of the truncated reading, exactly: (y + 1) theta/2.

        y = Z(2j - N + 1)/((a-b) w s K), where j is the symbol less ``first``; `WindowMechanism` defines the other
        letters. Raises Invalid for a symbol out of range, or for a mechanism with edges, which has no unbiased decode.
        """
        check_integer("symbol", symbol, self.first, self.symbols - 1)
        if self.edges is not None:
            raise Invalid("a mechanism with edges has no unbiased decode: its bins may have different widths")
        unit = (self.a - self.b) * self.window * self.stride * self.levels
        j = symbol - self.first
        return (theta * (unit + self.total * (2 * j - self.cells + 1)), 2 * unit)

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Return the variance of ``decode`` at ``level``, exactly: (theta/2)^2 (V0 + c x^2).

        x = 2 level/K - 1, c = bN/((a-b)w), V0 = D^2 [bN(N^2-1) + (a-b)w(w^2-1)]/(12Z), D = 2Z/((a-b) w s K), where
        `WindowMechanism` defines a, b, w, s, K, N and Z. Raises Invalid for the same input as ``value``.
        """
        k, levels = self.value(level, 1)
        n = self.cells
        w = self.window
        inside = (self.a - self.b) * w
        unit = inside * self.stride * levels
        # With unit = (a-b) w s K, the factor D^2/(12Z) of V0 is Z/(3 unit^2).
        spread = self.total * (self.b * n * (n * n - 1) + inside * (w * w - 1)) * inside * levels * levels
        slope = 3 * unit * unit * self.b * n * (2 * k - levels) * (2 * k - levels)
        return (theta * theta * (spread + slope), 12 * unit * unit * inside * levels * levels)


class HybridAnalysis:
    """Weights, decode and variance of a `Hybrid`, the mixture of stochastic rounding and the piecewise mechanism."""

    coin: int
    kind = "hybrid"
    name = "hybrid"
    decodes = True
    rounding: WindowAnalysis
    piecewise: WindowAnalysis
    levels: int
    symbols: int

    @property
    def parts(self) -> "tuple[WindowAnalysis, ...]":
        """The mechanisms that may draw."""
        return (self.rounding, self.piecewise)

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value from which ``parse_mechanism`` makes the same mechanism."""
        r = self.rounding
        p = self.piecewise
        return {
            "kind": self.kind,
            "coin": self.coin,
            "rounding": [r.a, r.b],
            "piecewise": [p.a, p.b, p.window, p.stride, p.levels],
        }

    def occurs(self, symbol: int) -> bool:
        """Return True if a device can draw the symbol.

        The symbols of a part that the coin never chooses cannot occur.
        """
        return 0 <= symbol < self.symbols and (65536 - self.coin if symbol < self.rounding.symbols else self.coin) > 0

    def weights(self, level: int) -> list[int]:
        """Return the integer weights of the symbols at ``level``; stochastic rounding's own rounding is included."""
        check_integer("level", level, 0, self.levels)
        r = self.rounding
        p = self.piecewise
        low = r.weights(0)
        high = r.weights(1)
        share = (65536 - self.coin) * p.total
        row = [share * ((self.levels - level) * low[j] + level * high[j]) for j in range(r.symbols)]
        scale = self.coin * r.total * self.levels
        return row + p.cells_at(level, scale * p.a, scale * p.b)

    def row_total(self) -> int:
        """Return the sum of each row of ``weights``."""
        return 65536 * self.rounding.total * self.piecewise.total * self.levels

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """Return the reading that ``level`` represents: level · theta/``levels``.

        Raises Invalid for a level out of range.
        """
        return self.piecewise.value(level, theta)

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """Return the exact unbiased estimate of the truncated reading: that of the Hybrid's part that drew the symbol.

        Raises Invalid.
        """
        check_integer("symbol", symbol, 0, self.symbols - 1)
        return (self.rounding if symbol < self.rounding.symbols else self.piecewise).decode(symbol, theta)

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Return the variance of ``decode`` at ``level``, exactly: the coin mixes the parts' second moments about the
        reading.

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


class TableAnalysis:
    """Weights, decode and variance of a `TableMechanism`."""

    kind = "table"
    name = "optimal table"
    bits: int
    levels: int
    symbols: int
    shift: int
    reach: int
    values: "tuple[int, ...]"
    rows: "Sequence[bytes]"
    decoded: "tuple[tuple[int, ...], int] | None"

    @property
    def decodes(self) -> bool:
        """True if the table has an unbiased decode; a device's copy has none."""
        return self.decoded is not None

    @property
    def parts(self) -> "tuple[TableAnalysis, ...]":
        """The mechanisms that may draw: only itself."""
        return (self,)

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value from which ``parse_mechanism`` makes the same mechanism."""
        return {
            "kind": self.kind,
            "bits": self.bits,
            "shift": self.shift,
            "values": list(self.values),
            "rows": [binascii.b2a_base64(row).strip().decode() for row in self.rows],
        }

    def occurs(self, symbol: int) -> bool:
        """Return True if a device can draw the symbol: every weight is at least 1."""
        return 0 <= symbol < self.symbols

    def weights(self, level: int) -> list[int]:
        """Return the integer weights of the symbols at ``level``; they sum to 2^bits. Raises Invalid."""
        check_integer("level", level, 0, self.levels)
        row = self.rows[level]
        return [int.from_bytes(row[j : j + 3], "big") for j in range(0, len(row), 3)]

    def row_total(self) -> int:
        """Return the sum of each row of ``weights``: 2^bits."""
        return 1 << self.bits

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """Return the reading mu_k / 2^shift · theta/reach that ``level`` represents. Raises Invalid."""
        check_integer("level", level, 0, self.levels)
        return (self.values[level] * theta, self.reach << self.shift)

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """Return the unbiased estimate of the truncated reading, exactly. Raises Invalid without decode values."""
        check_integer("symbol", symbol, 0, self.symbols - 1)
        if self.decoded is None:
            raise Invalid("this table has no decode values, so no report can be decoded")
        return (self.decoded[0][symbol] * theta, self.decoded[1] * self.reach)

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Return the variance of ``decode`` at ``level``, exactly, by summation over the row. Raises Invalid."""
        row = self.weights(level)
        first = second = 0
        denominator = 1
        for j in range(self.symbols):
            y, denominator = self.decode(j, theta)
            first += row[j] * y
            second += row[j] * y * y
        return (
            (second << self.bits) - first * first,
            (denominator * denominator) << (2 * self.bits),
        )

"""Local mechanisms as small immutable objects of integers: one sampler for SR, PM, HM's parts and SW.

Every mechanism offers ``choose``, ``level``, ``draw`` (what a device runs), ``weights``, ``certificate``,
``permits``, ``value``, ``decode``, ``variance`` (what anybody can check). Rationals are pairs
``(numerator, denominator)`` with a positive denominator, in no particular reduction. ``value``, ``decode`` and
``variance`` are in units of the truncated reading, 0 to theta; theta = 2 gives the papers' interval [-1, 1] plus 1.
"""

from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.entropy import Entropy

# Every intermediate of a draw stays a small int on a 32-bit MicroPython.
SMALL = 1 << 30


def check_integer(name: str, value: int, low: int, high: int) -> int:
    """Return ``value`` if it is an int in [low, high]. Raises Invalid naming the field otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low or value > high:
        raise Invalid("%s is %r, expected an integer from %d to %d" % (name, value, low, high))
    return value


def check_cap(cap: tuple[int, int]) -> None:
    """Raises Invalid unless ``cap`` is a pair of integers p >= q >= 1, standing for the rational p/q."""
    if not isinstance(cap, (tuple, list)) or len(cap) != 2:
        raise Invalid("cap is %r, expected a pair of integers [p, q]" % (cap,))
    check_integer("cap's denominator", cap[1], 1, 1 << 62)
    check_integer("cap's numerator", cap[0], cap[1], 1 << 62)


class WindowMechanism:
    """Integer weight a inside a window of w cells that slides s cells per level, b outside.

    P(cell j | level k) = a/Z if s*k <= j < s*k + w else b/Z, with k = 0..K, j = 0..N-1, N = s*K + w and
    Z = (a-b)*w + b*N. Special cases: stochastic rounding (w=1, s=1, K=1; Duchi et al.), the piecewise mechanism
    (Wang et al., ICDE 2019), the Square Wave (Li et al., SIGMOD 2020; s=1 with ``edges``).

    ``edges``: K+2 strictly increasing integers; the level of a reading is then the index of the bin
    [edges[i], edges[i+1]) that holds it, end bins taking everything beyond, and no random rounding happens.
    ``first``: number of the first symbol (a Hybrid numbers its parts' cells consecutively).
    Raises Invalid for integers out of range.
    """

    def __init__(
        self,
        a: int,
        b: int,
        window: int,
        stride: int,
        levels: int,
        edges: "tuple[int, ...] | None" = None,
        first: int = 0,
    ):
        check_integer("b", b, 1, SMALL - 1)
        check_integer("a", a, b + 1, SMALL - 1)
        check_integer("window", window, 1, SMALL - 1)
        check_integer("stride", stride, 1, SMALL - 1)
        check_integer("levels", levels, 1, SMALL - 1)
        cells = stride * levels + window
        total = (a - b) * window + b * cells
        if total >= SMALL:
            raise Invalid("the total weight is %d, expected less than 2^30" % total)
        if edges is not None:
            if len(edges) != levels + 2:
                raise Invalid("there are %d edges, expected levels + 2 = %d" % (len(edges), levels + 2))
            for i in range(levels + 1):
                if edges[i] >= edges[i + 1]:
                    raise Invalid("edges[%d] is %d, expected more than %d" % (i + 1, edges[i + 1], edges[i]))
        self.a = a
        self.b = b
        self.window = window
        self.stride = stride
        self.levels = levels
        self.cells = cells
        self.total = total
        self.edges = edges
        self.first = first
        self.symbols = first + cells
        self._step = 1
        while self._step << 1 <= levels:
            self._step <<= 1

    def choose(self, entropy: "Entropy") -> "WindowMechanism":
        """The mechanism that draws this report: itself."""
        return self

    def level(self, x: int, theta: int, entropy: "Entropy") -> int:
        """The level of the truncated reading x in [0, theta], in integers.

        Without edges floor(xK/theta) + Bernoulli(remainder/theta), which is exactly unbiased (one word); with
        edges the bin index (no word). Raises Invalid for x or theta out of range.
        """
        if self.edges is not None:
            # Halving steps, as many whatever the reading is.
            bin = 0
            step = self._step
            while step:
                if bin + step <= self.levels and x >= self.edges[bin + step]:
                    bin += step
                step >>= 1
            return bin
        if theta < 1 or theta * self.levels >= SMALL:
            raise Invalid("theta is %d, expected 1 to %d" % (theta, (SMALL - 1) // self.levels))
        if x < 0 or x > theta:
            raise Invalid("the truncated reading is %d, expected 0 to theta = %d" % (x, theta))
        scaled = x * self.levels
        level = scaled // theta
        return level + (entropy.below(theta) < scaled - level * theta)

    def draw(self, level: int, entropy: "Entropy") -> int:
        """One symbol from the row ``level`` (one word). Raises Invalid for a level out of range."""
        if level < 0 or level > self.levels:
            raise Invalid("level is %d, expected 0 to %d" % (level, self.levels))
        u = entropy.below(self.total)
        inside = self.a * self.window
        start = self.stride * level
        if u < inside:
            return self.first + start + u // self.a
        cell = (u - inside) // self.b
        return self.first + (cell if cell < start else cell + self.window)

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

    def certificate(self) -> tuple[int, int]:
        """max over symbols and pairs of levels of P(j|k)/P(j|k'), exactly a/b; event-level epsilon = ln(a/b)."""
        return (self.a, self.b)

    def permits(self, cap: tuple[int, int]) -> bool:
        """Whether the certificate is at most the rational cap (p, q), by integer cross-multiplication."""
        check_cap(cap)
        return self.a * cap[1] <= cap[0] * self.b

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


class Hybrid:
    """A public, data-independent coin between stochastic rounding and the piecewise mechanism.

    With probability coin/65536 the piecewise mechanism draws, else stochastic rounding (Wang et al., ICDE 2019).
    The coin's outcome is part of the report: stochastic rounding's cells are symbols 0..1, the piecewise ones
    follow at 2. ``levels`` are the piecewise mechanism's. Raises Invalid for parts that do not fit.
    """

    def __init__(self, coin: int, rounding: WindowMechanism, piecewise: WindowMechanism):
        check_integer("coin", coin, 0, 65536)
        if rounding.levels != 1 or rounding.first != 0 or rounding.edges is not None:
            raise Invalid("the Hybrid's first part is not stochastic rounding with symbols from 0")
        if piecewise.first != rounding.symbols or piecewise.edges is not None:
            raise Invalid(
                "the Hybrid's piecewise symbols start at %d, expected %d" % (piecewise.first, rounding.symbols)
            )
        self.coin = coin
        self.rounding = rounding
        self.piecewise = piecewise
        self.levels = piecewise.levels
        self.symbols = piecewise.symbols
        self.edges = None

    def choose(self, entropy: "Entropy") -> WindowMechanism:
        """The part that draws this report: the public coin (one word, also when its outcome is certain)."""
        return self.piecewise if entropy.below(65536) < self.coin else self.rounding

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

    def certificate(self) -> tuple[int, int]:
        """The larger of the parts' certificates: the coin is public and does not depend on the reading."""
        r = self.rounding
        p = self.piecewise
        return (p.a, p.b) if p.a * r.b >= r.a * p.b else (r.a, r.b)

    def permits(self, cap: tuple[int, int]) -> bool:
        """Whether both parts' certificates are at most the rational cap (p, q)."""
        return self.rounding.permits(cap) and self.piecewise.permits(cap)

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

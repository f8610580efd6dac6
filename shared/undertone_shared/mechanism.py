"""Local mechanisms with integer weights, all drawn by `WindowMechanism.draw`.

The mechanisms are stochastic rounding (SR), the piecewise mechanism (PM), the hybrid mechanism (HM), which chooses
between SR and PM, and the Square Wave (SW).

A device calls ``choose``, ``covers``, ``certificate`` and ``permits`` of a mechanism, and ``level`` and ``draw`` of the
result of ``choose``. Servers also call ``weights``, ``row_total``, ``value``, ``decode`` and ``variance``, which no
board has. Rationals are pairs ``(numerator, denominator)`` with a positive denominator, not necessarily reduced.
``value``, ``decode`` and ``variance`` are in units of the truncated reading, 0 to theta; theta = 2 is the papers'
interval [-1, 1] moved up by 1.
"""

from undertone_shared.checks import SMALL, check_cap, check_integer
from undertone_shared.errors import Invalid

try:
    from undertone_shared.off_board.analysis import HybridAnalysis, WindowAnalysis
except ImportError:  # MicroPython boards do not have the package off_board.
    HybridAnalysis = WindowAnalysis = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.entropy import Entropy


class WindowMechanism(WindowAnalysis):
    """Window mechanism: integer weight a inside a window of w cells that moves by s cells per level, b outside.

    P(cell j | level k) = a/Z if s*k <= j < s*k + w else b/Z, with k = 0..K, j = 0..N-1, N = s*K + w and
    Z = (a-b)*w + b*N. Special cases: stochastic rounding (w=1, s=1, K=1; Duchi et al.), the piecewise mechanism
    (Wang et al., ICDE 2019), the Square Wave (Li et al., SIGMOD 2020; s=1 with ``edges``).

    ``edges``: K+2 strictly increasing integers; the level of a reading is then the index of the bin [edges[i],
    edges[i+1]) that contains it, the end bins include everything beyond, and there is no random rounding. ``first``:
    number of the first symbol (a Hybrid numbers its parts' cells consecutively). Raises Invalid for integers out of
    range.
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
        """Return the mechanism that draws this report: itself."""
        return self

    def level(self, x: int, theta: int, entropy: "Entropy") -> int:
        """Return the level of the truncated reading x in [0, theta], computed in integers.

        With edges it is the index of x's bin. Without edges it is floor(xK/theta) + Bernoulli((xK mod theta)/theta),
        which is exactly unbiased and uses one word of ``entropy``. It then raises Invalid for x or theta out of range.
        """
        if self.edges is not None:
            return self._bin(x, self.edges)
        if not self.covers(theta):
            raise Invalid("theta is %d, expected 1 to %d" % (theta, (SMALL - 1) // self.levels))
        if x < 0 or x > theta:
            raise Invalid("the truncated reading is %d, expected 0 to theta = %d" % (x, theta))
        scaled = x * self.levels
        level = scaled // theta
        return level + (entropy.below(theta) < scaled - level * theta)

    def _bin(self, x: int, edges: "tuple[int, ...]") -> int:
        # The bisection takes the same number of steps whatever the reading is.
        bin = 0
        step = self._step
        while step:
            if bin + step <= self.levels and x >= edges[bin + step]:
                bin += step
            step >>= 1
        return bin

    def covers(self, theta: int) -> bool:
        """Return True if ``level`` uses only small integers for readings in [0, theta]."""
        return theta >= 1 and theta * self.levels < SMALL

    def draw(self, level: int, entropy: "Entropy") -> int:
        """Draw a symbol at ``level`` with one word of ``entropy``. Raises Invalid for a level out of range."""
        if level < 0 or level > self.levels:
            raise Invalid("level is %d, expected 0 to %d" % (level, self.levels))
        u = entropy.below(self.total)
        inside = self.a * self.window
        start = self.stride * level
        if u < inside:
            return self.first + start + u // self.a
        cell = (u - inside) // self.b
        return self.first + (cell if cell < start else cell + self.window)

    def certificate(self) -> tuple[int, int]:
        """Return the largest P(j|k)/P(j|k') over symbols and pairs of levels, exactly a/b.

        Event-level epsilon = ln(a/b).
        """
        return (self.a, self.b)

    def permits(self, cap: tuple[int, int]) -> bool:
        """Return True if the certificate is at most the rational cap (p, q), by integer cross-multiplication."""
        check_cap(cap)
        return self.a * cap[1] <= cap[0] * self.b


class Hybrid(HybridAnalysis):
    """The hybrid mechanism: a public, data-independent coin between stochastic rounding and the piecewise mechanism.

    With probability coin/65536 the piecewise mechanism draws, else stochastic rounding (Wang et al., ICDE 2019).
    The coin's outcome is part of the report: stochastic rounding's cells are symbols 0..1, the piecewise ones
    follow at 2. ``levels`` are the piecewise mechanism's. Raises Invalid for parts that do not fit.
    """

    def __init__(self, coin: int, rounding: WindowMechanism, piecewise: WindowMechanism):
        check_integer("coin", coin, 0, 65536)
        if rounding.levels != 1 or rounding.first != 0 or rounding.edges is not None:
            raise Invalid("the Hybrid's first part is not stochastic rounding with symbols from 0")
        if piecewise.first != rounding.symbols or piecewise.edges is not None:
            raise Invalid("the Hybrid's second part is not piecewise with symbols from %d" % rounding.symbols)
        self.coin = coin
        self.rounding: WindowMechanism = rounding
        self.piecewise: WindowMechanism = piecewise
        self.levels = piecewise.levels
        self.symbols = piecewise.symbols
        self.edges = None
        self.first = 0

    def choose(self, entropy: "Entropy") -> WindowMechanism:
        """Return the part that draws this report, by the public coin, always with one word of ``entropy``."""
        return self.piecewise if entropy.below(65536) < self.coin else self.rounding

    def covers(self, theta: int) -> bool:
        """Return True if ``level`` uses only small integers for readings in [0, theta]."""
        return self.piecewise.covers(theta)

    def certificate(self) -> tuple[int, int]:
        """Return the larger of the parts' certificates: the coin is public and does not depend on the reading."""
        r = self.rounding
        p = self.piecewise
        return (p.a, p.b) if p.a * r.b >= r.a * p.b else (r.a, r.b)

    def permits(self, cap: tuple[int, int]) -> bool:
        """Return True if both parts' certificates are at most the rational cap (p, q)."""
        return self.rounding.permits(cap) and self.piecewise.permits(cap)

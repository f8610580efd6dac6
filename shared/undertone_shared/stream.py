"""Streams, in which all reports of a window share one budget: correlated noise (CGM) and its one-bit form, in integers.

Bao, Yang, Xiao, Ding, PVLDB 2021, with a constant share r = R/A of the noise kept, A = 2^shift, and a stationary start.
Readings become grid points n in [-G/2, G/2]; |n_i - n_{i-1}| <= c against the previous *clipped* point. The device
draws y_i by one of two kinds of noise, and releases X_i, with ξ_i = A n_i - R n_{i-1}:

    gaussian   y_i = ξ_i + e_i, e_i discrete Gaussian of variance s
    one-bit    y_i = +b with probability 1/2 + ξ_i/(2b), else -b
    X_i = round((y_i + R X_{i-1}) / A), within ±(2^31 - 1)

where only y_i depends on the reading: X_{i-1} is already public. A chain starts with X_1 = n_1 + e_1, Var e_1 = s_1, or
X_1 = ±b_1. `StreamRule.rho` bounds all reports of a window; the proof is in docs/cgm-proof.md.
"""

from undertone_shared.checks import SMALL, check_integer, check_object
from undertone_shared.errors import Invalid
from undertone_shared.gaussian import LARGEST_VARIANCE, discrete_gaussian
from undertone_shared.points import clip, shrink
from undertone_shared.report import LARGEST_DIMENSION, LARGEST_RELEASE, STREAM
from undertone_shared.scalar import truncate

try:
    from undertone_shared.off_board.rule_analysis import StreamAnalysis
except ImportError:  # MicroPython boards do not have the package off_board.
    StreamAnalysis = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_shared.entropy import Entropy
    from undertone_shared.mechanism import WindowMechanism
    from undertone_shared.schedule import Schedule

    Point = tuple[int, ...]

GAUSSIAN = "gaussian"
ONE_BIT = "one-bit"
LAWS = (GAUSSIAN, ONE_BIT)
# ρ is counted in multiples of 2^-20, rounded up.
RHO_UNIT = 1 << 20
LARGEST_RHO = (1 << 32) - 1
# A discrete Gaussian of variance s is, up to e^(-8π²), post-processing of a continuous one of variance s - 4.
ROUNDING_VARIANCE = 4
_LEAST_VARIANCE = 16

_FIELDS = ("kind law low theta levels slew shift reuse noise dimension lag reports chains restart renewal").split()


class StreamRule(StreamAnalysis):
    """The stream of one campaign, validated.

    ``law``: kind of noise. ``low``, ``theta``: truncation of a reading. ``levels``: G, even. ``slew``: c, 2c < G (or 1
    if G = 2); up to G if ``reuse`` is 0, which means independent noise. ``noise``: (s_1, s) or (b_1, b). ``dimension``:
    coordinates of a reading; its points stay in the ball of diameter G. ``lag``: number of interleaved chains.
    ``reports``, ``chains``: the largest numbers l of reports and m of chains in a window. ``restart``: a chain ends
    after this many missed reports (0: never). ``renewal``: slots of a window; each window has its own budget and chains
    (0: the whole campaign is one window). Raises Invalid.
    """

    kind = "stream"
    fields = _FIELDS
    # A stream has no cohort, because a report for the threshold would need a budget of its own.
    cohort = None
    report = None
    mechanisms: "tuple[tuple[str, WindowMechanism], ...]" = ()

    def __init__(self, fields: "dict[str, Any]"):
        self.law = fields["law"]
        if self.law not in LAWS:
            raise Invalid("rule.law is %r, expected one of %s" % (self.law, ", ".join(LAWS)))
        self.low = check_integer("rule.low", fields["low"], 0, SMALL - 1)
        self.theta = check_integer("rule.theta", fields["theta"], self.low + 1, SMALL - 1)
        self.ranges = ((0, self.low, self.theta),)
        self.levels = check_integer("rule.levels", fields["levels"], 2, 1 << 20)
        if self.levels % 2 or self.levels * self.width >= SMALL:
            raise Invalid(
                "rule.levels is %d, expected an even number whose product with theta - low is below 2^30" % self.levels
            )
        self.shift = check_integer("rule.shift", fields["shift"], 0, 12)
        self.reuse = check_integer("rule.reuse", fields["reuse"], 0, (1 << self.shift) - 1)
        largest = self.levels // 2 - 1 if self.reuse else self.levels
        self.slew = check_integer("rule.slew", fields["slew"], 1, max(largest, 1))
        self.dimension = check_integer("rule.dimension", fields["dimension"], 1, LARGEST_DIMENSION)
        self.reports = check_integer("rule.reports", fields["reports"], 1, 0xFFFF)
        self.lag = check_integer("rule.lag", fields["lag"], 1, 1024)
        self.chains = check_integer("rule.chains", fields["chains"], self.lag, 0xFFFF)
        self.restart = check_integer("rule.restart", fields["restart"], 0, 0xFFFF)
        self.renewal = check_integer("rule.renewal", fields["renewal"], 0, 1 << 24)
        noise = fields["noise"]
        if not isinstance(noise, list) or len(noise) != 2:
            raise Invalid(
                "rule.noise is %r, expected two integers: the noise of the first report and of the others" % (noise,)
            )
        self.noise = (noise[0], noise[1])
        if self.law == GAUSSIAN:
            self._check_variances()
        else:
            self._check_steps()

    def _check_variances(self) -> None:
        first, later = self.noise
        check_integer("rule.noise[1]", later, _LEAST_VARIANCE, LARGEST_VARIANCE)
        least = max(least_first_variance(later, self.shift, self.reuse), _LEAST_VARIANCE)
        check_integer("rule.noise[0]", first, least, LARGEST_VARIANCE)

    def _check_steps(self) -> None:
        if self.dimension != 1:
            raise Invalid("rule.dimension is %d, expected 1 for one-bit" % self.dimension)
        first, later = self.noise
        check_integer("rule.noise[1]", later, self.swing // 2 + 1, SMALL // 2)
        check_integer("rule.noise[0]", first, self.levels // 2 + 1, SMALL // 2)
        if not first_step_suffices(first, later, self.levels, self.slew, self.shift, self.reuse):
            raise Invalid("rule.noise[0] is %d, too small for noise[1] = %d" % self.noise)

    @property
    def width(self) -> int:
        """theta - low: the range of readings that the grid covers."""
        return self.theta - self.low

    @property
    def swing(self) -> int:
        """The width of the range of ξ after a chain's start: G(A - R) + 2cR (letters: the module's docstring)."""
        return swing(self.levels, self.slew, self.shift, self.reuse)

    # Methods that compute the privacy cost.

    def rho(self) -> tuple[int, int]:
        """Return ρ of one window (zCDP) as (numerator, denominator); for Gaussian noise it is also μ²/2 of μ-GDP.

        It is `squared_bound` over twice a variance: s - 4 for Gaussian noise, `step_variance` for one-bit noise.
        """
        top = squared_bound(self.reports, self.chains, self.levels, self.slew, self.shift, self.reuse)
        if self.law == GAUSSIAN:
            return top, 2 * (self.noise[1] - ROUNDING_VARIANCE)
        num, den = step_variance(self.noise[1], self.swing)
        return top * den, 2 * num

    def report_charge(self) -> int:
        """Return ρ of the most expensive single report, given all earlier ones, in multiples of 2^-20, rounded up."""
        most = 0
        for width, noise in ((self.levels, self.noise[0]), (self.swing, self.noise[1])):
            num, den = (noise - ROUNDING_VARIANCE, 1) if self.law == GAUSSIAN else step_variance(noise, width)
            most = max(most, _units(width * width * den, 2 * num))
        return most

    def charge(self) -> int:
        """Return ρ of one window in multiples of 2^-20, rounded up."""
        num, den = self.rho()
        return _units(num, den)

    def windows(self, period_seconds: int, slot_seconds: int, epoch: int) -> int:
        """Return the largest number of windows that overlap one period of the policy; the first starts at ``epoch``.

        A period starts at a multiple of ``period_seconds`` since 1970.
        """
        length = self.renewal * slot_seconds
        if not length:
            return 1
        if period_seconds % length == 0 and epoch % length == 0:
            return period_seconds // length
        return (period_seconds + length - 1) // length + 1

    def windows_of(self, slots: int) -> int:
        """Return the number of windows in a campaign of ``slots`` slots."""
        return -(-slots // self.renewal) if self.renewal else 1

    # Methods that draw reports.

    def point(self, reading: "Point", offset: int, entropy: "Entropy") -> "Point":
        """Return the grid point of a reading.

        A coordinate truncated to x in [0, width] becomes floor(xG/width) + Bernoulli((xG mod width)/width) - G/2, with
        one word of ``entropy``. Then the point is shrunk into the ball of diameter G.
        """
        levels = self.levels
        width = self.width
        point = []
        for coordinate in reading:
            scaled = truncate(coordinate, offset, self.low, self.theta) * levels
            level = scaled // width
            point.append(level + (entropy.below(width) < scaled - level * width) - levels // 2)
        return shrink(tuple(point), levels // 2)

    def clip(self, point: "Point", previous: "Point") -> "Point":
        """Return the point moved to within ``slew`` of the previous *clipped* point, within the ball."""
        return clip(point, previous, self.slew, self.levels // 2)

    def draw_noise(self, first: bool, entropy: "Entropy") -> "Point":
        """Draw the noise e of every coordinate of a chain's first or later report; refills the buffer as needed."""
        variance = self.noise[0] if first else self.noise[1]
        return tuple([discrete_gaussian(variance, entropy) for _ in range(self.dimension)])

    def first(self, point: "Point", noise: "Point", entropy: "Entropy") -> "Point":
        """Return X_1, a chain's first point. ``noise``: Gaussian noise; one-bit noise uses one word of ``entropy``."""
        if self.law == ONE_BIT:
            step = self.noise[0]
            return (step if entropy.below(2 * step) < step + point[0] else -step,)
        return tuple([_bounded(point[i] + noise[i]) for i in range(len(point))])

    def later(
        self, point: "Point", previous: "Point", released: "Point", noise: "Point", entropy: "Entropy"
    ) -> "Point":
        """Return X_i from the clipped points n_i, n_{i-1} and X_{i-1}.

        ``noise``: the drawn Gaussian noise; one-bit noise uses one word of ``entropy`` instead.
        """
        if self.law == ONE_BIT:
            step = self.noise[1]
            xi = (point[0] << self.shift) - self.reuse * previous[0]
            drawn: tuple[int, ...] = (step if entropy.below(2 * step) < step + xi else -step,)
        else:
            drawn = tuple([(point[i] << self.shift) - self.reuse * previous[i] + noise[i] for i in range(len(point))])
        return tuple([self.publish(drawn[i], released[i]) for i in range(len(drawn))])

    def publish(self, drawn: int, released: int) -> int:
        """Return X_i = round((y_i + R X_{i-1})/A), half up and within ±(2^31 - 1): a public function of the draw and
        the last release.

        In the letters of the module's docstring, rounding shifts a chain's X by at most 1/(2(1 - r)) grid points.
        """
        total = 2 * (drawn + self.reuse * released) + (1 << self.shift)
        return _bounded(total >> (self.shift + 1))

    def draw(
        self, scale: "Any", slot: int, reading: "Any", member: bool, state: "Any", entropy: "Entropy"
    ) -> "tuple[int, Point, int]":
        """Make (kind, values, chain index) of a report; ``state``: the chains so far. Raises EntropyError."""
        point = reading if isinstance(reading, tuple) else (reading,) * self.dimension
        released, index = state.draw(scale, slot, point)
        return STREAM, released, index


def parse_rule(fields: "dict[str, Any]", bound: int, cycle: int, schedule: "Schedule") -> StreamRule:
    """Parse the rule of a campaign's fields. Raises Invalid."""
    if fields["cohort"] is not None:
        raise Invalid("cohort is %r, expected null in a stream campaign" % (fields["cohort"],))
    if schedule.stride != 1 or schedule.cohort_stride:
        raise Invalid(
            "stride and cohort_stride are %d and %d, expected 1 and 0 in a stream campaign"
            % (schedule.stride, schedule.cohort_stride)
        )
    rule = StreamRule(check_object("rule", fields["rule"], tuple(_FIELDS)))
    if rule.theta > bound:
        raise Invalid("rule.theta is %d, expected at most the bound %d" % (rule.theta, bound))
    return rule


def _units(num: int, den: int) -> int:
    return -(-num * RHO_UNIT // den)


def _bounded(value: int) -> int:
    return max(-LARGEST_RELEASE, min(LARGEST_RELEASE, value))


def swing(levels: int, slew: int, shift: int, reuse: int) -> int:
    """Return twice the largest |ξ| after a chain's start: G(A - R) + 2cR. It is V of the paper's Eq. 19 in grid units.

    G is ``levels``, A = 2^``shift``, R ``reuse`` and c ``slew``; the module's docstring defines ξ.
    """
    return levels * ((1 << shift) - reuse) + 2 * slew * reuse


def squared_bound(reports: int, chains: int, levels: int, slew: int, shift: int, reuse: int) -> int:
    """Return the bound of σ²S² for l ``reports`` in at most m ``chains``; S is the stream's sensitivity.

    It is m (2R(A-R)G² - 4c²RA) + l ((A-R)²G² + 4c²RA), with m = 1 if the first bracket is not positive. σ² is the
    variance of later noise that `StreamRule.rho` divides by, G is ``levels``, A = 2^``shift``, R ``reuse`` and c
    ``slew``. docs/cgm-proof.md defines S and proves the bound.
    """
    gap = (1 << shift) - reuse
    moved = 4 * slew * slew * reuse << shift
    start = 2 * reuse * gap * levels * levels - moved
    return reports * (gap * gap * levels * levels + moved) + (chains if start > 0 else 1) * start


def least_first_variance(later: int, shift: int, reuse: int) -> int:
    """Return the least variance of a chain's first noise with which the noise is stationary, or slightly more.

    It is ceil((s - 4)/(A² - R²)) + 4, with s the variance ``later`` of later noise, A = 2^``shift`` and R ``reuse``.
    """
    return -(-(later - ROUNDING_VARIANCE) // ((1 << 2 * shift) - reuse * reuse)) + ROUNDING_VARIANCE


def step_variance(step: int, swing: int) -> tuple[int, int]:
    """Return the variance that makes ρ <= (ξ - ξ')²/(2 variance) true of one-bit noise, as a pair (p, q).

    It is b²(1 - τ²)² with τ = W/(2b), where b is ``step`` and W is ``swing``, the width of the range of ξ.
    """
    gap = 4 * step * step - swing * swing
    return gap * gap, 16 * step * step


def first_step_suffices(first: int, later: int, levels: int, slew: int, shift: int, reuse: int) -> bool:
    """Return True if the first report of a one-bit chain costs no more ρ than `squared_bound` allows for it.

    ``first`` and ``later`` are b of the first and of later reports.
    """
    num, den = step_variance(first, levels)
    num_later, den_later = step_variance(later, swing(levels, slew, shift, reuse))
    return num * den_later * ((1 << 2 * shift) - reuse * reuse) >= num_later * den

"""Privacy against readers of published means only, provided that the reports stay with the server.

A published number is a function of a slot's histogram, and so of n reports without names and order: see `Blanket`. Days
and years are compositions of such releases. This guarantee does not replace the device's own, because the server still
has every report under its device's name.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.loss import Losses, Vector
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

DELTA = 1e-6
MOST_REPORTS = 10**8
LARGEST_RELEASES = 1 << 20
# Width of the counted range on each side, in standard deviations of a count. Counts outside count as infinite loss.
_WIDE = 9.0
# Resolution of the computation: cells of the counts A and B of `Blanket`, and points of ε, per standard deviation. FINE
# is for displayed numbers, COARSE for numbers computed while the server does other work.
FINE = 32
COARSE = 10
# The possible numbers T of blankets are grouped in buckets. The width of a bucket is this number times the mean of T,
# divided by the number of cells, and at least 1. Its lower end stands for the whole bucket, because fewer blankets hide
# less.
_BUCKET = 0.25
_LEAST_CHANCE = 1e-22
# Number of probabilities of pairs (A, B) that are computed at a time, which limits the memory.
_BLOCK = 1 << 21
# Beyond `_WIDE` standard deviations a count's probability decreases by at least this share at each step. The
# distribution is log-concave, so its tail is at most a geometric series.
_FALL = 1e-4


@dataclass(frozen=True)
class Blanket:
    """The privacy blanket of a mechanism: what n reports without names and order reveal about one of them.

    ``gamma`` is γ below; ``ratio`` is p, the certificate. With ω_y = min_k P(y | k) and γ = Σ_y ω_y, each report is,
    with probability γ, drawn from ω/γ whatever its reading (Balle, Bell, Gascón, Nissim, CRYPTO 2019). Such a report is
    called a blanket. Assume that the observer knows all other reports; then only T = 1 + Bin(n - 1, γ) blankets hide
    the report in question. G_k(y) = P(y | k)/ω_y lies in [1, p], and has mean 1/γ over the blanket; the loss is ln(Σ
    G_k / Σ G_k') over the T reports. A hockey-stick divergence is convex in the G. So it is largest if every G_k and
    G_k' is 1 or p, and no report has G_k = G_k' = p. With t = (1/γ - 1)/(p - 1),

        (A, B, R) | T ~ Multinomial(T; t, t, 1 - 2t),    loss = ln[(T + (p - 1) A) / (T + (p - 1) B)],

    where A reports have G_k = p, B reports have G_k' = p, and the other R reports have neither. The loss is taken under
    the reading k: its distribution P is this multinomial one times γ (T + (p - 1) A)/T. It dominates the loss of any
    mechanism with these p and γ; for stochastic rounding, piecewise and the Hybrid it is exact.

    Raises Invalid unless 0 < γ < 1 < p and t is at most 1/2: for a larger t no such pair of distributions is known.
    """

    gamma: Fraction
    ratio: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1 < self.ratio or self.extreme > Fraction(1, 2):
            raise Invalid(
                f"the mechanism's privacy blanket γ is {float(self.gamma):.6g}, expected at least"
                f" {float(2 / (self.ratio + 1)):.6g}, that of stochastic rounding with the certificate"
                f" {float(self.ratio):.6g}"
            )

    @property
    def extreme(self) -> Fraction:
        """The probability t that a report of the blanket is p times as likely under the one reading as under the
        other.
        """
        return (1 / self.gamma - 1) / (self.ratio - 1)

    @staticmethod
    def of(mechanism: Mechanism) -> "Blanket":
        """Compute the blanket exactly from the mechanism's weights. Raises Invalid."""
        rows = [mechanism.weights(level) for level in range(mechanism.levels + 1)]
        least = sum(min(column) for column in zip(*rows, strict=True))
        return Blanket(Fraction(least, mechanism.row_total()), Fraction(*mechanism.certificate()))


@dataclass(frozen=True)
class Published:
    """Guarantee (``epsilon``, ``delta``) for ``releases`` published means together.

    Each mean, and each difference of means, is over at least ``reports`` honest reports.
    """

    reports: int
    releases: int
    epsilon: float
    delta: float

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON object; epsilon is null if it is infinite."""
        epsilon = None if math.isinf(self.epsilon) else self.epsilon
        return {"epsilon": epsilon, "delta": self.delta, "reports": self.reports, "releases": self.releases}

    def sentence(self, span: str) -> str:
        """Return the guarantee as a sentence that includes the trust that it needs."""
        behind = f"each mean and each difference of means has {many(self.reports, 'honest report')} behind it"
        if math.isinf(self.epsilon):
            return (
                f"the published means alone give no guarantee with δ = {self.delta:g} about {span} of one household,"
                f" even if {behind}"
            )
        return (
            f"whoever sees only the published means learns at most (ε, δ) = ({self.epsilon:.3g}, {self.delta:g}) about"
            f" {span} of one household, provided that the server keeps the reports to itself, and that {behind}"
        )


def published(
    mechanism: Mechanism,
    reports: int,
    releases: int,
    *,
    delta: float = DELTA,
    fakes: float = 0.0,
    cells: int = FINE,
) -> Published:
    """Compute the guarantee of ``releases`` numbers, each of which includes one report of a household.

    ``reports``: how many reports each number is made of. ``fakes``: the share of reports that may be false and hide
    nobody. ``cells``: `FINE`, or `COARSE`, which gives a slightly larger ε in less time. Raises Invalid.
    """
    check_integer("reports", reports, 1, MOST_REPORTS)
    check_integer("slots", releases, 1, LARGEST_RELEASES)
    if not 0 < delta < 1:
        raise Invalid(f"delta is {delta!r}, expected a number above 0 and below 1")
    if not 0 <= fakes < 1:
        raise Invalid(f"fakes is {fakes!r}, expected a share from 0 to below 1")
    honest = max(math.floor(reports * (1 - fakes) + 1e-9), 1)
    losses = slot_losses(Blanket.of(mechanism), honest, cells)
    return Published(honest, releases, losses.composed(releases).epsilon(delta), delta)


def about(mechanism: Mechanism, reports: int, releases: int) -> Published:
    """Compute ``published`` with coarse cells and a rounded number of reports.

    The number is rounded down, so that few different cases occur and most results come from the cache of `slot_losses`.
    """
    size = 10 ** (len(str(reports)) - 1)
    rounded = max(step * size // 10 for step in (10, 15, 20, 30, 50, 70) if step * size // 10 <= reports)
    return published(mechanism, max(rounded, 1), releases, cells=COARSE)


@lru_cache(maxsize=64)
def slot_losses(blanket: Blanket, reports: int, cells: int = FINE) -> Losses:
    """Return the privacy losses of one slot's mean over ``reports`` reports; their δ is an upper bound at every ε."""
    gamma, extra, t = float(blanket.gamma), float(blanket.ratio - 1), float(blanket.extreme)
    mean = 1 + (reports - 1) * gamma
    top = math.log1p(extra)
    spread = min(extra * math.sqrt(2 * t / mean), top)
    step = spread / cells
    reach = min(math.ceil(min(1.2 * _WIDE * spread + step, top) / step) + 1, 4000)
    grid: Vector = np.asarray(np.arange(-reach, reach + 1) * step, dtype=np.float64)
    deltas, lost = np.zeros(len(grid)), 0.0
    for blankets, chance in _blanket_counts(reports, gamma, _BUCKET / cells):
        if blankets == 0:
            lost += chance
            continue
        of_these, beyond = _deltas(blankets, extra, t, grid, cells)
        deltas += chance * of_these
        lost += chance * beyond
    return Losses.joined(step, -reach, np.minimum(deltas + lost, 1.0))


def _blanket_counts(reports: int, gamma: float, bucket: float) -> list[tuple[int, float]]:
    """Return (lower end, probability) of each bucket of the number T = 1 + Bin(reports - 1, γ) of blankets.

    The first bucket, with the lower end 0, stands for all smaller numbers, which are very improbable.
    """
    n = reports - 1
    low, high = _span(n, gamma)
    k = np.arange(low, high + 1)
    logs = _factorials(low, high) + _factorials(n - high, n - low)[::-1] + k * math.log(gamma / (1 - gamma))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    starts = np.arange(0, len(k), max(int(bucket * (n * gamma + 1)), 1))
    chances = np.add.reduceat(mass, starts)
    below = float(mass[0]) / _FALL if low > 0 else 0.0
    return [(0, below), *((int(k[i]) + 1, float(c)) for i, c in zip(starts, chances, strict=True))]


def _span(n: int, chance: float) -> tuple[int, int]:
    """Return the least and the largest binomial count of n trials that is within `_WIDE` standard deviations, plus
    `_WIDE`, of its mean.
    """
    wide = _WIDE * math.sqrt(n * chance * (1 - chance)) + _WIDE
    return max(math.floor(n * chance - wide), 0), min(math.ceil(n * chance + wide), n)


def _factorials(low: int, high: int) -> Vector:
    """Return -ln(k!/low!) for k = low..high as sums of logarithms, which are more precise than large factorials."""
    return np.concatenate([[0.0], -np.cumsum(np.log(np.arange(low + 1, high + 1)))])


def _deltas(blankets: int, extra: float, t: float, grid: Vector, cells: int) -> tuple[Vector, float]:
    """Return an upper bound of δ at every ε of ``grid`` for ``blankets`` blankets, and the probability left out.

    P and Q are the distributions of the counts A and B (`Blanket`) under the two readings to be distinguished.
    Counts are grouped in cells. A cell whose losses all exceed ε adds P - e^ε Q, exactly; a cell whose losses lie on
    both sides of ε adds at most P (1 - e^{ε - its largest loss}).
    """
    low, high = _span(blankets, t)
    width = max(int(math.sqrt(blankets * t * (1 - t)) / cells), 1)
    starts = np.arange(low, high + 1, width)
    ends = np.append(starts[1:], high + 1) - 1
    base, moment_a, moment_b = _cells(blankets, t, low, high, width)
    edge = (base[0].sum() + base[:, 0].sum() if low > 0 else 0.0) + (
        base[-1].sum() + base[:, -1].sum() if high < blankets else 0.0
    )
    # In the letters of `Blanket`: γ E[pA + B + R]/T = 1. So P is the multinomial probability times (T + (p-1) A)/T,
    # divided by the mean of that factor, which is 1 + (p-1) t.
    scale = blankets * (1 + extra * t)
    p = (blankets * base + extra * moment_a) / scale
    q = (blankets * base + extra * moment_b) / scale
    upper = np.log((blankets + extra * ends)[:, None] / (blankets + extra * starts)[None, :])
    lower = np.log((blankets + extra * starts)[:, None] / (blankets + extra * ends)[None, :])
    used = p > _LEAST_CHANCE
    left_out = (1 + extra) * (edge / _FALL + float(p[~used].sum()))
    p, q, upper, lower = p[used], q[used], upper[used], lower[used]
    size = len(grid)
    # For each cell two indices of the grid: ``divided``, the first ε that is at least the cell's least loss, and
    # ``above``, the first ε that is at least its largest loss.
    divided = np.searchsorted(grid, lower)
    above = np.searchsorted(grid, upper)
    sums_p = _from_above(np.bincount(divided, p, size + 1))
    sums_q = _from_above(np.bincount(divided, q, size + 1))
    deltas = sums_p - np.exp(grid) * sums_q
    for offset in range(int((above - divided).max(initial=0))):
        index = divided + offset
        cut = index < above
        at = index[cut]
        deltas += np.bincount(at, p[cut] * -np.expm1(grid[at] - upper[cut]), size)
    return np.maximum(deltas, 0.0), left_out


def _from_above(counts: NDArray[Any]) -> Vector:
    """Sum ``counts`` over the cells whose losses all lie above grid[i]; counts [size + 1] → [size]."""
    return np.asarray(np.cumsum(counts[::-1])[::-1][1:])


def _cells(blankets: int, t: float, low: int, high: int, width: int) -> tuple[Vector, Vector, Vector]:
    """Return, for cells of the counts (A, B) given T ``blankets``: probability, Σ A · probability, Σ B · probability.

    `Blanket` defines A, B, R and T. Shape [cells, cells] each.
    """
    count = np.arange(low, high + 1)
    single = _factorials(low, high) + count * math.log(t)
    # The multinomial probability of (A, B) is a product of three factors: one depends on A, one on B, and one on the
    # number R = T - A - B of blankets that are in neither count. The logarithm of the third one is
    # ``by_sum[A + B - 2 low]``. If t = 1/2, every blanket is counted in A or B, so the probability is 0 unless R = 0.
    fewest, most = max(blankets - 2 * high, 0), max(blankets - 2 * low, 0)
    others = _factorials(fewest, most)
    left = np.arange(fewest, most + 1)
    rest = 1 - 2 * t
    others = others + left * math.log(rest) if rest > 0 else np.where(left == 0, 0.0, -np.inf)
    by_sum = np.full(2 * len(count) - 1, -np.inf)
    by_sum[: len(others)] = others[::-1]
    middle = min(int(blankets * t) - low, len(count) - 1)
    single -= single[middle]
    by_sum -= by_sum[2 * middle] if np.isfinite(by_sum[2 * middle]) else by_sum.max()
    columns = np.arange(0, len(count), width)
    block = width * max(_BLOCK // len(count) // width, 1)
    rows = []
    for first in range(0, len(count), block):
        index = np.arange(first, min(first + block, len(count)))
        mass = np.exp(single[index, None] + single + by_sum[index[:, None] + np.arange(len(count))])
        of_rows = np.arange(0, len(index), width)
        for each in (mass, mass * count[index, None], mass * count):
            rows.append(np.add.reduceat(np.add.reduceat(each, of_rows, axis=0), columns, axis=1))
    base, moment_a, moment_b = (np.concatenate(rows[kind::3]) for kind in range(3))
    total = base.sum()
    return base / total, moment_a / total, moment_b / total

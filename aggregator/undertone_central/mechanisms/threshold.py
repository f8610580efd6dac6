"""Threshold of ToPS: the θ of 1..B with the largest noisy score. A score is minus the expected error with θ, on some
scale. The choice is ε-DP for the values read.

There are two objectives, both functions of the histogram of m values. Below, r is the longest range of a query
(``Workload.span``), b the fan-out and L the number of levels of the whole hierarchy. One value moves the score by at
most 1 at any θ, and in the same direction everywhere. In this monotone case, noise of scale 1/ε is enough.

- ``excess`` (default): the logarithm of the mean squared error of random range queries, Kθ²/ε² + (r²/6)(E[(v-θ)⁺])²,
  where K is that of the consistent hierarchy in use. With E_θ = Σ min((v-θ)⁺, κθ)/θ for the excess,
  A = m sqrt(6K)/(rε) and x = E_θ/A, score(θ) = -(A/κ) (2 ln θ + g(x)), where g(x) = ln(1 + x²) up to x = 1. For larger
  x the bias exceeds the noise, and its true size is unknown because of the cap κθ in E_θ; there g(x) = ln 2 + x - 1.
  One value moves E_θ by at most κ, and 0 <= g' <= 1. There is no constant to choose: values in other units give the
  same θ in those units.
  Above the largest value only the term 2 ln θ is left. There the probability that the noise makes a candidate the
  largest falls as θ^-(2Aε/κ), with the ε of the choice, whereas the error grows as θ². So κ = min(1, Aε/2): then the
  probability falls at least as fast as θ^-4. With κ = 1 and a small Aε, choices that are far
  too large would dominate the mean of the error. With a smaller κ, θ is too small where the tail is heavy.
- ``count`` (the paper's Eq. 6): score(θ) = -(3mθ/(crε)) sqrt(2(b-1)L³) - m_θ, where m_θ = #{v > θ}. It assumes a mean
  excess of c per truncated value. c is in the readings' own unit.

Scores are rounded down to a public grid. Noise on that grid is discrete Laplace, or geometric (one-sided, which is
permute-and-flip: McKenna and Sheldon, NeurIPS 2020; Ding et al., 2021). Of equal noisy scores, the smaller θ is taken.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_central.mechanisms.hierarchy import levels_for
from undertone_central.mechanisms.variance import average_variance
from undertone_central.noise.entropy import Bytes
from undertone_central.noise.laplace import Integers, discrete_laplace

Real = NDArray[np.float64]

OBJECTIVES = ("excess", "count")
NOISES = ("laplace", "exponential")
# The paper's constant c of the objective ``count``, for streams of item counts.
PAPER_C = Fraction(60)
GRID = 1 << 10
CANDIDATES = 1 << 16
# The least Aε/κ. The probability of a θ above all values then falls at least as fast as θ^(-2 LEAST_POWER).
LEAST_POWER = 2.0


@dataclass(frozen=True)
class Workload:
    """The queries for which θ is chosen: sums over ranges of up to ``span`` values.

    They are answered from a hierarchy of the given ``fanout``, whose ``levels`` levels are released at ``epsilon``.
    """

    span: int
    fanout: int
    levels: int
    epsilon: Fraction

    @property
    def root_k(self) -> float:
        """The square root of K, see the module.

        K is 2 levels² times the mean variance of a random range's sum after consistency, in units of a node's noise
        variance.
        """
        return self.levels * sqrt(2 * average_variance(self.fanout, self.levels, consistent=True))


def candidates(bound: int, objective: str) -> Integers:
    """Return the candidates for θ: the paper's 1..B, or at most 2^16 of them, equally spaced.

    For the objective ``excess`` each candidate exceeds the one before by 1 or by 10 %, whichever is larger. The error
    is nearly constant within such a step, and the maximum of fewer noisy scores is more accurate.
    """
    if objective == "count":
        step = -(-bound // CANDIDATES)
        return np.arange(bound, 0, -step, dtype=np.int64)[::-1].copy()
    thetas = [1]
    while thetas[-1] < bound:
        thetas.append(min(thetas[-1] + max(thetas[-1] // 10, 1), bound))
    return np.array(thetas, dtype=np.int64)


def counts_above(histogram: Integers, thetas: Integers) -> Integers:
    """Return m_θ = #{v > θ}; ``histogram`` [B + 1] counts the values 0..B."""
    return np.asarray(histogram.sum() - np.cumsum(histogram)[thetas])


def capped_excess(histogram: Integers, thetas: Integers, cap: float) -> Real:
    """Return E_θ = Σ min((v - θ)⁺, κθ)/θ, where κ = ``cap`` in (0, 1].

    It is computed as the integral of m_t from θ to (1 + κ)θ, divided by θ, where m_t is the number of values above t.
    """
    above = histogram.sum() - np.cumsum(histogram)
    sums = np.concatenate([[0], np.cumsum(above)])
    ends = np.minimum(thetas * (1 + cap), len(above) - 1)
    last = ends.astype(np.int64)
    return np.asarray((sums[last] - sums[thetas] + (ends - last) * above[last]) / thetas)


def noise_and_cap(m: int, workload: Workload, epsilon: Fraction) -> tuple[float, float]:
    """Return A and κ of the objective ``excess`` for m values and a choice at ``epsilon`` (see the module)."""
    a = m * sqrt(6) * workload.root_k / (workload.span * float(workload.epsilon))
    return a, min(1.0, a * float(epsilon) / LEAST_POWER)


def scores(
    histogram: Integers,
    thetas: Integers,
    workload: Workload,
    epsilon: Fraction,
    objective: str = "excess",
    c: Fraction = PAPER_C,
) -> Real:
    """Return the objective's score of each θ, without noise; ``objective`` is one of `OBJECTIVES`.

    ``epsilon`` is that of the choice.
    """
    m = int(histogram.sum())
    if objective == "count":
        levels = levels_for(workload.fanout, workload.span)
        price = 3 * m * sqrt(2 * (workload.fanout - 1) * levels**3) / (float(c * workload.epsilon) * workload.span)
        return np.asarray(-price * thetas - counts_above(histogram, thetas), dtype=np.float64)
    a, cap = noise_and_cap(m, workload, epsilon)
    x = capped_excess(histogram, thetas, cap) / a
    small = np.minimum(x, 1.0)
    return np.asarray(-a / cap * (2 * np.log(thetas) + np.log1p(small * small) + (x - small)))


def on_grid(real: Real) -> Integers:
    """Round scores down to integer multiples of 2^-10; a real sensitivity of 1 becomes 2^10 + 1."""
    return np.floor(real * GRID).astype(np.int64)


def noisy_max(score: Integers, sensitivity: int, epsilon: Fraction, noise: str, source: Bytes) -> int:
    """Return the index of the largest noisy score.

    This is ε-DP if one value moves all scores in one direction, by at most ``sensitivity``. ``noise`` is one of
    `NOISES`.
    """
    law = discrete_laplace(sensitivity / epsilon)
    sample = law.sample if noise == "laplace" else law.sample_geometric
    return int(np.argmax(score + sample(source, len(score))))


def choose_threshold(
    histogram: Integers,
    workload: Workload,
    epsilon: Fraction,
    source: Bytes,
    *,
    objective: str = "excess",
    c: Fraction = PAPER_C,
    noise: str = "exponential",
) -> int:
    """Choose θ, ε-DP for each value in the histogram [B + 1]."""
    thetas = candidates(len(histogram) - 1, objective)
    grid = on_grid(scores(histogram, thetas, workload, epsilon, objective, c))
    # Rounding down, and floating point in the objective, may add one step of the grid to the sensitivity.
    return int(thetas[noisy_max(grid, GRID + 1, epsilon, noise, source)])

"""Integers of the scalar mechanisms for an epsilon: stochastic rounding, piecewise, hybrid, Square Wave.

All use the fraction a/b of `budget.best_fraction`, so their epsilon is proven. The worst-case variance of the first
three is at most 0.05 % above that of the continuous mechanism.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt

import numpy as np

from undertone_aggregator.design.budget import Budget, best_fraction
from undertone_aggregator.design.continuous import (
    best_window_share,
    hybrid_share,
    piecewise_variance,
    square_wave_half_width,
)
from undertone_shared.checks import SMALL, check_integer
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism

Epsilon = Fraction | float | str

LEVELS = 256
# Least number of cells between the window's first and last position. It is enough for `_TOLERANCE` at every epsilon,
# and makes a histogram that is small enough to be stored for every slot.
_SPAN = 1024
_TOLERANCE = 1.0005
# With this number of bins or more, the closed-form width of the Square Wave is close enough to the best whole number.
_MANY_BINS = 64


def most_levels(width: int, largest: int = LEVELS) -> int:
    """Return the largest K <= ``largest`` with width * K < 2^30, for readings truncated to [0, width].

    Raises Invalid.
    """
    check_integer("width", width, 1, SMALL - 1)
    check_integer("largest", largest, 1, SMALL - 1)
    return min(largest, (SMALL - 1) // width)


def worst_variance(mechanism: WindowMechanism | Hybrid) -> Fraction:
    """Return the largest exact variance over the levels, in the papers' units (readings in [-1, 1]).

    The variance of every mechanism here is a symmetric quadratic in the level, so it is largest at an end or in the
    middle.
    """
    return max(Fraction(*mechanism.variance(level, 2)) for level in {0, mechanism.levels // 2, mechanism.levels})


def stochastic_rounding(epsilon: Epsilon) -> WindowMechanism:
    """Return the mechanism with two cells, ±(a + b)/(a - b) (Duchi et al.).

    Raises Invalid for epsilon outside [0.05, 8].
    """
    a, b = best_fraction(epsilon)
    return WindowMechanism(a, b, 1, 1, 1)


def piecewise(epsilon: Epsilon, levels: int = LEVELS, first: int = 0) -> WindowMechanism:
    """Return the piecewise mechanism (Wang et al., ICDE 2019) with ``levels`` + 1 input levels.

    The window covers 1/(1 + e^{ε/2}) of the cells, rounded to whole cells, or rounded up if that is needed to stay
    within `_TOLERANCE` times the continuous worst-case variance. ``first``: number of the first symbol. Raises Invalid.
    """
    a, b = best_fraction(epsilon)
    stride = _stride(levels)
    exact = stride * levels / sqrt(a / b)
    target = _TOLERANCE * piecewise_variance(Budget.parse(epsilon).approximate[0], 1)
    nearest = WindowMechanism(a, b, max(round(exact), 1), stride, levels, None, first)
    if worst_variance(nearest) <= target:
        return nearest
    return WindowMechanism(a, b, ceil(exact), stride, levels, None, first)


def piecewise_optimal(epsilon: Epsilon, levels: int = LEVELS, first: int = 0) -> WindowMechanism:
    """Return the piecewise mechanism whose window, in whole cells, minimises the worst-case variance. Raises
    Invalid.
    """
    a, b = best_fraction(epsilon)
    stride = _stride(levels)
    share = best_window_share(Budget.parse(epsilon).approximate[0])
    guess = round(share / (1 - share) * stride * levels)
    candidates = [
        WindowMechanism(a, b, window, stride, levels, None, first) for window in range(max(guess - 2, 1), guess + 3)
    ]
    return min(candidates, key=worst_variance)


def hybrid(epsilon: Epsilon, levels: int = LEVELS) -> Hybrid:
    """Return the hybrid mechanism (Wang et al., ICDE 2019), whose piecewise part has probability floor(α 65536)/65536.

    A public coin chooses the part. Up to ε* = 0.609352 this probability is 0, and only stochastic rounding draws.
    Raises Invalid.
    """
    rounding = stochastic_rounding(epsilon)
    coin = int(hybrid_share(Budget.parse(epsilon).approximate[0]) * 65536)
    return Hybrid(coin, rounding, piecewise(epsilon, levels, rounding.symbols))


def square_wave(epsilon: Epsilon, edges: Sequence[int]) -> WindowMechanism:
    """Return the Square Wave (Li et al., SIGMOD 2020) on d = len(edges) - 1 bins, one level each; 2 to 256 bins.

    With 64 bins or more the half-width is floor(b d), where b is the continuous half-width. With fewer bins, the window
    is the one that minimises `worst_tail_variance`. Raises Invalid for an epsilon or edges out of range.
    """
    a, b = best_fraction(epsilon)
    bins = len(edges) - 1
    if not 2 <= bins <= 256:
        raise Invalid(f"there are {len(edges)} edges, expected 3 to 257")
    if bins >= _MANY_BINS:
        window = 2 * int(square_wave_half_width(Budget.parse(epsilon).approximate[0]) * bins) + 1
    else:
        window = _least_tail_variance(a, b, bins)
    return WindowMechanism(a, b, window, 1, bins - 1, tuple(edges))


@lru_cache(maxsize=64)
def _least_tail_variance(a: int, b: int, bins: int) -> int:
    """Return the window of least `worst_tail_variance`."""
    return min(range(1, 2 * bins), key=lambda window: worst_tail_variance(a, b, window, bins))


def worst_tail_variance(a: int, b: int, window: int, bins: int) -> float:
    """Return the largest Cramér-Rao variance, per report, of a tail excess Σ_i f_i (i - t)+, over t = 0..bins-2.

    f is the uniform distribution over the ``bins`` bins of a Square Wave with channel A. A linear function Lᵀf is
    estimated with a variance of at least Lᵀ(Aᵀ diag(1/(Af)) A)⁻¹L - (Lᵀf)². (A window of 1 is k-ary randomised
    response.)
    """
    cell, level = np.ogrid[: bins - 1 + window, :bins]
    weights = np.where((cell >= level) & (cell < level + window), float(a), float(b))
    channel = weights / weights.sum(axis=0)
    information = channel.T @ (channel / channel.mean(axis=1, keepdims=True))
    excess = np.maximum(np.arange(bins)[:, None] - np.arange(bins - 1), 0.0)
    variance = (excess * np.linalg.solve(information, excess)).sum(axis=0) - excess.mean(axis=0) ** 2
    return float(variance.max())


def _stride(levels: int) -> int:
    check_integer("levels", levels, 1, SMALL - 1)
    return -(-_SPAN // levels)

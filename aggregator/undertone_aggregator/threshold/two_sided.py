"""Truncation from below as well: readings far from zero, such as temperatures, are truncated to [bottom, θ].

A range of half the width has half the noise. Both ends are computed from the same private rounds, by the plainest
density that these rounds allow (`_plainest`). It describes the body of a distribution far from zero better than a model
of tails does. With up = E[(x - θ)⁺] and down = E[(bottom - x)⁺], the ends minimise ToPL's Eq. 8
(`threshold.objective`), with the width in place of θ and up + down as the bias. The sum is used because in a single
slot only one of the two may occur. If a bottom gains little, it is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from undertone_aggregator.threshold.bin_edges import quantile
from undertone_aggregator.threshold.channel import Channel, MatrixChannel, StackedChannel, Vector
from undertone_aggregator.threshold.counts import CohortCounts, common_grid
from undertone_aggregator.threshold.em import Fit, expectation_maximisation
from undertone_aggregator.threshold.excess import without_excess
from undertone_aggregator.threshold.newton import log_likelihood
from undertone_aggregator.threshold.objective import Integers, Query, Variance, mean_excess
from undertone_aggregator.threshold.remembered import remembered
from undertone_aggregator.threshold.result import Threshold

# A bottom is used only if the width is at most this share of θ.
WORTH = 0.8
# Least share of readings that the range of a later round leaves out at each end, before its margin is added. Noise
# alone puts about one per cent of a fitted distribution far from all readings.
_OUTSIDE = 0.03
# A share of readings is visible in the reports if it is at least this many of its standard errors.
_SEEN = 4.0
# A density contradicts the reports if its log-likelihood is lower than the largest by more than this. To leave out a
# share that is `_SEEN` standard errors large costs as much.
_CONTRADICTS = _SEEN**2 / 2.0
# The ranges that are tried for the density, from the narrowest to the widest: each leaves out one of these shares of
# the likeliest density at each end, and then gets a margin at each end, as a share of its width.
_OUTSIDES, _WIDE_MARGIN = (0.25, 0.15, 0.1, 0.05, 0.03), 1.5
# The normal parts that are tried for the density, as shares of its standard deviation, from the smoothest on.
_NORMAL = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
# Margin that is added at each end of the range, as a share of its width.
_MARGIN = 0.5
# A round zooms to a range only if the range's low end is at least this share of its high end, and if the low end stays
# above zero when the margin is added.
_FAR = 1 / 3
_ENDS = 200


def two_sided_range(rounds: Sequence[CohortCounts], bound: int) -> tuple[int, int] | None:
    """Return the range that contains nearly all readings, with a margin, if it is far from zero; else None."""
    density, grid = _density(rounds, bound)
    return far_range(density, grid, bound, min(max(_visible(rounds), _OUTSIDE), 0.25))


def far_range(
    density: Vector, grid: Sequence[int], bound: int, outside: float = _OUTSIDE, margin: float = _MARGIN
) -> tuple[int, int] | None:
    """Return the range that leaves out the share ``outside`` of readings at each end, with a ``margin`` at each end.

    The margin is a share of the range's width. Return None if the range is not far from zero. ``density`` [d] over
    ``grid`` [d + 1].
    """
    low, high = quantile(density, grid, outside), quantile(density, grid, 1 - outside)
    more = max(int(margin * (high - low)), 1)
    if low < max(_FAR * high, more + 1):
        return None
    return low - more, min(high + more, bound)


def with_bottom(
    chosen: Threshold, rounds: Sequence[CohortCounts], bound: int, query: Query, variance: Variance
) -> Threshold:
    """Return the choice with a bottom if readings are far from zero, and the new range is at most `WORTH` of θ wide.

    Otherwise return the choice unchanged.
    """
    span = two_sided_range(rounds, bound)
    if span is None:
        return chosen
    density, grid = _plainest(rounds, bound)
    return best_range(chosen, density, grid, bound, query, variance)


def best_range(
    chosen: Threshold, density: Vector, grid: Sequence[int], bound: int, query: Query, variance: Variance
) -> Threshold:
    """Return the choice with both ends that are best for a density of readings.

    Return the choice itself if they gain little; see `with_bottom`. ``density`` [d] over ``grid`` [d + 1].
    """
    ends = _candidates(density, grid, bound)
    above = mean_excess(density, grid, ends)
    mean = float(mean_excess(density, grid, np.zeros(1, dtype=np.int64))[0])
    down = above - mean + ends
    width = ends[None, :] - ends[:, None]
    bias = above[None, :] + np.maximum(down, 0.0)[:, None]
    noise = np.where(width > 0, variance(max(int(ends[-2] - ends[1]), 1)) * np.square(width / 2.0), np.inf)
    errors = query.reports * noise + query.squared * np.square(bias)
    bottom, top = np.unravel_index(int(np.argmin(errors)), errors.shape)
    low, theta = int(ends[bottom]), int(ends[top])
    if low <= 0 or theta - low > WORTH * chosen.theta:
        return chosen
    near = errors <= 1.1 * errors.min()
    tops = ends[near.any(axis=0)]
    return replace(
        chosen,
        theta=theta,
        bottom=low,
        low=int(tops.min()),
        high=int(tops.max()),
        bias=float(above[top] - down[bottom]),
        bias_se=float(bias[bottom, top]),
        expected_mse=float(errors[bottom, top]),
        density=density,
        edges=grid,
    )


def _visible(rounds: Sequence[CohortCounts]) -> float:
    """Return the least visible share of readings.

    It is `_SEEN` times the standard error of a share that every device reports by randomised response.
    """
    information = sum(counts.total * 4 * math.sinh(counts.epsilon / 2) ** 2 for counts in rounds)
    return _SEEN / math.sqrt(max(information, 1.0))


def _plainest(rounds: Sequence[CohortCounts], bound: int) -> tuple[Vector, tuple[int, ...]]:
    """Return the plainest density that the reports do not contradict, and its grid.

    The likeliest density follows noise in two ways: it puts some mass far from all readings, which would move the mean
    excess by much, and it gathers in a few cells. So the plainest density has no mass outside of the narrowest range
    that the reports allow. Within it, it is as near to a normal distribution of the same mean and variance as they
    allow.
    """
    density, grid = _density(rounds, bound)
    channel, together = _together(rounds, grid)
    edges = np.asarray(grid)
    best = log_likelihood(channel, together, density)
    for outside in _OUTSIDES:
        span = far_range(density, grid, bound, outside, _WIDE_MARGIN)
        if span is None:
            continue
        inside = np.flatnonzero((edges[1:] > span[0]) & (edges[:-1] <= span[1]))
        fit = _likeliest(MatrixChannel(channel.columns(inside)), together)
        if best - fit.log_likelihood <= _CONTRADICTS:
            density, best = np.zeros(len(density)), fit.log_likelihood
            density[inside] = fit.density
            break
    for normal in _NORMAL:
        smooth = _smoothed(density, edges, normal)
        if best - log_likelihood(channel, together, smooth) <= _CONTRADICTS:
            return smooth, grid
    return density, grid


def _smoothed(density: Vector, edges: Integers, normal: float) -> Vector:
    """Return the density of m + √(1 - normal²) (x - m) + normal σ Z, for x with ``density``, mean m and variance σ².

    Z has a standard normal distribution. Half a unit is the least standard deviation that is added.
    """
    # Readers of a store import this module but never call this function, and scipy takes long to import.
    from scipy.special import ndtr

    middles = (edges[:-1] + edges[1:] - 1.0) / 2.0
    mean = float(density @ middles)
    deviation = math.sqrt(float(density @ np.square(middles - mean)))
    centres = mean + math.sqrt(1.0 - normal**2) * (middles - mean)
    held = density > 0.0
    below = ndtr((edges - 0.5 - centres[held, None]) / max(normal * deviation, 0.5))
    below[:, 0], below[:, -1] = 0.0, 1.0
    return np.asarray(density[held] @ np.diff(below, axis=1))


@remembered
def _density(rounds: Sequence[CohortCounts], bound: int) -> tuple[Vector, tuple[int, ...]]:
    grid = common_grid([without_excess(counts)[0] for counts in rounds if counts.total], bound)
    return _likeliest(*_together(rounds, grid)).density, grid


def _together(rounds: Sequence[CohortCounts], grid: tuple[int, ...]) -> tuple[StackedChannel, Vector]:
    """Return the channel of all rounds on a grid, and their counts, without more of a symbol than honest devices
    send.
    """
    honest = [without_excess(counts)[0] for counts in rounds if counts.total]
    channel = StackedChannel([counts.channel(grid) for counts in honest])
    return channel, np.concatenate([np.asarray(counts.counts, dtype=np.float64) for counts in honest])


def _likeliest(channel: Channel, counts: Vector) -> Fit:
    return expectation_maximisation(channel, counts, tolerance=1e-5, max_iterations=2000)


def _candidates(density: Vector, grid: Sequence[int], bound: int) -> Integers:
    """Return the candidate ends: between extreme quantiles of the readings, and both ends of the whole range."""
    low, high = quantile(density, grid, 1e-4), quantile(density, grid, 1 - 1e-4)
    inner = np.unique(np.rint(np.linspace(low, high, _ENDS)).astype(np.int64))
    return np.unique(np.concatenate([[0], inner, [bound]]))

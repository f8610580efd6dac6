"""Model of what truncation to [low, θ] removes: a slot's readings are those of the rounds, moved by an amount.

Readings far from zero, such as temperatures, change by an amount and not by a factor. The truncated mean around a slot
says by how much they moved; the prior of this amount is a Cauchy distribution whose scale is half of the range. If
nearly all readings are beyond one end, the truncated mean hardly says how far beyond it they are, and the model's error
is accordingly large. The readings of a slot are less far apart than those of the whole cycle, by the variance of the
slots' levels.

*Two explanations* of a level. The first: all readings have moved. The second: only the readings of a share of the
devices have moved, as when a third of the homes feed in around noon, and the others stayed. Under the second, readings
lie outside the range by more than the rounds saw, on average by e^a times as much. Readings of other days differ from
those of the rounds by such factors, too, so the probability of the second is w = 1 / (1 + e^(a²/2)). The bias is the
mean over both. If w is below `_LEAST_LIKELY`, the second explanation does not count.
"""

import math
from typing import NamedTuple

import numpy as np

from undertone_aggregator.estimate.removed import Removed, Reported, Slots, Vector
from undertone_aggregator.threshold import Threshold

# Assumed standard deviation of a slot's bias, besides the known errors, as a share of the sum of what both ends remove.
# It is needed because a slot's readings are spread differently from those of a whole cycle. `_WHOLE` is used if only
# the level of the whole cycle is known, so that the slot's readings may also lie elsewhere.
_NEAR_BY, _WHOLE = 0.5, 1.0
# The share of the bias that is kept if only the level of the whole cycle is known. The sum of what both ends remove is
# then the error of the bias, and also the standard deviation of a bias that may have either sign. So the mean of the
# posterior is half of the bias.
_KEPT = 0.5
# The level around a slot is a mean over 1/16, 1/8, 1/4 or 1/2 of a cycle before and after the slot. The shortest of
# these times is taken at which the median of its errors is at most 1/16 of the range.
_NEAR, _SHARP = (16, 8, 4, 2), 16.0
# Number of shifts of the readings that are tried; and the probability that a normal number is more than three standard
# deviations above its mean.
_MOVES = 2001
UNLIKELY = 0.00135
# Number of slots that are computed at a time, so that an array of [slots, shifts] has a few megabytes.
_AT_ONCE = 256
# Shares of the devices that may have moved while the others stayed; and n, where each share is tried with every n-th
# shift only.
_SHARES, _COARSE = (1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 8), 4
# An explanation with a smaller probability than this lies outside of an interval of 95 %, and does not count.
_LEAST_LIKELY = 0.05
# The variance of a slot's readings is at least this share of the variance over the cycle.
_LEAST_WITHIN = 0.1
_TINY = 1e-12


class Levels(NamedTuple):
    """Means of the truncated readings, minus the offset, around some slots, with their standard errors; arrays [slots].

    ``whole``: True if `near` took them over the whole cycle around each slot.
    """

    mean: Vector
    error: Vector
    whole: bool = False


class _Tables(NamedTuple):
    """For each shift, the means over the readings of: the truncated reading, what is removed, the sum of what both ends
    remove, and the square of this sum; [shifts].
    """

    levels: Vector
    removed: Vector
    outside: Vector
    square: Vector


class TwoSided:
    """What truncation to [low, θ] removes from each slot of an epoch. ``bound``: the largest reading.

    All readings are less the offset.
    """

    def __init__(self, threshold: Threshold, low: int, theta: int, bound: int, cycle: int) -> None:
        density = np.asarray(threshold.density, dtype=np.float64)
        edges = np.asarray(threshold.edges, dtype=np.float64)
        self._density, self._middles = density, (edges[:-1] + edges[1:] - 1.0) / 2.0
        self._low, self._theta = low, theta
        mean = float(self._middles @ density)
        self.cycle, self.width = cycle, theta - low
        self._moves = np.linspace(-mean, bound - mean, _MOVES)
        self._prior = np.log1p(np.square(2.0 * self._moves / self.width))
        self._of_cycle = self._tables(1.0)

    def _tables(self, narrowed: float) -> _Tables:
        """Return what each shift would remove from the cycle's readings, with their spread times ``narrowed``."""
        mean = float(self._middles @ self._density)
        moved = self._moves[:, None] + mean + narrowed * (self._middles - mean)
        above, below = np.maximum(moved - self._theta, 0.0), np.maximum(self._low - moved, 0.0)
        square = np.square(above) + np.square(below)
        parts = (np.clip(moved, self._low, self._theta), above - below, above + below, square)
        return _Tables(*(part @ self._density for part in parts))

    def _within(self, reported: Reported, levels: Levels) -> float:
        """Return the standard deviation of a slot's readings, as a share of that of the whole cycle's readings.

        The variance over the cycle is the mean of the slots' variances plus the variance of the slots' levels. The
        share is 1 if less than half of the cycle has reports.
        """
        cycles = of_cycle(reported, self.cycle)
        if cycles is None:
            return 1.0
        mean = float(self._middles @ self._density)
        whole = float(np.square(np.clip(self._middles, self._low, self._theta) - mean) @ self._density)
        between = float(np.mean(np.square(levels.mean - cycles.mean) - np.square(levels.error)))
        return float(np.sqrt(np.clip(1.0 - between / max(whole, _TINY), _LEAST_WITHIN, 1.0)))

    def removed(self, reported: Reported) -> Removed:
        """Return what is removed from the means of some slots."""
        levels = near(reported, self.cycle, self.width / _SHARP)
        tables = self._tables(self._within(reported, levels))
        every = self._explained(reported, levels, tables, 1)
        if levels.whole:
            return every._replace(bias=_KEPT * every.bias)
        still = int(np.abs(self._moves).argmin())
        moved = ([(1.0 - share) * of[still] + share * of[::_COARSE] for share in _SHARES] for of in tables)
        some = self._explained(reported, levels, _Tables(*map(np.concatenate, moved)), _COARSE)
        outside = max(float(self._of_cycle.outside[still]), _TINY)
        apart = math.log(max(float(np.mean(some.fit)) / _NEAR_BY, _TINY) / outside)
        w = 1.0 / (1.0 + math.exp(apart**2 / 2.0))
        if w < _LEAST_LIKELY:
            return every
        parts = [(1.0 - w) * one + w * other for one, other in zip(every, some, strict=True)]
        level = np.sqrt((1.0 - w) * np.square(every.level) + w * np.square(some.level))
        return Removed(*parts)._replace(explained=math.sqrt(w * (1.0 - w)) * (some.bias - every.bias), level=level)

    def _explained(self, reported: Reported, levels: Levels, tables: _Tables, coarse: int) -> Removed:
        """Return what is removed under one explanation. ``tables``: for every ``coarse``-th shift."""
        n = len(reported.slot)
        means, fit, doubts, own = np.empty((4, n))
        for first in range(0, n, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            chances = self._chances(tables.levels, levels.mean[part], levels.error[part], coarse)
            means[part] = chances @ tables.removed
            doubts[part] = np.sqrt((chances * np.square(tables.removed - means[part, None])).sum(axis=1))
            fit[part] = (_WHOLE if levels.whole else _NEAR_BY) * (chances @ tables.outside)
            own[part] = np.sqrt(chances @ tables.square / reported.devices[part])
        none = np.zeros(n)
        return Removed(means, fit, none, doubts, none, none, own)

    def moved(self, reported: Reported) -> Vector | None:
        """Return (shift of the readings since the rounds, lower limit, upper limit) of each slot, [slots, 3].

        All three are shares of the range. They follow from the level of the cycle around the slot. The limits are at
        three standard errors. Return None if less than half of the cycle has reports.
        """
        levels = of_cycle(reported, self.cycle)
        if levels is None:
            return None
        below = np.cumsum(self._chances(self._of_cycle.levels, levels.mean, levels.error), axis=1)
        places = [(below < at).sum(axis=1) for at in (0.5, UNLIKELY, 1.0 - UNLIKELY)]
        return np.asarray(self._moves[np.minimum(np.stack(places, axis=1), _MOVES - 1)] / self.width)

    def _chances(self, tried: Vector, mean: Vector, error: Vector, coarse: int = 1) -> Vector:
        """Return the posterior probabilities of the shifts, given the levels around slots; [slots, shifts].

        ``tried``: the level under each shift that is tried. These are every ``coarse``-th shift, once or for each of
        `_SHARES` in turn.
        """
        some = self._prior[::coarse]
        prior = np.tile(some, len(tried) // len(some))
        # The true shift may lie between two shifts of the grid. Half the grid's step is added to the error of the
        # level, so that such a shift keeps its probability.
        step = coarse * (self._moves[1] - self._moves[0]) / 2.0
        variance = np.square(error) + step**2
        away = np.square(tried - mean[:, None]) / (2.0 * variance[:, None]) + prior
        chances = np.exp(away.min(axis=1, keepdims=True) - away)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def of_cycle(reported: Reported, cycle: int) -> Levels | None:
    """Return the level of the cycle around each slot; None if less than half of the cycle has reports.

    The level is the mean of the cycle's phases, plus the average deviation of the slots within half a cycle from their
    phases' means.
    """
    slot, values = reported.slot, reported.mean
    phases, place = np.unique(slot % cycle, return_inverse=True)
    if 2 * len(phases) < cycle:
        return None
    means = np.bincount(place, values) / np.bincount(place)
    first, end = around(slot, cycle // 2)
    n = end - first
    away = _sums(values - means[place])
    variance = _sums(np.square(reported.error))
    return Levels(float(means.mean()) + (away[end] - away[first]) / n, np.sqrt(variance[end] - variance[first]) / n)


def near(reported: Reported, cycle: int, sharp: float) -> Levels:
    """Return the level around each slot: a mean over the shortest time of `_NEAR` that is long enough.

    A time is long enough if the median of the levels' errors is at most ``sharp``. If no time is, or only the longest,
    the level is a mean over the whole cycle, which hides the day's shape.
    """
    sums, variance = _sums(reported.mean), _sums(np.square(reported.error))
    for part in _NEAR:
        first, end = around(reported.slot, cycle // part)
        errors = np.sqrt(variance[end] - variance[first]) / (end - first)
        if float(np.median(errors)) <= sharp:
            break
    return Levels((sums[end] - sums[first]) / (end - first), errors, part == _NEAR[-1])


def around(slot: Slots, reach: int) -> tuple[Slots, Slots]:
    """Return for each of the ascending slots where in ``slot`` the slots within ``reach`` of it begin and end."""
    return np.searchsorted(slot, slot - reach), np.searchsorted(slot, slot + reach, side="right")


def _sums(values: Vector) -> Vector:
    return np.append(0.0, np.cumsum(values))

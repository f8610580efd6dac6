"""Model of what truncation to [low, θ] removes: a slot's readings are those of the rounds, moved by the same amount.

Readings far from zero, such as temperatures, change by an amount and not by a factor. The truncated mean around a slot
says by how much they moved; the prior is a Cauchy distribution whose scale is half of the range. Where nearly all
readings are at one end, the truncated mean hardly says how far beyond that end they are; the model's error is then
accordingly large.
"""

from typing import NamedTuple

import numpy as np

from undertone_aggregator.estimate.removed import Removed, Reported, Slots, Vector
from undertone_aggregator.threshold import Threshold

# Assumed standard deviation of a slot's bias, besides the known errors, as a share of the sum of what both ends remove:
# a slot's readings are not spread as those of a whole cycle are. `_WHOLE` holds where only the level of the whole cycle
# is known, so that the slot's readings may also lie elsewhere.
_NEAR_BY, _WHOLE = 0.5, 1.0
# The level around a slot is a mean over 1/16, 1/8, 1/4 or 1/2 of a cycle before and after the slot: the shortest time
# at which its error is at most 1/16 of the range.
_NEAR, _SHARP = (16, 8, 4, 2), 16.0
# Number of shifts of the readings that are tried; the probability that a normal number is above three of its standard
# deviations.
_MOVES = 2001
UNLIKELY = 0.00135
# Number of slots that are computed at a time, so that an array of [slots, shifts] has a few megabytes.
_AT_ONCE = 256


class Levels(NamedTuple):
    """Means of the truncated readings, less the offset, around some slots, with their standard errors; arrays [slots].

    ``whole``: they are means over the whole cycle around the slot.
    """

    mean: Vector
    error: Vector
    whole: bool = False


class TwoSided:
    """What truncation to [low, θ] removes from each slot of an epoch; ``bound``: the largest reading."""

    def __init__(self, threshold: Threshold, low: int, theta: int, bound: int, cycle: int) -> None:
        density = np.asarray(threshold.density, dtype=np.float64)
        edges = np.asarray(threshold.edges, dtype=np.float64)
        middles = (edges[:-1] + edges[1:] - 1.0) / 2.0
        mean = float(middles @ density)
        self.cycle, self.width = cycle, theta - low
        self._moves = np.linspace(-mean, bound - mean, _MOVES)
        moved = self._moves[:, None] + middles
        above, below = np.maximum(moved - theta, 0.0), np.maximum(low - moved, 0.0)
        self._levels = np.clip(moved, low, theta) @ density
        self._removed, self._outside = (above - below) @ density, (above + below) @ density
        self._square = (np.square(above) + np.square(below)) @ density
        self._prior = np.log1p(np.square(2.0 * self._moves / self.width))

    def removed(self, reported: Reported) -> Removed:
        """Return what is removed from the means of some slots."""
        n, levels = len(reported.slot), near(reported, self.cycle, self.width / _SHARP)
        means, fit, doubts, own = np.empty((4, n))
        for first in range(0, n, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            chances = self._chances(levels.mean[part], levels.error[part])
            means[part] = chances @ self._removed
            doubts[part] = np.sqrt((chances * np.square(self._removed - means[part, None])).sum(axis=1))
            fit[part] = (_WHOLE if levels.whole else _NEAR_BY) * (chances @ self._outside)
            own[part] = np.sqrt(chances @ self._square / reported.devices[part])
        none = np.zeros(n)
        return Removed(means, fit, none, doubts, none, none, own)

    def moved(self, reported: Reported) -> Vector | None:
        """Return (shift of the readings since the rounds, lower limit, upper limit) of each slot, [slots, 3].

        They are shares of the range, by the level of the cycle around the slot; the limits are at three standard
        errors. None if less than half of the cycle has reports.
        """
        levels = of_cycle(reported, self.cycle)
        if levels is None:
            return None
        below = np.cumsum(self._chances(levels.mean, levels.error), axis=1)
        places = [(below < at).sum(axis=1) for at in (0.5, UNLIKELY, 1.0 - UNLIKELY)]
        return np.asarray(self._moves[np.minimum(np.stack(places, axis=1), _MOVES - 1)] / self.width)

    def _chances(self, mean: Vector, error: Vector) -> Vector:
        """Return the posterior probabilities of the shifts, given the levels around slots; [slots, shifts]."""
        # The true shift may lie between two shifts of the grid. Half the grid's step is added to the error of the
        # level, so that such a shift keeps its probability.
        step = (self._moves[1] - self._moves[0]) / 2.0
        variance = np.square(error) + step**2
        away = np.square(self._levels - mean[:, None]) / (2.0 * variance[:, None]) + self._prior
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
    """Return the level around each slot: the mean over as few slots as give an error of ``sharp``.

    It is a mean over the whole cycle, which hides the day's shape, if fewer slots do not.
    """
    sums, variance = _sums(reported.mean), _sums(np.square(reported.error))
    for part in _NEAR:
        first, end = around(reported.slot, cycle // part)
        errors = np.sqrt(variance[end] - variance[first]) / (end - first)
        if float(np.median(errors)) <= sharp:
            break
    return Levels((sums[end] - sums[first]) / (end - first), errors, part == _NEAR[-1])


def around(slot: Slots, reach: int) -> tuple[Slots, Slots]:
    """Return for each of the ascending slots where in ``slot`` those within ``reach`` of it begin and end."""
    return np.searchsorted(slot, slot - reach), np.searchsorted(slot, slot + reach, side="right")


def _sums(values: Vector) -> Vector:
    return np.append(0.0, np.cumsum(values))

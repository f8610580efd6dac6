"""Model of the clipping bias: what a stream's truncation and slew limit remove from the mean, with its error.

A stream's reports do not show how readings are spread or how fast they change, because the noise is larger than both.
Only the mean of the clipped readings is known, so this model is mostly an assumption, and its error is as large as its
result. It lies halfway between two extremes. In the first, each device's reading changes so slowly that the slew limit
removes nothing. In the second, each device draws every reading anew from the distribution that has the largest entropy
for its mean: an exponential distribution, truncated to [0, bound].

In the second case the clipped readings are a Markov chain n' = min(max(x, n - c), n + c), and its stationary
distribution function F is known in closed form. With Q the distribution function of readings x,

    F(y) = F(y - c) + Q(y) (F(y + c) - F(y - c)),  hence  F(y + c) - F(y) = (F(y) - F(y - c)) (1 - Q(y)) / Q(y).

The factor 1/2 and the errors were chosen on four of the eight populations of ``undertone experiment load``. There
clipping removes .61 (edrp), .40 (dns), 1.02 (time-in-state) and 0 (temperature) of the second extreme. The other four
populations were kept for a check.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.removed import Removed
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]

# The bias is assumed to be this share of its value in the second extreme, in which each reading is drawn anew.
PART = 0.5
# Two standard errors, each as a share of the bias: that of the bias averaged over the day, and that of its change over
# the day. It changes, because clipping removes most at the times at which the mean of the readings rises.
_SHARED, _SHAPE = 1.0, 1.2
# Number of levels per step of the slew limit at which the distribution function is computed, and the least number of
# all levels.
_PER_STEP, _LEVELS = 4, 200
# Rates of the exponential distributions, as multiples of the inverse of the range; negative ones rise with x.
_RATES = np.concatenate([-np.geomspace(1e-3, 50.0, 40)[::-1], np.geomspace(1e-3, 400.0, 60)])
# Densities that rise by more than e^400 from 0 to the bound are left out, because the largest float is about e^709.
_STEEPEST = 400.0
_TINY = 1e-300


class ClippingBias:
    """What a stream rule's clipping removes from the mean, as a function of the mean of the clipped readings.

    ``bound``: the largest reading minus the offset.
    """

    def __init__(self, rule: StreamRule, bound: int) -> None:
        self._low, self._width = rule.low, rule.width
        slew = rule.slew / rule.levels if rule.reuse else 1.0
        top = max(bound - rule.low, rule.width) / rule.width
        rates = _RATES[_RATES * top >= -_STEEPEST]
        clipped = stationary_means(rates, slew, top)
        means = 1.0 / rates + top * np.exp(-rates * top) / np.expm1(-rates * top)
        order = np.argsort(clipped)
        self._clipped, self._removed = clipped[order], (means - clipped)[order]

    def at(self, levels: Vector) -> Removed:
        """Return what is removed in slots in which the clipped readings, minus the offset, have the means ``levels``
        [slots].
        """
        shares = (levels - self._low) / self._width
        bias = PART * self._width * np.interp(shares, self._clipped, self._removed)
        none = np.zeros(len(bias))
        return Removed(bias, _SHARED * np.abs(bias), none, none, _SHAPE * np.abs(bias), none, none)


def stationary_means(rates: Vector, slew: float, top: float) -> Vector:
    """Return the means [k] of clipped readings in [0, 1] if the readings are drawn anew in every slot.

    The readings have densities proportional to e^(-rate x) on [0, top], for ``rates`` [k] other than 0. A clipped
    reading differs from the one before by at most ``slew``.
    """
    levels = levels_of(slew)
    return means_of(np.expm1(-rates[:, None, None] * levels) / np.expm1(-rates * top)[:, None, None], slew)


def levels_of(slew: float) -> Vector:
    """Return the levels [starts, steps] at which `means_of` needs the distribution of readings; the range is 1."""
    per_step = max(_PER_STEP, int(np.ceil(_LEVELS * slew)))
    starts = slew * (np.arange(per_step) + 0.5) / per_step
    return np.asarray(starts[:, None] + slew * np.arange(int(np.ceil(1.0 / slew))))


def means_of(distribution: Vector, slew: float) -> Vector:
    """Return `stationary_means` for k distribution functions of readings [k, starts, steps], given at `levels_of`."""
    levels, count = levels_of(slew), len(distribution)
    per_step, inside = len(levels), levels < 1.0
    below = np.clip(distribution, _TINY, 1.0)
    odds = np.log(np.maximum(1.0 - below, _TINY)) - np.log(below)
    # Logarithms of F(y + c) - F(y) at all levels y of one start, relative to the first F.
    steps = np.concatenate([np.zeros((count, per_step, 1)), np.cumsum(np.where(inside, odds, 0.0), axis=2)], axis=2)
    used = np.concatenate([np.ones((per_step, 1), dtype=bool), inside], axis=1)
    steps = np.where(used, steps, -np.inf)
    parts = np.exp(steps - steps.max(axis=2, keepdims=True))
    stationary = np.cumsum(parts, axis=2)[:, :, :-1] / parts.sum(axis=2, keepdims=True)
    return np.asarray((np.where(inside, 1.0 - stationary, 0.0)).sum(axis=(1, 2)) * slew / per_step)

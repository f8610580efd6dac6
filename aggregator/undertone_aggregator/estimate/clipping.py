"""Model of the clipping bias: what a stream's truncation and slew limit remove from the mean, with its error.

A stream's reports do not show how readings are spread or how fast they change, because the noise is larger than both.
Only the mean of the clipped readings is known, so this model is mostly an assumption, and its error is as large as its
result. It lies halfway between two extremes. In the first, each device's reading changes so slowly that the slew limit
removes nothing. In the second, what each device measures is drawn anew every hour, or in every slot if slots are
shorter, from the distribution that has the largest entropy for its mean: an exponential distribution, truncated. A
reading over a longer slot is the sum of its hours, each of which is at most the bound divided by their number. So
readings of whole days vary less, and the slew limit removes less from them. But some homes have large readings for a
long time, whatever the length of a slot. So the model removes at least what the range alone removes from one draw of
the exponential distribution.

In the second case the clipped readings are a Markov chain n' = min(max(x, n - c), n + c), and its stationary
distribution function F is known in closed form. With Q the distribution function of readings x,

    F(y) = F(y - c) + Q(y) (F(y + c) - F(y - c)),  hence  F(y + c) - F(y) = (F(y) - F(y - c)) (1 - Q(y)) / Q(y).

The factor 1/2 was chosen on four half-hourly populations of ``undertone experiment load``. There clipping removes .61
(edrp), .40 (dns), 1.02 (time-in-state) and 0 (temperature) of the second extreme. The other four populations were kept
for a check. One of them (phones) needed a larger error of the shape, which is used for all.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.removed import Removed
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]

# The bias is assumed to be this share of its value in the second extreme, in which each reading is drawn anew.
PART = 0.5
# Two standard errors, each as a share of the bias: that of the bias averaged over the day, and that of its change over
# the day. The bias changes, because clipping removes most at the times at which the mean of the readings rises. The
# second error is the largest of the populations, that of phones.
_SHARED, _SHAPE = 1.0, 2.0
# The distribution function is computed at so many levels or more: the first number per step of the slew limit, the
# second in all.
_PER_STEP, _LEVELS = 4, 200
# Rates of the exponential distributions, as multiples of the inverse of the range. With a negative rate the density
# rises with x.
_RATES = np.concatenate([-np.geomspace(1e-3, 50.0, 40)[::-1], np.geomspace(1e-3, 400.0, 60)])
# Densities that rise by more than e^400 from 0 to the bound are left out, because the largest float is about e^709.
_STEEPEST = 400.0
_TINY = 1e-300
# Time after which what a device measures is drawn anew in the second extreme.
_ANEW_SECONDS = 3600
# A slot of more draws counts as a slot of this many draws, from which clipping removes less than .2 % of the range.
_MOST_DRAWS = 24
# The distribution of a mean of draws is computed with at least `_PER_DRAW` cells for each draw, and about `_CELLS`
# cells or more for the sum of the draws.
_PER_DRAW, _CELLS = 128, 4096
# Draws beyond this many times the inverse of the rate are left out: their probability is below 1e-13.
_FARTHEST = 30.0


class ClippingBias:
    """What a stream rule's clipping removes from the mean, as a function of the mean of the clipped readings.

    ``bound``: the largest reading minus the offset; ``slot_seconds``: the time for which a reading is taken.
    """

    def __init__(self, rule: StreamRule, bound: int, slot_seconds: int) -> None:
        draws = min(max(round(slot_seconds / _ANEW_SECONDS), 1), _MOST_DRAWS)
        self._low, self._width = rule.low, rule.width
        slew = rule.slew / rule.levels if rule.reuse else 1.0
        top = max(bound - rule.low, rule.width) / rule.width
        rates = _RATES[_RATES * top >= -_STEEPEST]
        clipped = stationary_means(rates, slew, top, draws)
        if draws > 1:
            clipped = np.minimum(clipped, stationary_means(rates, 1.0, top))
        means = 1.0 / rates + top * np.exp(-rates * top) / np.expm1(-rates * top)
        order = np.argsort(clipped)
        self._clipped, self._removed = clipped[order], np.maximum(means - clipped, 0.0)[order]

    def at(self, levels: Vector) -> Removed:
        """Return what is removed in slots in which the clipped readings, minus the offset, have the means ``levels``
        [slots].
        """
        shares = (levels - self._low) / self._width
        bias = PART * self._width * np.interp(shares, self._clipped, self._removed)
        none = np.zeros(len(bias))
        return Removed(bias, _SHARED * np.abs(bias), none, none, _SHAPE * np.abs(bias), none, none)


def stationary_means(rates: Vector, slew: float, top: float, draws: int = 1) -> Vector:
    """Return the means [k] of clipped readings in [0, 1] if the readings are drawn anew in every slot.

    A reading is the mean of ``draws`` draws. The draws have densities proportional to e^(-rate x) on [0, top], for
    ``rates`` [k] other than 0. A clipped reading differs from the one before by at most ``slew``.
    """
    levels = levels_of(slew)
    if draws == 1:
        return means_of(np.expm1(-rates[:, None, None] * levels) / np.expm1(-rates * top)[:, None, None], slew)
    return means_of(_of_mean(rates, top, draws, levels), slew)


def _of_mean(rates: Vector, top: float, draws: int, levels: Vector) -> Vector:
    """Return the distribution functions at ``levels`` of the mean of ``draws`` draws, see `stationary_means`.

    Each draw, or its distance from ``top`` if the rate is negative, is rounded to the middle of one of m cells. So the
    sum of the draws is a whole number of cells plus ``draws`` / 2. The probabilities of the sum follow by Fourier
    transforms: the transform of one draw's probabilities is raised to the power ``draws`` and transformed back. At last
    the cells are scaled so that the mean is that without rounding.
    """
    m = max(_PER_DRAW, -(-_CELLS // draws))
    steep = np.abs(rates)[:, None]
    reach = np.minimum(top, _FARTHEST / steep)
    below = np.expm1(-steep * reach * np.linspace(0.0, 1.0, m + 1)) / np.expm1(-steep * reach)
    chances, length = np.diff(below), draws * (m - 1) + 1
    exact = 1.0 / steep + reach * np.exp(-steep * reach) / np.expm1(-steep * reach)
    scale = exact / (chances @ (np.arange(m) + 0.5))[:, None]
    sums = np.maximum(np.fft.irfft(np.fft.rfft(chances, length) ** draws, length), 0.0)
    distribution = np.minimum(np.concatenate([np.zeros((len(rates), 1)), np.cumsum(sums, axis=1)], axis=1), 1.0)
    ends = scale / draws * (np.arange(length + 1) + (draws - 1) / 2.0)
    rows = []
    for rate, at, row in zip(rates, ends, distribution, strict=True):
        rows.append(np.interp(levels, at, row) if rate > 0 else 1.0 - np.interp(top - levels, at, row))
    return np.array(rows)


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

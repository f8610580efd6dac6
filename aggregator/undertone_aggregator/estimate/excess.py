"""Model of what truncation removes from a slot's mean: the excess X = E[(x - θ)⁺] of the slot's readings x.

*What the rounds know.* A choice of θ keeps E[(x - t)⁺] for many t and each piece p of the cycle, with its error
(`threshold.pieces`). From this follow the excess e_p over θ and the truncated mean μ_p = E[min(x, θ)] = E[x] - e_p. An
epoch that has ended is described by the choice that ended it, which was fitted to the epoch's own reports, too.

*What the reports of later slots know*: the truncated mean m_t of slot t, with its noise. The factor of the slot's
truncated mean, f_t = E[m_t] / μ_p, is the sum of four parts:

    f_t = level (the cycle around t) + time of day (all cycles) + hour (around t) + slot.

The level is estimated from the m of one cycle. Each further part is estimated from what the parts before it leave, and
shrunk by the noise that it has, with a variance that the m themselves show (method of moments).

*Two explanations* of a factor f. The first: all readings are larger. They are s times those of the rounds, where s
solves E[min(s x, θ)] = f μ_p, and X = s E[(x - θ/s)⁺]. The second: more devices are active, with readings of the same
size, and X = f e_p. Each explanation predicts the pieces' e_p from their μ_p and the distribution of the whole cycle.
How well it predicts them is its likelihood; the probability w of the first is its share of the sum of both likelihoods.
X is the mean over both explanations, and over the values of f that the noise leaves possible. After a step of the
readings, both are equally likely, and the error is as large as the distance between them.

*The error* has parts that average out differently over many slots (`Removed`). `fit`, `level` and `explained` are the
errors of the fit's mean over the cycle, of the level, and of the explanation. `shape` is twice the rest of the error of
each piece's fit. `own` is the error of the slot's factor, and of the difference between days. `chance` is the error
that few devices with large readings make; its variance is E[((x - θ)⁺)²] / n = 2/n ∫_θ E[(x - t)⁺] dt.

All of this is post-processing of private reports.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.removed import Removed, Reported, Slots, Vector
from undertone_aggregator.estimate.two_sided import UNLIKELY, around
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.pieces import Pieces
from undertone_aggregator.threshold.result import Block

# The factors of the readings that are tried.
SCALES = np.geomspace(0.05, 20.0, 161)
# Before the reports say anything, the logarithm of a factor has Student's distribution with three degrees of freedom
# and this scale.
_LIKELY = 0.3
_PRIOR = 2.0 * np.log1p(np.square(np.log(SCALES) / _LIKELY) / 3.0)
# Neither explanation holds exactly for any population. Under each, the logarithm of an excess has this standard
# deviation.
_ROUGH = 0.3
# At least this standard deviation is assumed when a piece's excess is combined with the excess that its mean explains.
_LEAST_ROUGH = 0.5
# The readings of a slot differ from those of the same time on another day. This is the standard deviation of the excess
# between days, as a share of the excess.
_DAYS = 0.5
# The error of the day's shape is this many times what the pieces' fits say. All pieces are fitted with tails alike, so
# the fits say too little of how much real pieces differ. The factor was chosen on the populations of ``undertone
# experiment load`` that are not held back.
_SHAPE = 2.0
# A part of a factor is a step if it is more than this many standard deviations from its expectation.
_STEPPED = 4.0
# Error of the excess after a step, as a share of the distance between the two explanations.
_DOUBT = 1.0
# The level has made a step if it has changed by more than this factor, and by more than its noise explains.
_CHANGED = 4 / 3
# The log odds of the two explanations (larger readings, more active devices) are limited to this, so that neither is
# ever certain.
_SUREST = 2.2
# The number of pieces of the cycle whose excesses count as independent: their errors are correlated over an eighth of
# the cycle.
_INDEPENDENT = 8
# Number of slots that are computed at a time: an array of [slots, factors] has a few megabytes.
_AT_ONCE = 1024
_TINY = 1e-12


class Factor(NamedTuple):
    """The factor by which the truncated means of some slots have changed since the rounds; arrays [slots].

    ``mean`` with its ``variance``: the slot's factor. ``level`` with ``level_variance``: the part of the factor that
    the whole cycle around the slot has in common. ``stepped``: True if the level, the slot's part or its hour's part
    made a step.
    """

    mean: Vector
    variance: Vector
    level: Vector
    level_variance: Vector
    stepped: NDArray[np.bool_]


class ExcessModel:
    """The excess of each slot of an epoch. ``ranges``: (first slot of the cycle, low end, θ) of each block of the
    day.
    """

    def __init__(self, pieces: Pieces, ranges: tuple[tuple[int, int, int], ...], cycle: int) -> None:
        self.cycle = cycle
        firsts = [first for first, _, _ in ranges]
        phases = np.arange(cycle)
        theta = np.array([top for _, _, top in ranges])[np.searchsorted(firsts, phases, side="right") - 1]
        piece = np.searchsorted(pieces.starts, phases, side="right") - 1
        both, self._row = np.unique(np.stack([piece, theta]), axis=1, return_inverse=True)
        self._row = self._row.reshape(-1)
        rows = [_of_piece(pieces, int(p), int(t)) for p, t in both.T]
        self._levels, self._excesses, doubts = (np.array([row[i] for row in rows]) for i in range(3))
        one = len(SCALES) // 2
        self.truncated, self.excess = self._levels[:, one], self._excesses[:, one]
        self.doubt = doubts[:, one]
        self.square, self.common = np.array([row[3:] for row in rows]).T
        self._combine(doubts)

    def at_phases(self, name: str) -> Vector:
        """Return an attribute of the rows by slot of the cycle; [cycle]."""
        return np.asarray(getattr(self, name)[self._row])

    def removed(self, reported: Reported) -> Removed:
        """Return what is removed from the means of some slots."""
        row = self._row[reported.slot % self.cycle]
        factor = self.factors(reported)
        larger, spread = self._larger(row, factor.mean, factor.variance)
        active = self.excess[row] * np.maximum(factor.mean, 0.0)
        # A step changes the whole level. Differences by time of day do not tell its cause, so both explanations count
        # alike.
        w = np.where(factor.stepped, 0.5, self.larger)
        doubt = np.where(factor.stepped, _DOUBT, np.sqrt(w * (1.0 - w)))
        bias = w * larger + (1.0 - w) * active
        spread = w * spread + (1.0 - w) * self.excess[row] * np.sqrt(factor.variance)
        relative, common = self.doubt[row], np.minimum(self.common[row], self.doubt[row])
        explained = doubt * (larger - active)
        part = factor.level_variance / np.maximum(factor.variance, _TINY)
        level = np.sqrt(np.minimum(part, 1.0)) * spread
        shape = _SHAPE * np.sqrt(np.maximum(np.square(relative) - np.square(common), 0.0)) * bias
        chance = self.square[row] * np.maximum(1.0, bias / np.maximum(self.excess[row], _TINY)) / reported.devices
        own = np.sqrt(np.maximum(1.0 - part, 0.0) * np.square(spread) + np.square(_DAYS * bias))
        return Removed(bias, common * bias, explained, level, shape, own, np.sqrt(chance))

    def moved(self, reported: Reported) -> Vector | None:
        """Return (factor by which readings changed since the rounds, lower limit, upper limit); [slots, 3].

        The factors follow from the level of the cycle around the slot, if all readings are larger. The limits are at
        three standard errors. Return None if less than half of the cycle has reports.
        """
        factor = self.factors(reported)
        if not factor.level_variance.any():
            return None
        of_cycle = self._levels[self._row].mean(axis=0)
        one = of_cycle[len(SCALES) // 2]
        levels = np.broadcast_to(of_cycle, (len(reported.slot), len(SCALES)))
        below = np.cumsum(weights(levels, factor.level * one, factor.level_variance * one**2), axis=1)
        places = [(below < at).sum(axis=1) for at in (0.5, UNLIKELY, 1.0 - UNLIKELY)]
        return np.asarray(SCALES[np.minimum(np.stack(places, axis=1), len(SCALES) - 1)])

    def _larger(self, row: Slots, factor: Vector, variance: Vector) -> tuple[Vector, Vector]:
        """Return mean and standard deviation of the excess if all readings are larger; [slots] each."""
        mean, spread = np.empty((2, len(row)))
        for first in range(0, len(row), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            levels, excesses = self._levels[row[part]], self._excesses[row[part]]
            before = self.truncated[row[part]]
            chances = weights(levels, factor[part] * before, variance[part] * before**2)
            mean[part] = (chances * excesses).sum(axis=1)
            spread[part] = np.sqrt((chances * np.square(excesses - mean[part, None])).sum(axis=1))
        return mean, spread

    def _combine(self, doubts: Vector) -> None:
        """Combine the excess of each piece's own fit with the excess that follows from the piece's mean.

        The result is a factor for each row's excess at scale 1. ``doubts`` [rows, scales]: relative errors of the
        excesses. At a scale whose excess is known better than that at scale 1, only the share (doubts / doubt)² of the
        factor's logarithm is applied; elsewhere all of it.
        """
        self.larger = 0.5
        means, excess, doubt, common = (self.at_phases(name) for name in ("truncated", "excess", "doubt", "common"))
        if not (excess > _TINY).all() or not (means > _TINY).all():
            return
        levels, excesses = self._levels[self._row], self._excesses[self._row]
        # Truncated mean and excess of the whole cycle at each of `SCALES`, under the θ of each slot.
        of_cycle, beyond = levels.mean(axis=0), excesses.mean(axis=0)
        one = len(SCALES) // 2
        seen = np.log(excess / excess.mean())
        ratio = np.log(means / of_cycle[one])
        scale = np.interp(means, of_cycle, np.log(SCALES))
        larger = np.interp(scale, np.log(SCALES), np.log(np.maximum(beyond, _TINY))) - np.log(beyond[one])
        variance = np.maximum(np.square(doubt) - np.square(common), 0.0)
        fits = [-np.square(seen - said) / (2.0 * (variance + _ROUGH**2)) for said in (larger, ratio)]
        count = min(len(self.truncated), _INDEPENDENT) / self.cycle
        away = float((fits[0] - fits[1]).sum()) * count
        self.larger = float(1.0 / (1.0 + np.exp(-np.clip(away, -_SUREST, _SUREST))))
        said = self.larger * larger + (1.0 - self.larger) * ratio
        rough = max(float(np.mean(np.square(seen - said) - variance)), _LEAST_ROUGH**2)
        kept = rough / (rough + variance)
        moved = np.exp((1.0 - kept) * (said - seen))
        moved *= excess.mean() / float((excess * moved).mean())
        of_row = np.zeros((2, len(self.excess)))
        of_row[:, self._row] = moved, np.sqrt(kept * variance + np.square(np.minimum(common, doubt)))
        self.excess = self.excess * of_row[0]
        known = np.square(np.minimum(doubts / np.maximum(self.doubt[:, None], _TINY), 1.0))
        self._excesses = self._excesses * of_row[0][:, None] ** known
        self.square, self.doubt = self.square * of_row[0], of_row[1]

    def factors(self, reported: Reported) -> Factor:
        """Return the factor of each slot. If less than half of the cycle has reports, it is 1 with no error."""
        slot, mean, error, _ = reported
        n, cycle = len(slot), self.cycle
        phase = slot % cycle
        expected = self.at_phases("truncated")[phase]
        if 2 * len(np.unique(phase)) < cycle:
            return Factor(np.ones(n), np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n, dtype=bool))
        level, level_variance = _ratio(slot, mean, error, expected, cycle // 2)
        away = mean - level * expected
        # The factor by time of day, over all cycles.
        each = (away, expected, error**2)
        sums, weights_, noise = (np.asarray(np.bincount(phase, of, minlength=cycle), dtype=np.float64) for of in each)
        known = weights_ > 0
        share = np.divide(sums, weights_, out=np.zeros(cycle), where=known)
        noisy = np.divide(noise, weights_**2, out=np.zeros(cycle), where=known)
        time, time_variance, _ = _shrunk(share[known], noisy[known], weights_[known])
        of_phase, of_variance = np.zeros(cycle), np.zeros(cycle)
        of_phase[known], of_variance[known] = time, time_variance
        left = away - of_phase[phase] * expected
        factor, variance = level + of_phase[phase], level_variance + of_variance[phase]
        stepped = np.abs(np.log(np.maximum(level, _TINY))) > np.log(_CHANGED)
        stepped &= np.abs(level - 1.0) > _STEPPED * np.sqrt(level_variance)
        for reach in (max(cycle // 24, 1), 0):
            part, doubt, steps = _shrunk(*_ratio(slot, left, error, expected, reach), expected)
            factor, variance, left = factor + part, variance + doubt, left - part * expected
            stepped = stepped | steps
        return Factor(factor, variance, level, level_variance, stepped)


def pieces_of(threshold: Threshold) -> Pieces:
    """Return the excess by piece that a choice of θ keeps.

    If it keeps none, return one piece for each block of the cycle (or one in all), computed from the block's density,
    with the relative error of the choice's bias.
    """
    if threshold.pieces is not None:
        return threshold.pieces
    relative = threshold.bias_se / threshold.bias if threshold.bias > 0 else np.nan
    parts = threshold.blocks or [Block(0, 1.0, threshold)]
    densities = np.array([choice.density for _, _, choice in parts])[:, None]
    starts, shares = [first for first, _, _ in parts], [share for _, share, _ in parts]
    known = Pieces.of(densities, threshold.edges, starts, shares)
    excess = np.asarray(known.excess)
    error = excess * (relative if np.isfinite(relative) else 1.0)
    return replace(known, error=error.tolist(), shared=(np.asarray(shares) @ error).tolist())


def _of_piece(pieces: Pieces, piece: int, theta: int) -> tuple[Vector, Vector, Vector, float, float]:
    """Return (truncated means, excesses, relative errors of the excesses, mean square excess, relative error of the
    cycle's excess).

    The first three are those of the piece's readings times each of `SCALES`. The mean square excess is E[((x - θ)⁺)²].
    """
    limits, excess = np.asarray(pieces.limits, dtype=np.float64), np.asarray(pieces.excess[piece])
    logs = np.log(np.maximum(excess, _TINY))

    # Between two limits the excess is interpolated exponentially, as it falls; up to the limit where it is zero,
    # linearly.
    falls = np.append(excess[1:] > _TINY, False)

    def over(t: Vector) -> Vector:
        before = np.clip(np.searchsorted(limits, t, side="right") - 1, 0, len(limits) - 1)
        values = np.where(falls[before], np.exp(np.interp(t, limits, logs)), np.interp(t, limits, excess))
        return np.asarray(values)

    above = over(theta / SCALES)
    levels = SCALES * (excess[0] - above)
    # Scaled readings are cut at the largest limit, so what would lie above it is no excess.
    excesses = SCALES * np.maximum(above - over(limits[-1] / SCALES), 0.0)
    beyond = np.linspace(theta, max(limits[-1], theta + 1.0), 400)
    square = 2.0 * float(np.trapezoid(over(beyond), beyond))
    errors = SCALES * np.interp(theta / SCALES, limits, pieces.error[piece])
    doubts = np.divide(errors, excesses, out=np.zeros(len(SCALES)), where=excesses > _TINY)
    cycle = float(np.asarray(pieces.shares) @ np.array([np.interp(theta, limits, row) for row in pieces.excess]))
    shared = float(np.interp(theta, limits, pieces.shared))
    return levels, excesses, doubts, square, shared / cycle if cycle > _TINY else 0.0


def weights(levels: Vector, mean: Vector, variance: Vector) -> Vector:
    """Return the posterior probabilities of `SCALES`, whose truncated means are ``levels`` [slots, scales].

    ``mean`` and ``variance`` [slots]: what is known of the slots' truncated means. The prior of the factor is centred
    at 1. If all readings but the zeros are above θ, a changed factor would not change the truncated mean. Then nothing
    speaks for a change, and the factor stays near 1.
    """
    apart = np.abs(levels - mean[:, None])
    nearest = apart.argmin(axis=1)
    # The true factor may lie between two factors of the grid, so half a step is added to the error.
    after = np.minimum(nearest + 1, levels.shape[1] - 1)
    rows = np.arange(len(levels))
    step = (levels[rows, after] - levels[rows, np.maximum(nearest - 1, 0)]) / 4.0
    away = np.square(apart) / (2.0 * (variance + step**2 + _TINY))[:, None] + _PRIOR
    chances = np.exp(away.min(axis=1, keepdims=True) - away)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _ratio(slot: Slots, values: Vector, error: Vector, expected: Vector, reach: int) -> tuple[Vector, Vector]:
    """Return, by slot, Σ values / Σ expected over the slots within ``reach`` of it, and the ratio's noise variance."""
    first, end = around(slot, reach)
    sums = (np.append(0.0, np.cumsum(each)) for each in (values, expected, error**2))
    value, whole, noise = (each[end] - each[first] for each in sums)
    whole = np.maximum(whole, _TINY)
    return value / whole, noise / whole**2


def _shrunk(values: Vector, noise: Vector, weight: Vector) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Shrink values of mean 0 by their noise; return their posterior means and variances, and which values are steps.

    The variance of the true values is their weighted mean square, minus the noise. A value that is far beyond that is a
    step, and stays unchanged.
    """
    total = max(float(weight.sum()), _TINY)
    usual = max(float(weight @ (np.square(values) - noise)) / total, 0.0)
    steps = np.square(values) > _STEPPED**2 * (usual + noise)
    variance = np.where(steps, np.square(values), usual)
    kept = variance / np.maximum(variance + noise, _TINY)
    return kept * values, (1.0 - kept) * variance, steps

"""Model of the truncation bias: what truncation removes from a slot's mean, by slot of the cycle, with its error.

The threshold phase estimates the distribution of readings over whole cycles, hence E[(x - θ)⁺] over all slots, but not
how this excess is distributed over the day. Two extreme answers enclose the truth. In the first, the excess is the same
in every slot. In the second, the readings of a slot are those of the whole cycle times a factor, which is chosen to
explain the slot's truncated mean in the report phase. The model takes their geometric mean, scaled to keep the average,
and half their distance as a standard error. Three more errors are added: the uncertainty of the average itself, the
random number of large readings among these devices, and one generous factor for the rest (on half-hourly household
meters the excess of one half-hour varies by .55 of its mean from day to day). All of this is post-processing of private
reports.

Readings change after the rounds. The truncated means of the cycle around a slot (its `Level`) show by what factor, and
the model uses the excess of the rounds' readings times that factor, averaged over the factors that the level leaves
possible. Half of the change is added to the standard error, because the shape of the distribution may have changed,
too. Readings that are truncated at both ends change by an amount instead of a factor.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.estimate.estimates import Estimate, Estimates
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.result import RESOLVED
from undertone_shared.campaign import Campaign

# The excess is what truncation removes from a slot's mean. The real excess of one slot differs from the excess that the
# model predicts, by more than the errors that the model knows of. This is the assumed standard deviation of that
# difference, as a share of the excess. The square of `_OWN` is the part of its variance that each slot has by itself;
# the rest belongs to the shape of the day. On the eight populations of `undertone experiment load`, with ε = 1 and 4,
# 500 and 5,000 devices, each of the two is 0 to .5, less the known chance error.
DAILY = 0.65
_OWN = 0.45
# The shape's errors of two slots are alike if they are near in the cycle: their correlation falls by a factor of e over
# this share of the cycle, two hours of a day.
_ALIKE = 1 / 12
# Assumed standard deviation of a slot's bias for truncation at two ends, besides the known errors, as a share of the
# sum of what both ends remove: a slot's readings are not spread as those of a whole cycle are. `_WHOLE` holds where
# only the level of the whole cycle is known, so that the slot's readings may also lie elsewhere.
_TWO_SIDED, _WHOLE = 0.5, 1.0
# Number of shifts of the readings that are tried, and the probability beyond three standard deviations.
_MOVES = 2001
_UNLIKELY = 0.00135
# Factors of the readings that are tried, and minus the logarithm of their prior: the factor's logarithm has Student's
# distribution with three degrees of freedom, about this scale.
_SCALES = np.geomspace(0.05, 20.0, 600)
_LIKELY_CHANGE = 0.3
_PRIOR = 2.0 * np.log1p(np.square(np.log(_SCALES) / _LIKELY_CHANGE) / 3.0)
_TINY = 1e-12
# Prior probability that readings above what reports resolve have a heavier tail than the fit, which knows Weibull tails
# nearly only: the tail of `_with_heavy_tail`. Reports change this probability (`_chance_of_heavy_tail`).
_HEAVY = 1 / 3
# If reports resolve readings up to this share of the bound, no tail is left that they do not show.
_BOUNDED = 0.9
# Number of slots that are computed at a time, so that an array of [slots, factors or shifts] has a few megabytes.
_AT_ONCE = 256


# θ counts as stale if readings have certainly changed by more than this factor since the rounds; a range of two ends,
# if they have certainly moved by more than this share of its width.
STALE, STALE_SHARE = 4 / 3, 1 / 4


class Level(NamedTuple):
    """Mean of the truncated readings, less the offset, around a slot, with its standard error.

    ``whole``: it is a mean over the whole cycle around the slot.
    """

    mean: float
    standard_error: float
    whole: bool = False


class Levels(NamedTuple):
    """The `Level` around each of some slots; arrays [slots]."""

    mean: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    whole: bool = False

    @classmethod
    def of(cls, level: Level) -> "Levels":
        """Return the levels of one slot."""
        return cls(np.array([level.mean]), np.array([level.standard_error]), level.whole)

    def part(self, first: int, stop: int) -> "Levels":
        """Return the levels of the slots first <= i < stop."""
        return Levels(self.mean[first:stop], self.standard_error[first:stop], self.whole)

    def each(self) -> list[Level]:
        """Return the levels one by one."""
        pairs = zip(self.mean.tolist(), self.standard_error.tolist(), strict=True)
        return [Level(mean, error, self.whole) for mean, error in pairs]


class Removed(NamedTuple):
    """What truncation removes from a slot's mean, and four independent parts of its error, as standard deviations.

    ``shared``: the error of what is removed on average, the same in all slots. ``shape``: the error of the day's shape,
    which is the same every day and averages out over a cycle. ``own``: an error of the slot alone. ``fit``: the error
    of the fit that the choice of θ made: the same in the slots of one block of the cycle, and correlated between
    blocks (`Threshold.alike`).
    """

    bias: float
    shared: float
    shape: float
    own: float
    fit: float = 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of ``bias``."""
        return math.hypot(self.shared, self.shape, self.own, self.fit)


class RemovedOfSlots(NamedTuple):
    """The `Removed` of some slots; arrays [slots]."""

    bias: NDArray[np.float64]
    shared: NDArray[np.float64]
    shape: NDArray[np.float64]
    own: NDArray[np.float64]
    fit: NDArray[np.float64]

    @classmethod
    def unknown(cls, slots: int) -> "RemovedOfSlots":
        """Return nan for ``slots`` slots."""
        return cls(*np.full((5, slots), np.nan))

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """The standard error of each ``bias``."""
        return np.asarray(np.hypot(np.hypot(self.shared, self.shape), np.hypot(self.own, self.fit)))

    def as_error(self) -> "RemovedOfSlots":
        """Return what is removed as an error of means to which nothing is added: its size is part of ``shared``."""
        return self._replace(bias=np.zeros_like(self.bias), shared=np.hypot(self.shared, self.bias))

    def each(self) -> list[Removed]:
        """Return what is removed slot by slot."""
        return [Removed(*row) for row in zip(*(column.tolist() for column in self), strict=True)]


class _Excess(NamedTuple):
    """The mean excess over θ of a distribution of readings times each factor of `_SCALES`.

    ``levels``, ``excesses`` [scales]: truncated mean and mean excess of the whole cycle. ``flat``: the mean excess of
    the readings as they were, ``square``: that of its square. ``fit``, ``tail``: the relative errors of ``flat`` by the
    fit's uncertainty and by the possibility of a heavier tail.
    """

    levels: NDArray[np.float64]
    excesses: NDArray[np.float64]
    flat: float
    square: float
    fit: float
    tail: float


class _Fit(NamedTuple):
    """The fitted distribution of a choice of θ: the bytes of its density [d], its edges [d + 1], and ``seen``."""

    density: bytes
    edges: tuple[int, ...]
    seen: int | None

    @classmethod
    def of(cls, threshold: Threshold) -> "_Fit":
        """Return the distribution that a choice of θ comes from."""
        density = np.ascontiguousarray(threshold.density, dtype=np.float64).tobytes()
        return cls(density, tuple(threshold.edges), threshold.seen)

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return density [d] and edges [d + 1]."""
        return np.frombuffer(self.density), np.asarray(self.edges, dtype=np.float64)


@lru_cache(maxsize=256)
def _excess_of(fit: _Fit, chance: float, error: tuple[float, float], theta: int) -> _Excess:
    """Return the excess over ``theta`` of a choice of θ whose (bias, bias_se) are ``error``.

    ``chance``: the probability of a heavier tail. All groups of devices, and all epochs with the same choice, share the
    result.
    """
    fitted, edges = fit.arrays()
    middles = (edges[:-1] + edges[1:] - 1.0) / 2.0
    above = np.maximum(middles - theta, 0.0)
    heavy = fitted if fit.seen is None else _with_heavy_tail(fitted, edges, fit.seen)
    both = (1.0 - chance) * fitted + chance * heavy
    scaled = np.outer(_SCALES, middles)
    levels, excesses = np.minimum(scaled, theta) @ both, np.maximum(scaled - theta, 0.0) @ both
    flat, square = float(above @ both), float(np.square(above) @ both)
    bias, bias_se = error
    relative = bias_se / bias if bias > 0 else math.nan
    relative = relative if math.isfinite(relative) else 1.0
    if flat <= 0:
        return _Excess(levels, excesses, flat, square, relative, 0.0)
    # Of a mixture of two tails the variance is the mean variance plus the variance between the means.
    within = math.sqrt(1.0 - chance) * relative * float(above @ fitted)
    between = math.sqrt(chance * (1.0 - chance)) * abs(float(above @ (heavy - fitted)))
    return _Excess(levels, excesses, flat, square, within / flat, between / flat)


def error_of_fits(fits: NDArray[np.float64], blocks: NDArray[np.int64], threshold: Threshold) -> float:
    """Return the standard error of the sum of slots' errors of the fit, ``fits`` [slots], within one epoch.

    ``blocks`` [slots]: the index of each slot's block of the cycle. With w_b the sum of the errors in block b and R the
    blocks' correlations (`Threshold.alike`), the variance is w'Rw. All blocks err alike where R is not known.
    """
    if not threshold.alike:
        return float(fits.sum())
    weights = np.bincount(blocks, fits, minlength=len(threshold.alike))
    return math.sqrt(max(float(weights @ np.asarray(threshold.alike) @ weights), 0.0))


def error_of_mean(removed: Sequence[Removed], phases: Sequence[int], cycle: int, fit: float | None = None) -> float:
    """Return the standard error of the mean of some slots' biases; ``phases``: each slot's number within the cycle.

    ``fit``: the standard error of the mean of the fits' errors; None if the fit errs alike in all slots.

    With a_p the sum of the shape errors in phase p, over the number of slots, the variance of their sum is a'Ca, where
    C has correlations e^(-d/(cycle/12)) by circular distance d and is conditioned on errors that add up to 0 over the
    cycle. C is circulant, so a'Ca is a sum over the Fourier transforms of a and of C's first row without their first
    terms.
    """
    n = len(removed)
    fit = sum(each.fit for each in removed) / n if fit is None else fit
    shared = math.hypot(sum(each.shared for each in removed) / n, fit)
    own = math.sqrt(sum(each.own**2 for each in removed)) / n
    weights = np.bincount(np.asarray(phases) % cycle, [each.shape for each in removed], minlength=cycle) / n
    distance = np.minimum(np.arange(cycle), cycle - np.arange(cycle))
    spectrum = np.fft.fft(np.exp(-distance / (cycle * _ALIKE))).real
    left = 1.0 - spectrum[0] / cycle
    if left <= 0.0:
        # A cycle of one slot has no shape: its error is the same in every slot.
        return math.hypot(shared, own, float(weights.sum()))
    power = np.square(np.abs(np.fft.fft(weights)[1:]))
    shape = float(power @ spectrum[1:]) / cycle / left
    return math.sqrt(shared**2 + own**2 + max(shape, 0.0))


class TruncationBias:
    """The mean excess E[(x - θ)⁺] of each slot of the cycle, in the reading's unit.

    ``profile``: slot of the cycle -> (mean of the truncated readings less the offset, variance of its error).
    ``whole``: the choice for the whole cycle, if ``threshold`` is that of a block.
    """

    def __init__(
        self,
        threshold: Threshold,
        theta: int,
        profile: Mapping[int, tuple[float, float]],
        whole: Threshold | None = None,
    ) -> None:
        fit = _Fit.of(threshold)
        chance = _chance_of_heavy_tail(fit if whole is None else _Fit.of(whole))
        excess = _excess_of(fit, chance, (threshold.bias, threshold.bias_se), theta)
        self.levels, self._excesses, self._flat, self._square, self._fit, self._tail = excess
        moved: dict[int, float] = {}
        if profile:
            phases, around = _shrunk(profile)
            moved = dict(zip(phases, (_weights(self.levels, around) @ self._excesses).tolist(), strict=True))
        # Each slot's excess relative to the mean of the cycle: by the second answer (see the module), and as used here.
        self._moved = _normalised(moved)
        self._shares = _normalised({phase: math.sqrt(share) for phase, share in self._moved.items()})

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """Return what is removed from the mean over ``devices`` in slot ``phase`` of the cycle.

        ``level`` None means that readings are as they were in the rounds.
        """
        around = None if level is None else Levels.of(level)
        return self.each(np.array([phase]), np.array([devices]), around).each()[0]

    def each(self, phases: NDArray[np.int64], devices: NDArray[np.int64], levels: Levels | None) -> RemovedOfSlots:
        """Return ``at`` of many slots at once; all arguments [slots]."""
        now, doubt = np.full(len(phases), self._flat), np.zeros(len(phases))
        if levels is not None:
            for first in range(0, len(phases), _AT_ONCE):
                part = slice(first, first + _AT_ONCE)
                chances = _weights(self.levels, levels.part(first, first + _AT_ONCE))
                now[part] = chances @ self._excesses
                squares = chances * np.square(self._excesses - now[part, None])
                doubt[part] = np.sqrt(squares.sum(axis=1))
        share, moved = (
            np.array([shares.get(phase, 1.0) for phase in phases.tolist()]) for shares in (self._shares, self._moved)
        )
        bias, half = now * share, now * (moved - 1.0) / 2.0
        aged = np.hypot((now - self._flat) / 2.0, doubt) * share
        chance = self._square * np.maximum(1.0, bias / self._flat if self._flat else 1.0) / devices
        shape = np.hypot(math.sqrt(DAILY**2 - _OWN**2) * bias, half)
        own = np.sqrt(np.square(_OWN * bias) + chance)
        return RemovedOfSlots(bias, np.hypot(self._tail * bias, aged), shape, own, self._fit * bias)

    def excess(self, level: Level) -> float:
        """Return the mean excess of the whole cycle at ``level``."""
        return float(_weights(self.levels, Levels.of(level))[0] @ self._excesses)

    def factor(self, level: Level) -> tuple[float, float, float]:
        """Return (factor by which readings have changed since the rounds, its lower limit, its upper limit).

        The true factor is below the lower limit, or above the upper one, with probability `_UNLIKELY` each.
        """
        below = np.cumsum(_weights(self.levels, Levels.of(level))[0])
        middle, low, high = (_SCALES[int(np.searchsorted(below, at))] for at in (0.5, _UNLIKELY, 1 - _UNLIKELY))
        return float(middle), float(low), float(high)


class DayBias:
    """Bias model for blocks of the cycle with different θ: ``blocks`` of (first slot, share of slots, model)."""

    def __init__(self, blocks: Sequence[tuple[int, float, TruncationBias]]) -> None:
        self._blocks = blocks
        levels = np.sum([share * bias.levels for _, share, bias in blocks], axis=0)
        for _, _, bias in blocks:
            bias.levels = levels

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """See `TruncationBias.at`; ``level`` is that of the whole cycle, not of one block."""
        around = None if level is None else Levels.of(level)
        return self.each(np.array([phase]), np.array([devices]), around).each()[0]

    def each(self, phases: NDArray[np.int64], devices: NDArray[np.int64], levels: Levels | None) -> RemovedOfSlots:
        """See `TruncationBias.each`."""
        removed = RemovedOfSlots.unknown(len(phases))
        blocks = np.searchsorted([first for first, _, _ in self._blocks], phases, side="right") - 1
        for block, (_, _, bias) in enumerate(self._blocks):
            ones = np.flatnonzero(blocks == block)
            around = None if levels is None else Levels(levels.mean[ones], levels.standard_error[ones])
            for column, values in zip(removed, bias.each(phases[ones], devices[ones], around), strict=True):
                column[ones] = values
        return removed

    def excess(self, level: Level) -> float:
        """See `TruncationBias.excess`; the result covers all blocks."""
        return sum(share * bias.excess(level) for _, share, bias in self._blocks)

    def factor(self, level: Level) -> tuple[float, float, float]:
        """See `TruncationBias.factor`."""
        return self._blocks[0][2].factor(level)


@lru_cache(maxsize=256)
def _chance_of_heavy_tail(fit: _Fit) -> float:
    """Return the posterior probability of the tail of `_with_heavy_tail`, given the reports that were fitted.

    With S and S' the shares of readings from ``seen`` on under the fit and under that tail, the reports' standard error
    of S is S / `RESOLVED`, by the definition of ``seen``. The fit follows the reports, so that the heavier tail is
    z = (S' - S) / (S / RESOLVED) standard errors away from them, and its odds are those of the prior times e^(-z²/2).
    """
    if fit.seen is None:
        return 0.0
    density, edges = fit.arrays()
    heavy = _with_heavy_tail(density, edges, fit.seen)
    if heavy is density:
        return 0.0
    share, heavier = (
        float(np.interp(fit.seen, edges, np.append(np.cumsum(each[::-1])[::-1], 0.0))) for each in (density, heavy)
    )
    away = RESOLVED * (heavier / share - 1.0) if share > 0 else 0.0
    odds = _HEAVY / (1.0 - _HEAVY) * math.exp(-(away**2) / 2.0)
    return odds / (1.0 + odds)


def _with_heavy_tail(density: NDArray[np.float64], edges: NDArray[np.float64], seen: int) -> NDArray[np.float64]:
    """Return the density [d] over ``edges`` [d + 1], above ``seen``/2 with the tail that the slopes below continue.

    The slope -d ln P(reading >= x) / d ln x is measured from ``seen``/8 to ``seen``/4 and from there to ``seen``/2. It
    continues as a straight line in ln x: a constant slope is a Pareto tail, a rising one that of a lognormal.
    """
    at_least = np.append(np.cumsum(density[::-1])[::-1], 0.0)
    points = [float(np.interp(seen / part, edges, at_least)) for part in (8, 4, 2)]
    first = int(np.searchsorted(edges, seen / 2))
    if seen >= _BOUNDED * edges[-1] or at_least[first] <= _TINY or edges[first] <= 0:
        return density
    octave = math.log(2.0)
    before, last = (math.log(points[i] / points[i + 1]) / octave for i in (0, 1))
    bend = max(last - before, 0.0) / octave
    away = np.log(edges[first:] / edges[first])
    left = np.exp(-(last + bend * octave / 2.0) * away - bend * np.square(away) / 2.0)
    if left[-1] >= 1.0 - _TINY:
        return density
    tail = at_least[first] * (left - left[-1]) / (1.0 - left[-1])
    return np.concatenate([density[:first], tail[:-1] - tail[1:]])


def _weights(levels: NDArray[np.float64], around: Levels) -> NDArray[np.float64]:
    """Return the posterior probabilities of `_SCALES`, whose truncated means are ``levels``, given the levels
    ``around`` slots; [slots, scales].

    The prior of the factor is about 1: where a changed factor would not change the truncated mean, because all but the
    zeros are above θ, nothing speaks for a change.
    """
    apart = np.abs(levels - around.mean[:, None])
    # The grid may be coarser than the error of the level. Half its step is added to the error, so that the true factor,
    # which may lie between two factors of the grid, is not excluded.
    step = np.gradient(levels)[apart.argmin(axis=1)] / 2.0
    return _probabilities(np.square(apart) / (2.0 * (around.standard_error**2 + step**2 + _TINY))[:, None] + _PRIOR)


def _probabilities(away: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities from minus their logarithms up to a constant, [slots, cases]."""
    weights = np.exp(away.min(axis=1, keepdims=True) - away)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _normalised(shares: Mapping[int, float]) -> dict[int, float]:
    """Return the shares scaled to a mean of 1; all 1 where they are 0."""
    mean = float(np.mean(list(shares.values()))) if shares else 0.0
    return {phase: share / mean if mean > 0 else 1.0 for phase, share in shares.items()}


class TwoSidedBias:
    """Bias model for truncation to [low, θ]: a slot's readings are those of the rounds, all moved by the same amount.

    Readings far from zero, such as temperatures, change by an amount and not by a factor. The truncated mean around the
    slot says by how much they moved; the prior is a Cauchy distribution whose scale is half of the range. Where nearly
    all readings are at one end, the truncated mean hardly says how far beyond that end they are; the model's error is
    then accordingly large.
    """

    def __init__(self, threshold: Threshold, low: int, theta: int, bound: int) -> None:
        density = np.asarray(threshold.density, dtype=np.float64)
        edges = np.asarray(threshold.edges, dtype=np.float64)
        middles = (edges[:-1] + edges[1:] - 1.0) / 2.0
        mean = float(middles @ density)
        self._moves = np.linspace(-mean, bound - mean, _MOVES)
        moved = self._moves[:, None] + middles
        above, below = np.maximum(moved - theta, 0.0), np.maximum(low - moved, 0.0)
        self._levels = np.clip(moved, low, theta) @ density
        self._removed, self._outside = (above - below) @ density, (above + below) @ density
        self._square = (np.square(above) + np.square(below)) @ density
        self.width = theta - low
        self._prior = np.log1p(np.square(2.0 * self._moves / self.width))
        self._unmoved = float(np.clip(middles, low, theta) @ density)

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """Return what is removed from the mean over ``devices``; ``level`` is that around the slot."""
        around = None if level is None else Levels.of(level)
        return self.each(np.array([phase]), np.array([devices]), around).each()[0]

    def each(self, phases: NDArray[np.int64], devices: NDArray[np.int64], levels: Levels | None) -> RemovedOfSlots:
        """Return ``at`` of many slots at once; all arguments [slots]."""
        n = len(phases)
        around = levels or Levels(np.full(n, self._unmoved), np.zeros(n))
        means, shared, own = np.empty((3, n))
        for first in range(0, n, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            weights = self._weights(around.part(first, first + _AT_ONCE))
            means[part] = weights @ self._removed
            doubts = np.sqrt((weights * np.square(self._removed - means[part, None])).sum(axis=1))
            shared[part] = np.hypot(doubts, (_WHOLE if around.whole else _TWO_SIDED) * (weights @ self._outside))
            own[part] = np.sqrt(weights @ self._square / devices[part])
        return RemovedOfSlots(means, shared, np.zeros(n), own, np.zeros(n))

    def moved(self, level: Level) -> tuple[float, float, float]:
        """Return (shift of the readings since the rounds, lower limit, upper limit), as shares of the range.

        The limits are at three standard errors of ``level``.
        """
        below = np.cumsum(self._weights(Levels.of(level))[0])
        middle, low, high = (self._moves[int(np.searchsorted(below, at))] for at in (0.5, _UNLIKELY, 1 - _UNLIKELY))
        return float(middle) / self.width, float(low) / self.width, float(high) / self.width

    def _weights(self, around: Levels) -> NDArray[np.float64]:
        """Return the posterior probabilities of the shifts, given the levels ``around`` slots; [slots, shifts]."""
        means, errors = around.mean[:, None], around.standard_error[:, None]
        # The true shift may lie between two shifts of the grid. Half the grid's step is added to the error of the
        # level, so that such a shift keeps its probability.
        step = (self._moves[1] - self._moves[0]) / 2.0
        return _probabilities(np.square(self._levels - means) / (2.0 * (errors**2 + step**2)) + self._prior)


Bias = TruncationBias | DayBias | TwoSidedBias


def bias_of(epoch: Epoch, estimates: Sequence[Estimate]) -> Bias:
    """Make the model of a report epoch with a choice of θ; its daily profile comes from the estimates of its slots."""
    campaign, chosen = epoch.campaign, epoch.threshold
    assert chosen is not None
    assert campaign.report is not None
    if campaign.report.low:
        return TwoSidedBias(chosen, campaign.report.low, campaign.report.theta, campaign.bound)
    table, models = Estimates.of(estimates), []
    places = np.searchsorted([first for first, _, _ in campaign.rule.ranges], table.slot % campaign.cycle, side="right")
    for block, (first, _, theta) in enumerate(campaign.rule.ranges):
        choice = epoch.choice_of(block)
        assert choice is not None
        models.append(
            (first, TruncationBias(choice, theta, _profile(table.take(places == block + 1), campaign), chosen))
        )
    if not chosen.blocks:
        return models[0][1]
    return DayBias([(first, block.share, bias) for block, (first, bias) in zip(chosen.blocks, models, strict=True)])


def _profile(estimates: Estimates, campaign: Campaign) -> dict[int, tuple[float, float]]:
    """Return a map: slot of the cycle -> (mean of the truncated readings less the offset, variance of its error)."""
    if not len(estimates):
        return {}
    noise = float(np.mean(np.square(estimates.truncated_se)))
    phases, place, slots = np.unique(estimates.slot % campaign.cycle, return_inverse=True, return_counts=True)
    means = np.bincount(place, estimates.truncated_mean - campaign.offset) / slots
    rows = zip(phases.tolist(), means.tolist(), (noise / slots).tolist(), strict=True)
    return {phase: (mean, variance) for phase, mean, variance in rows}


def _shrunk(profile: Mapping[int, tuple[float, float]]) -> tuple[list[int], Levels]:
    """Shrink the profile's means towards their average by as much as noise alone may explain their differences.

    Return the phases and their levels.
    """
    means, variances = np.array(list(profile.values())).T
    noise, average = float(variances.mean()), float(means.mean())
    signal = max(float(means.var()) - noise, 0.0)
    share = signal / (signal + noise) if signal + noise > 0 else 0.0
    return list(profile), Levels(average + share * (means - average), np.full(len(means), math.sqrt(share * noise)))

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
the model uses the excess of the rounds' readings times that factor. Half of the change is added to the standard error,
because the shape of the distribution may have changed, too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.estimate.estimates import Estimate
from undertone_aggregator.threshold import Threshold
from undertone_shared.campaign import Campaign

# Assumed standard deviation between one slot's excess and the model's, as a share of the excess, besides the errors of
# the model that are known. On half-hourly household meters the excess of slots at one time of the day differs by .3 to
# .5, and the model of the day is rough itself. `_OWN` of it is the slot's own error, the rest that of the day's shape:
# so divided, the intervals of selections are as wide as their errors there (undertone experiment selections).
DAILY = 0.8
_OWN = 0.6
# The shape's errors of two slots are alike if they are near in the cycle: their correlation falls by a factor of e over
# this share of the cycle, two hours of a day.
_ALIKE = 1 / 12
# Factor on the standard error of the bias when readings are truncated at both ends, because there is no model of the
# day for two ends.
_TWO_SIDED = 2.0
_SCALES = np.geomspace(0.05, 20.0, 240)


# θ counts as stale if readings have certainly changed by more than this factor since the rounds.
STALE = 4 / 3


class Level(NamedTuple):
    """Mean of the truncated readings, less the offset, over the cycle around a slot, with its standard error."""

    mean: float
    standard_error: float


class Removed(NamedTuple):
    """What truncation removes from a slot's mean, and three independent parts of its error, as standard deviations.

    ``shared``: the error of what is removed on average, the same in all slots. ``shape``: the error of the day's shape,
    which is the same every day and averages out over a cycle. ``own``: an error of the slot alone.
    """

    bias: float
    shared: float
    shape: float
    own: float

    @property
    def standard_error(self) -> float:
        """The standard error of ``bias``."""
        return math.hypot(self.shared, self.shape, self.own)


def error_of_mean(removed: Sequence[Removed], phases: Sequence[int], cycle: int) -> float:
    """Return the standard error of the mean of some slots' biases; ``phases``: each slot's number within the cycle.

    With a_p the sum of the shape errors in phase p, over the number of slots, the variance of their sum is a'Ca, where
    C has correlations e^(-d/(cycle/12)) by circular distance d and is conditioned on errors that add up to 0 over the
    cycle. C is circulant, so a'Ca is a sum over the Fourier transforms of a and of C's first row without their first
    terms.
    """
    n = len(removed)
    shared = sum(each.shared for each in removed) / n
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
    """

    def __init__(self, threshold: Threshold, theta: int, profile: Mapping[int, tuple[float, float]]) -> None:
        density = np.asarray(threshold.density, dtype=np.float64)
        edges = np.asarray(threshold.edges, dtype=np.float64)
        middles = (edges[:-1] + edges[1:] - 1.0) / 2.0
        scaled = np.outer(_SCALES, middles)
        excess = np.maximum(scaled - theta, 0.0)
        self.truncated = truncated = np.minimum(scaled, theta) @ density
        # Truncated mean of the whole cycle at each scale factor of the readings.
        self.levels = truncated
        self._excess = excess @ density
        self._flat = float(np.maximum(middles - theta, 0.0) @ density)
        self._square = float(np.square(np.maximum(middles - theta, 0.0)) @ density)
        relative = threshold.bias_se / threshold.bias if threshold.bias > 0 else math.nan
        self._relative = relative if math.isfinite(relative) else 1.0
        means = _shrunk(profile)
        scales = {phase: float(np.interp(mean, truncated, _SCALES)) for phase, mean in means.items()}
        self._scaled = {phase: float(np.interp(s, _SCALES, excess @ density)) for phase, s in scales.items()}
        middle = [math.sqrt(self._flat * excess) for excess in self._scaled.values()]
        self._keep = self._flat / float(np.mean(middle)) if sum(middle) > 0 else 1.0

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """Return what is removed from the mean over ``devices`` in slot ``phase`` of the cycle.

        ``level`` None means that readings are as they were in the rounds.
        """
        scaled = self._scaled.get(phase, self._flat)
        bias = math.sqrt(self._flat * scaled) * self._keep
        half = (scaled - self._flat) / 2.0
        moved = 0.0
        if level is not None:
            now, noise = self.excess(level)
            # Assume that the ratio of the slot's excess to the mean excess of the day stays as it was in the rounds. If
            # the mean excess was 0 then, the ratio is unknown, and 1 is used.
            share = bias / self._flat if self._flat else 1.0
            bias, half = now * share, half * (now / self._flat if self._flat else 1.0)
            moved = math.hypot((now - self._flat) / 2.0, noise) * share
        chance = self._square * max(1.0, bias / self._flat if self._flat else 1.0) / devices
        shape = math.hypot(math.sqrt(DAILY**2 - _OWN**2) * bias, half)
        return Removed(bias, math.hypot(self._relative * bias, moved), shape, math.sqrt((_OWN * bias) ** 2 + chance))

    def excess(self, level: Level) -> tuple[float, float]:
        """Return (mean excess of the whole cycle at ``level``, its standard error due to the error of ``level``)."""
        ends = [level.mean, level.mean - level.standard_error, level.mean + level.standard_error]
        now, low, high = np.interp(np.interp(ends, self.levels, _SCALES), _SCALES, self._excess)
        return float(now), float(high - low) / 2.0

    def factor(self, level: Level) -> tuple[float, float, float]:
        """Return (factor by which readings have changed since the rounds, its lower limit, its upper limit).

        The limits are three standard errors of ``level`` away.
        """
        margin = 3.0 * level.standard_error
        middle, low, high = np.interp([level.mean, level.mean - margin, level.mean + margin], self.levels, _SCALES)
        return float(middle), float(low), float(high)


class DayBias:
    """Bias model for blocks of the cycle with different θ: ``blocks`` of (first slot, share of slots, model)."""

    def __init__(self, blocks: Sequence[tuple[int, float, TruncationBias]]) -> None:
        self._blocks = blocks
        levels = np.sum([share * bias.truncated for _, share, bias in blocks], axis=0)
        for _, _, bias in blocks:
            bias.levels = levels

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """See `TruncationBias.at`; ``level`` is that of the whole cycle, not of one block."""
        bias = next(bias for first, _, bias in reversed(self._blocks) if first <= phase)
        return bias.at(phase, devices, level)

    def excess(self, level: Level) -> tuple[float, float]:
        """See `TruncationBias.excess`; the result covers all blocks."""
        each = [(share, *bias.excess(level)) for _, share, bias in self._blocks]
        return sum(share * value for share, value, _ in each), sum(share * error for share, _, error in each)

    def factor(self, level: Level) -> tuple[float, float, float]:
        """See `TruncationBias.factor`."""
        return self._blocks[0][2].factor(level)


class TwoSidedBias:
    """Bias model for truncation to [bottom, θ]: the threshold phase's mean of what is removed, equal in every slot.

    In a single slot one end may remove everything and the other nothing, so the error is the sum of both.
    """

    def __init__(self, threshold: Threshold) -> None:
        self._bias, self._both = threshold.bias, threshold.bias_se

    def at(self, phase: int, devices: int, level: Level | None = None) -> Removed:
        """See `TruncationBias.at`; the result is the same for all slots."""
        return Removed(self._bias, self._both, math.sqrt(_TWO_SIDED**2 - 1.0) * self._both, 0.0)


Bias = TruncationBias | DayBias | TwoSidedBias


def bias_of(epoch: Epoch, estimates: Sequence[Estimate]) -> Bias:
    """Make the model of a report epoch with a choice of θ; its daily profile comes from the estimates of its slots."""
    campaign, chosen = epoch.campaign, epoch.threshold
    assert chosen is not None
    assert campaign.report is not None
    if campaign.report.low:
        return TwoSidedBias(chosen)
    by_block: dict[int, list[Estimate]] = {block: [] for block in range(len(campaign.rule.ranges))}
    for estimate in estimates:
        by_block[epoch.block_at(estimate.slot)].append(estimate)
    models = []
    for block, (first, _, theta) in enumerate(campaign.rule.ranges):
        choice = epoch.choice_of(block)
        assert choice is not None
        models.append((first, TruncationBias(choice, theta, _profile(by_block[block], campaign))))
    if not chosen.blocks:
        return models[0][1]
    return DayBias([(first, block.share, bias) for block, (first, bias) in zip(chosen.blocks, models, strict=True)])


def _profile(estimates: Sequence[Estimate], campaign: Campaign) -> dict[int, tuple[float, float]]:
    """Return slot of the cycle -> (mean of the truncated readings less the offset, variance of its error)."""
    sums: dict[int, list[float]] = {}
    for estimate in estimates:
        sums.setdefault(estimate.slot % campaign.cycle, []).append(estimate.truncated_mean - campaign.offset)
    if not sums:
        return {}
    noise = float(np.mean([(estimate.truncated_se or 0.0) ** 2 for estimate in estimates]))
    return {phase: (float(np.mean(means)), noise / len(means)) for phase, means in sums.items()}


def _shrunk(profile: Mapping[int, tuple[float, float]]) -> dict[int, float]:
    """Shrink the profile's means towards their average by as much as noise alone may explain their differences."""
    if not profile:
        return {}
    means = np.array([mean for mean, _ in profile.values()])
    noise = float(np.mean([variance for _, variance in profile.values()]))
    average = float(means.mean())
    signal = max(float(means.var()) - noise, 0.0)
    share = signal / (signal + noise) if signal + noise > 0 else 0.0
    return {phase: average + share * (mean - average) for phase, (mean, _) in profile.items()}

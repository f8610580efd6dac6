"""The difference of two means, with its error: what both means have in common cancels, in the error as well.

A *side* is the mean m = Σ_t u_t (y_t + x_t) over slots of one group, u_t = 1/n. Here y_t are the truncated means, which
reports show, and x_t is what truncation removes. The variance of a difference of two sides has these parts.

*Noise.* Each report has noise of its own, so the noise of two groups is independent. The noise of a group is a part of
the noise of all devices: Cov(y_t of g, y_t of all) = n_g/n Var(y_t of g). The noise of a stream is correlated from slot
to slot, with covariances that are known exactly.

*What truncation removes.* `fit`, `explained` and `shape` of `Removed` are errors of the choice of θ. All groups share
it, so these errors are added up with their signs, see `_levelled`. Between two groups at the same time, `explained` is
smaller, see `_BETWEEN`. `level` is an error of the same reports: it is a sum of the noise of the cycle around the slot
(`level_weights`), so it is added to the noise with its sign. `own` and `chance` are errors of one slot. They are
independent for two groups; for a group they are a part n_g/n of those of all devices. A group's homes with large
readings stay in it, so a part of `chance` is the same in all slots.

All of this is post-processing of the two sides, so a difference of published means tells nothing new of anybody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.estimates import Load, MeanRow, Series
from undertone_aggregator.estimate.removed import Removed, Slots, Vector, level_weights, shape_variance

# A smaller chance is shown as "less than" this chance, because the normal approximation does not hold so far out.
_RAREST = 1e-4
# A group's homes with large readings are the same day after day. So this share of the variance of `chance` does not
# average out over slots. The share was chosen on EDRP, so that the intervals of the study `differences` hold.
_STAYING = 0.1
# Between two groups at the same time, the error `explained` is multiplied by this. The homes of one group have larger
# readings and are active more often, too. So the truth may lie anywhere between the two explanations of
# `estimate.excess`: this is the standard deviation of a uniform distribution, as a share of its width.
_BETWEEN = 1.0 / math.sqrt(12.0)
MORE, LESS, UNCLEAR = "more", "less", "unclear"


@dataclass(frozen=True)
class MeanDifference(MeanRow):
    """The mean of a series over slots, minus another mean of the same campaign, in the reading's unit.

    ``estimate``: the difference ``mean`` - ``against``, with its 95 % interval and errors as in `MeanRow`. ``bias``:
    the difference of what truncation removes. ``first``, ``last``, ``start`` and ``slots`` are those of the mean; the
    fields that begin with ``against`` are those of the other mean. If both selections have equally many slots, a slot
    counts only if its counterpart has a number, too; so both means are over the same number of slots.
    """

    plural: ClassVar[str] = "differences"
    derived: ClassVar[tuple[str, ...]] = (*MeanRow.derived, "chance", "verdict")

    first: int
    last: int
    start: int
    series: Series
    slots: int
    mean: float
    against_group: str
    against_first: int
    against_last: int
    against_start: int
    against_slots: int
    against: float
    estimate: float
    standard_error: float
    low: float
    high: float
    bias: float | None = None
    bias_se: float | None = None

    @property
    def chance(self) -> float | None:
        """The chance that noise alone makes a difference this large, of either sign; None without an error."""
        if not self.standard_error:
            return None
        return math.erfc(abs(self.estimate) / self.standard_error / math.sqrt(2.0))

    @property
    def verdict(self) -> str:
        """ "more" or "less" if the 95 % interval leaves out 0, otherwise "unclear"."""
        if self.low > 0:
            return MORE
        return LESS if self.high < 0 else UNCLEAR


def chance_of(row: MeanDifference) -> str:
    """Return the chance of such a difference in words, such as "1 in 40"; "" without an error."""
    if row.chance is None:
        return ""
    return f"1 in {1 / row.chance:,.0f}" if row.chance > _RAREST else f"less than 1 in {1 / _RAREST:,.0f}"


class Side(NamedTuple):
    """What is asked for on one side: a ``group`` with its ``reports``, and its ``slots``, ascending."""

    reports: Tables
    group: str
    slots: Sequence[int]


class GroupNoise(NamedTuple):
    """The noise of a group's means at ``slot`` [k], ascending, over ``reports`` [k].

    ``band`` [k, lags]: the covariance of each mean with the mean that lies 0, 1, … slots before.
    """

    slot: Slots
    reports: Vector
    band: Vector


class Means(NamedTuple):
    """One side of a difference: its slots that have a number; arrays [slots], ascending.

    ``asked``: all slots of the side. ``choice``: a number that identifies the choice of θ from which ``removed`` comes.
    ``noise``: the group's noise at these slots and, as far as there are reports, at the slots of the cycle around each.
    """

    series: Series
    asked: Sequence[int]
    slot: Slots
    truncated: Vector
    reports: Vector
    removed: Removed
    choice: NDArray[np.int64]
    noise: GroupNoise

    def at(self, places: NDArray[np.intp]) -> "Means":
        """Return the side with only the slots at these places."""
        return self._replace(
            slot=self.slot[places],
            truncated=self.truncated[places],
            reports=self.reports[places],
            removed=self.removed.take(places),
            choice=self.choice[places],
        )

    @property
    def weights(self) -> Vector:
        """The weight of each slot of ``noise`` in the mean."""
        return np.isin(self.noise.slot, self.slot) / len(self.slot)

    def level_weights(self, cycle: int) -> Vector:
        """Return for each slot of ``noise`` how much its noise counts in the error that the levels add to the mean."""
        errors = self.removed.level / len(self.slot)
        return level_weights(errors, self.slot, self.noise.slot, self.noise.band[:, 0], cycle)


def difference(one: Means, other: Means, slot_seconds: int, cycle: int) -> MeanDifference | None:
    """Return the mean of ``one`` minus that of ``other``; None if a side has no slot with a number."""
    slots = paired((one.asked, one.slot), (other.asked, other.slot))
    one, other = (side.at(np.flatnonzero(np.isin(side.slot, of))) for side, of in zip((one, other), slots, strict=True))
    if not len(one.slot) or not len(other.slot):
        return None
    truncated = [float(side.truncated.mean()) for side in (one, other)]
    biases = [side.removed.bias for side in (one, other)]
    bias = bias_se = None
    removed = [0.0, 0.0]
    noise = _noise_variance((one, one.weights), (other, other.weights))
    if not any(np.isnan(each).any() for each in biases):
        removed = [float(each.mean()) for each in biases]
        with_level = _noise_variance(*((side, side.weights + side.level_weights(cycle)) for side in (one, other)))
        variance = _removed_variance(one, other, cycle) + with_level - noise
        bias, bias_se = removed[0] - removed[1], math.sqrt(max(variance, 0.0))
    return MeanDifference(
        first=min(one.asked),
        last=max(one.asked),
        start=min(one.asked) * slot_seconds,
        series=one.series,
        slots=len(one.slot),
        mean=truncated[0] + removed[0],
        against_group=other.series.group,
        against_first=min(other.asked),
        against_last=max(other.asked),
        against_start=min(other.asked) * slot_seconds,
        against_slots=len(other.slot),
        against=truncated[1] + removed[1],
        **Load.of(truncated[0] - truncated[1], math.sqrt(noise), bias, bias_se)._asdict(),
    )


def paired(*sides: tuple[Sequence[int], Slots]) -> list[Slots]:
    """Return the slots over which the mean of each side is taken. A side is (slots asked for, slots that have a
    number).

    If equally many slots were asked for on both sides, a slot counts only if its counterpart has a number, too. So a
    gap on one side does not make the two sides look different.
    """
    if len({len(asked) for asked, _ in sides}) > 1:
        return [known for _, known in sides]
    there = np.all([np.isin(asked, known) for asked, known in sides], axis=0)
    return [np.asarray(asked, dtype=np.int64)[there] for asked, _ in sides]


def _share(one: Means, other: Means) -> tuple[Means, Means] | None:
    """Return (the side whose reports are among those of the other, the other); None if the sides have no report in
    common.
    """
    groups = (one.series.group, other.series.group)
    if groups[0] == groups[1] or groups[1] == EVERYBODY:
        return one, other
    return (other, one) if groups[0] == EVERYBODY else None


def _noise_variance(*sides: tuple[Means, Vector]) -> float:
    """Return the variance of the noise of the first side minus that of the second.

    A side is given with the weight of each slot of its ``noise``; [k].
    """
    variance = sum(_product(side.noise, weights, weights) for side, weights in sides)
    both = _share(*(side for side, _ in sides))
    if both is not None:
        (part, weights), (whole, others) = sides if both[0] is sides[0][0] else sides[::-1]
        # For each slot of the part: the whole's weight, times the share of the whole's reports that the part has.
        place = np.minimum(np.searchsorted(whole.noise.slot, part.noise.slot), len(whole.noise.slot) - 1)
        there = whole.noise.slot[place] == part.noise.slot
        share = np.where(there, others[place] * part.noise.reports / whole.noise.reports[place], 0.0)
        variance -= 2.0 * _product(part.noise, weights, share)
    return max(variance, 0.0)


def _product(noise: GroupNoise, weights: Vector, others: Vector) -> float:
    """Return Σ_s Σ_t weights_s others_t Cov(noise of s, noise of t)."""
    total = float((weights * others) @ noise.band[:, 0])
    for lag in range(1, noise.band.shape[1]):
        place = np.searchsorted(noise.slot, noise.slot - lag)
        there = noise.slot[place] == noise.slot - lag
        here, before = np.flatnonzero(there), place[there]
        total += float((weights[here] * others[before] + others[here] * weights[before]) @ noise.band[here, lag])
    return total


def _removed_variance(one: Means, other: Means, cycle: int) -> float:
    """Return the variance of the difference of what truncation removes."""
    sides = [(one, 1.0 / len(one.slot)), (other, -1.0 / len(other.slot))]
    slot, choice = (np.concatenate([getattr(side, name) for side, _ in sides]) for name in ("slot", "choice"))
    fit, bias, explained, shape = (
        np.concatenate([weight * getattr(side.removed, name) for side, weight in sides])
        for name in ("fit", "bias", "explained", "shape")
    )
    doubt = float(explained.sum())
    if one.series.group != other.series.group and np.array_equal(one.slot, other.slot):
        doubt *= _BETWEEN
    variance = doubt**2 + float(np.square(_levelled(fit, bias, choice).sum()))
    variance += shape_variance(shape, slot, cycle)
    for side, weight in sides:
        variance += weight**2 * float(side.removed.alone.sum())
        if side.series.group != EVERYBODY:
            variance += _STAYING * (weight * float(side.removed.chance.sum())) ** 2
    both = _share(one, other)
    if both is not None:
        part, whole = both
        share = 1.0
        if part.series.group != whole.series.group:
            share = min(float(part.reports.mean() / whole.reports.mean()), 1.0)
        _, here, there = np.intersect1d(part.slot, whole.slot, assume_unique=True, return_indices=True)
        common = float(np.minimum(part.removed.alone[here], whole.removed.alone[there]).sum())
        variance -= 2.0 * share * common / (len(part.slot) * len(whole.slot))
    return max(variance, 0.0)


def _levelled(fit: Vector, bias: Vector, choice: NDArray[np.int64]) -> Vector:
    """Return the errors of the fit, scaled so that Σ|fit| / Σ|bias| is the same for the slots of every choice of θ.

    A later choice is made from the reports of the earlier choices and few more. So all choices err alike, although each
    estimates its own error anew.
    """
    levelled = fit.copy()
    usual = float(np.abs(bias).sum())
    for number in np.unique(choice):
        ones = choice == number
        own = float(np.abs(fit[ones]).sum())
        if own > 0 and usual > 0:
            levelled[ones] *= float(np.abs(fit).sum()) / usual * float(np.abs(bias[ones]).sum()) / own
    return levelled

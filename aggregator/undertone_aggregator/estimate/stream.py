"""The population mean of a stream campaign: per slot with its standard error, over slots with their covariance.

The reports show the mean of the *clipped* readings of the devices that reported: truncated to [low, theta], then moved
by at most the slew from one report to the next. The estimate adds the model of `undertone_aggregator.estimate.clipping`
for what clipping removes. The model starts from the level of readings, the mean over many slots around a slot. If the
noise of an estimate (of a slot, or of a mean over slots) is larger than half of this level, the estimate adds only a
part of what the model says. It adds nothing if the noise is larger than the whole level. What it does not add becomes a
part of the error.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import ReportOrigin, Tables
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.moments import LAGS, Layout, layout_of
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate.clipping import ClippingBias
from undertone_aggregator.estimate.difference import GroupNoise, MeanDifference, Means, Side, difference
from undertone_aggregator.estimate.estimates import RELEASED, Estimates, Load, RangeEstimate, Series
from undertone_aggregator.estimate.ranges import Places, by_run, spread_of
from undertone_aggregator.estimate.removed import Removed, error_of_mean
from undertone_shared.campaign import Campaign
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]
# The level of readings around a slot is the mean over this many cycles before and after it.
_LEVEL_CYCLES = 7
_TINY = 1e-300


@dataclass(frozen=True)
class Curve:
    """A series: means [k] at ``slots``, ascending, in the reading's unit.

    ``band`` [k, 65]: covariance of each mean's noise with the noise of the slot that lies 0 to 64 slots before.
    """

    slots: NDArray[np.int64]
    reports: NDArray[np.int64]
    mean: Vector
    band: Vector

    @property
    def standard_error(self) -> Vector:
        """Standard errors [k]."""
        return np.sqrt(self.band[:, 0])

    def covariance(self) -> Vector:
        """Return the covariance of the noise, [k, k]."""
        lag = self.slots[:, None] - self.slots[None, :]
        rows = np.broadcast_to(np.arange(len(self.slots))[:, None], lag.shape)
        lower = np.where((lag >= 0) & (lag <= LAGS), self.band[rows, np.clip(lag, 0, LAGS)], 0.0)
        return np.asarray(np.tril(lower) + np.tril(lower, -1).T)

    def carried(self, lag: int) -> Vector:
        """Return the regression coefficient of each slot's noise on that of the slot before it on its chain; [k].

        ``lag``: number of chains.
        """
        share = np.zeros(len(self.slots))
        newest: dict[int, int] = {}
        for i, slot in enumerate(self.slots.tolist()):
            before = newest.get(slot % lag)
            if before is not None and slot - self.slots[before] <= LAGS:
                share[i] = self.band[i, slot - self.slots[before]] / self.band[before, 0]
            newest[slot % lag] = i
        return share


class _Clipped(NamedTuple):
    """What the model says that clipping removes from some slots (``whole``), and the slots' ``levels`` [k].

    A level is the mean of the readings around the slot, minus the offset; ``whole`` is computed from it.
    """

    levels: Vector
    whole: Removed

    def take(self, places: Places) -> "_Clipped":
        """Return what is known of the slots at these places."""
        return _Clipped(self.levels[places], self.whole.take(places))

    def removed(self, noise: Vector) -> Removed:
        """Return what is added to estimates with this ``noise`` (standard errors [k]), and the error of that part."""
        added = np.clip(2.0 - 2.0 * noise / np.maximum(np.abs(self.levels), _TINY), 0.0, 1.0)
        left = (1.0 - added) * self.whole.bias
        return self.whole._replace(bias=added * self.whole.bias, fit=np.hypot(self.whole.fit, left))


class StreamReconstruction:
    """The `Estimator` of streams: it uses their moments, and each epoch's own rule."""

    def __init__(self, timeline: Timeline) -> None:
        self._rules: dict[bytes, tuple[Campaign, StreamRule, Layout, Vector]] = {}
        self._biases: dict[StreamRule, ClippingBias] = {}
        for epoch in timeline.epochs:
            rule = epoch.campaign.rule
            if isinstance(rule, StreamRule):
                layout = layout_of(rule)
                # A report's age is its number within its chain. The largest age here also stands for all higher ages.
                variances = [release_variance(rule, age) for age in range(1, layout.ages + 1)]
                self._rules[epoch.campaign.fingerprint] = (epoch.campaign, rule, layout, np.array(variances))

    @property
    def memory(self) -> int:
        """Number of earlier slots whose noise is correlated with a slot's."""
        return LAGS

    @property
    def chains(self) -> int:
        """Number of interleaved chains of the newest rule."""
        return int(self._newest[1].lag)

    def curve(self, reports: Tables, coordinate: int = 1) -> Curve:
        """Return the series of one group's reports; slots without reports are left out."""
        known = [(self._rules[origin.fingerprint], *reports[origin]) for origin in self._known(reports)]
        slots = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(at for _, at, _ in known)]))
        number, total, band = np.zeros(len(slots)), np.zeros(len(slots)), np.zeros((len(slots), LAGS + 1))
        for (campaign, rule, layout, variances), at, counts in known:
            place, unit = np.searchsorted(slots, at), float(rule.width)
            steady, share = unit**2 * release_variance(rule), rule.reuse / (1 << rule.shift)
            n, moment = counts[:, 0], layout.sum_of(counts, coordinate - 1)
            number[place] += n
            total[place] += n * (campaign.offset + rule.low + unit / 2) + moment * unit / rule.levels
            # Each slot is computed by itself, because the last digits of a product of matrices may depend on the number
            # of slots.
            band[place, 0] += unit**2 * np.array([ages @ variances for ages in layout.ages_of(counts)])
            for lag in range(rule.lag, LAGS + 1, rule.lag):
                both = np.isin(at - lag, slots)
                pairs = layout.pairs(counts)[both, lag - 1]
                band[place[both], lag] += pairs * steady * share ** (lag // rule.lag)
        scale = np.where(number > 0, number, 1.0)
        for lag in range(LAGS + 1):
            # The band is 0 if no slot lies ``lag`` slots before.
            before = np.searchsorted(slots, slots - lag)
            band[:, lag] /= scale * scale[before]
        return Curve(slots, number.astype(np.int64), total / scale, band)

    def estimates(self, reports: Tables, group: str) -> Estimates:
        """Return one estimate per slot and coordinate, by column."""
        campaign, rule = self._newest[:2]
        parts = []
        for series, curve in self._curves(reports, group):
            removed = self._removed_from_slots(curve)
            rows = Estimates.each(
                len(curve.slots),
                group=group,
                kind=RELEASED,
                coordinate=series.coordinate,
                slot=curve.slots,
                start=curve.slots * campaign.slot_seconds,
                reports=curve.reports,
                cohort=0,
                theta=campaign.theta,
                carried=curve.carried(rule.lag),
            )
            parts.append(rows.with_load(curve.mean, curve.standard_error, removed.bias, removed.standard_error))
        return Estimates.together(parts)

    def warnings(self, estimates: Estimates) -> list[str]:
        """Return no warnings: a stream's range does not follow from readings, so it cannot become stale."""
        return []

    def ranges(self, reports: Tables, group: str, every: int) -> list[RangeEstimate]:
        """Return means over runs of ``every`` slots, with standard errors for correlated noise."""
        ranges = []
        for series, curve in self._curves(reports, group):
            clipped = self._clipped(curve)
            for first, last, places in by_run(curve.slots, every):
                ranges.append(self._mean(first, last, series, curve, clipped, places))
        return sorted(ranges, key=lambda estimate: (estimate.first, estimate.series))

    def means(self, reports: Tables, group: str, slots: Collection[int]) -> list[RangeEstimate]:
        """Return the mean over the given slots that have reports, with the standard error for correlated noise."""
        rows = []
        for series, curve in self._curves(reports, group):
            places = np.flatnonzero(np.isin(curve.slots, list(slots)))
            if len(places):
                rows.append(self._mean(min(slots), max(slots), series, curve, self._clipped(curve), places))
        return rows

    def differences(self, one: Side, other: Side) -> list[MeanDifference]:
        """See `estimate.difference`. The noise of a group's neighbouring slots is correlated."""
        both = (one, other)
        reports = [side.reports for side in both]
        if one.group == other.group:
            reports = [_together(*reports)] * 2
        campaign = self._newest[0]
        curves = [dict(self._curves(tables, side.group)) for tables, side in zip(reports, both, strict=True)]
        rows = []
        for coordinate in self._coordinates if all(curves) else ():
            first, second = (
                self._side(Series(side.group, coordinate), side, of[Series(side.group, coordinate)])
                for side, of in zip(both, curves, strict=True)
            )
            row = difference(first, second, campaign.slot_seconds, campaign.cycle)
            rows += [] if row is None else [row]
        return rows

    def _side(self, series: Series, side: Side, curve: Curve) -> Means:
        """Return what is known of one side of a difference."""
        places = np.flatnonzero(np.isin(curve.slots, side.slots))
        reports = curve.reports.astype(np.float64)
        noise = GroupNoise(curve.slots, reports, curve.band)
        removed = self._removed_from_slots(curve).take(places)
        slots, mean = curve.slots[places], curve.mean[places]
        choice = np.zeros(len(places), dtype=np.int64)
        return Means(series, side.slots, slots, mean, reports[places], removed, choice, noise)

    def _mean(
        self, first: int, last: int, series: Series, curve: Curve, clipped: "_Clipped", places: Places
    ) -> RangeEstimate:
        """Return the mean over the curve's slots at some ``places``. ``clipped``: `_clipped` of the curve.

        The variance of its noise is the sum of these slots' covariances over n²; covariances with other slots are not
        included.
        """
        chosen, n = curve.slots[places], len(places)
        both = np.array([curve.band[places, lag][np.isin(chosen - lag, chosen)].sum() for lag in range(LAGS + 1)])
        mean = float(curve.mean[places].mean())
        error = math.sqrt(float(2 * both.sum() - both[0])) / n
        parts = clipped.take(places).removed(np.full(n, error))
        bias = float(parts.bias.sum()) / n
        bias_se = error_of_mean(parts, chosen, curve.slots, curve.band[:, 0], self._newest[0].cycle)
        return RangeEstimate(
            first=first,
            last=last,
            start=first * self._newest[0].slot_seconds,
            series=series,
            slots=n,
            reports=int(curve.reports[places].sum()),
            spread=spread_of(curve.mean[places], curve.standard_error[places]),
            **Load.of(mean, error, bias, bias_se)._asdict(),
        )

    def _removed_from_slots(self, curve: Curve) -> Removed:
        """Return what clipping removes from each slot's mean.

        The noise of a slot is taken to be the mean standard error of the slots around it.
        """
        first, end = self._around(curve)
        sums = np.append(0.0, np.cumsum(curve.standard_error))
        return self._clipped(curve).removed((sums[end] - sums[first]) / (end - first))

    def _clipped(self, curve: Curve) -> "_Clipped":
        """Return what the model says of each slot, from the level of the slots around it."""
        campaign, rule = self._newest[:2]
        if rule not in self._biases:
            self._biases[rule] = ClippingBias(rule, campaign.bound, campaign.slot_seconds)
        first, end = self._around(curve)
        sums = np.append(0.0, np.cumsum(curve.mean - campaign.offset))
        levels = (sums[end] - sums[first]) / (end - first)
        return _Clipped(levels, self._biases[rule].at(levels))

    def _around(self, curve: Curve) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return where in the curve the slots around each slot begin and end."""
        reach = _LEVEL_CYCLES * self._newest[0].cycle
        first = np.searchsorted(curve.slots, curve.slots - reach)
        return first, np.searchsorted(curve.slots, curve.slots + reach, side="right")

    @property
    def _newest(self) -> tuple[Campaign, StreamRule, Layout, Vector]:
        return max(self._rules.values(), key=lambda known: known[0].epoch)

    @property
    def _coordinates(self) -> range:
        """The coordinates of a reading, which are the same in all epochs of a campaign."""
        return range(1, self._newest[1].dimension + 1)

    def _known(self, reports: Tables) -> list[ReportOrigin]:
        return [origin for origin in reports if origin.fingerprint in self._rules]

    def _curves(self, reports: Tables, group: str) -> Iterator[tuple[Series, Curve]]:
        """Yield every coordinate's series with its curve."""
        if self._known(reports):
            for coordinate in self._coordinates:
                yield Series(group, coordinate), self.curve(reports, coordinate)


def _together(one: Tables, other: Tables) -> Tables:
    """Return the reports of both. If a slot is in both, its reports are the same there, and are taken once."""
    tables = {}
    for origin in {**one, **other}:
        parts = [each[origin] for each in (one, other) if origin in each]
        slots, first = np.unique(np.concatenate([at for at, _ in parts]), return_index=True)
        tables[origin] = slots, np.concatenate([counts for _, counts in parts])[first]
    return tables

"""The population mean of a stream campaign: per slot with its standard error, over slots with their covariance.

The reports show the mean of the *clipped* readings of the devices that reported: truncated to [low, theta], then moved
by at most the slew from one report to the next. The estimate adds the model of `undertone_aggregator.estimate.clipping`
for what clipping removes.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import Compact
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.moments import LAGS, Layout, layout_of
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, add_counts
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate.clipping import ClippingBias
from undertone_aggregator.estimate.estimates import RELEASED, Estimate, Estimates, Load, RangeEstimate, Series
from undertone_aggregator.estimate.ranges import spread_of
from undertone_aggregator.estimate.removed import Removed, error_of_mean
from undertone_shared.campaign import Campaign
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]
# The level of readings around a slot is the mean over this many cycles before and after it.
_LEVEL_CYCLES = 7


@dataclass(frozen=True)
class Curve:
    """A series: means [k] at ``slots``, ascending, in the reading's unit.

    ``band`` [k, 65]: covariance of each mean's noise with that of the slot 0 to 64 slots before.
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
        """Return the regression of each slot's noise on that of the last slot of the same chain out of ``lag``, [k]."""
        share = np.zeros(len(self.slots))
        newest: dict[int, int] = {}
        for i, slot in enumerate(self.slots.tolist()):
            before = newest.get(slot % lag)
            if before is not None and slot - self.slots[before] <= LAGS:
                share[i] = self.band[i, slot - self.slots[before]] / self.band[before, 0]
            newest[slot % lag] = i
        return share


class StreamReconstruction:
    """The `Estimator` of streams: it uses their moments, and each epoch's own rule."""

    def __init__(self, timeline: Timeline) -> None:
        self._rules: dict[bytes, tuple[Campaign, StreamRule, Layout, Vector]] = {}
        self._biases: dict[StreamRule, ClippingBias] = {}
        for epoch in timeline.epochs:
            rule = epoch.campaign.rule
            if isinstance(rule, StreamRule):
                layout = layout_of(rule)
                # A report's age is its number within its chain. The largest age here represents all higher ages, whose
                # variance is at most that of the largest age or the steady one.
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

    def curve(self, partial: Mapping[Key, Counts], group: str = EVERYBODY, coordinate: int = 1) -> Curve:
        """Return the series of one group, ``all`` for all devices together; slots without reports are left out."""
        cells: dict[tuple[int, bytes], Counts] = {}
        for key, counts in partial.items():
            if key.fingerprint in self._rules and group in (key.group, EVERYBODY):
                at = (key.slot, key.fingerprint)
                cells[at] = add_counts(cells[at], counts) if at in cells else counts
        slots = sorted({slot for slot, _ in cells})
        place = {slot: i for i, slot in enumerate(slots)}
        reports, total, band = np.zeros(len(slots)), np.zeros(len(slots)), np.zeros((len(slots), LAGS + 1))
        for (slot, fingerprint), counts in cells.items():
            campaign, rule, layout, variances = self._rules[fingerprint]
            i, unit = place[slot], float(rule.width)
            n, moment, _ = layout.sums(counts, coordinate - 1)
            reports[i] += n
            total[i] += n * (campaign.offset + rule.low + unit / 2) + moment * unit / rule.levels
            band[i, 0] += unit**2 * float(layout.ages_of(counts) @ variances)
            steady = unit**2 * release_variance(rule)
            share = rule.reuse / (1 << rule.shift)
            for lag in range(rule.lag, LAGS + 1, rule.lag):
                if slot - lag in place:
                    band[i, lag] += int(layout.pairs(counts)[lag - 1]) * steady * share ** (lag // rule.lag)
        scale = np.where(reports > 0, reports, 1.0)
        for slot, i in place.items():
            for lag in np.flatnonzero(band[i]).tolist():
                band[i, lag] /= scale[i] * scale[place[slot - lag]]
        return Curve(np.array(slots, dtype=np.int64), reports.astype(np.int64), total / scale, band)

    def table(self, reports: Compact, group: str) -> Estimates:
        """Return ``estimates`` of one group's reports, by column."""
        return Estimates.of(self.estimates(reports.partial(group), [group]))

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """Return one estimate per slot, group and coordinate."""
        estimates: list[Estimate] = []
        for series, curve in self._curves(partial, groups):
            campaign, rule = self._newest[:2]
            carried, removed = curve.carried(rule.lag), self._removed(curve)
            errors = removed.standard_error
            for i, slot in enumerate(curve.slots.tolist()):
                load = Load.of(
                    float(curve.mean[i]), float(curve.standard_error[i]), float(removed.bias[i]), float(errors[i])
                )
                estimates.append(
                    Estimate(
                        slot=slot,
                        start=slot * campaign.slot_seconds,
                        series=series,
                        kind=RELEASED,
                        reports=int(curve.reports[i]),
                        cohort=0,
                        theta=campaign.theta,
                        carried=float(carried[i]),
                        **load._asdict(),
                    )
                )
        return sorted(estimates, key=lambda estimate: (estimate.slot, estimate.series))

    def warnings(self, estimates: Sequence[Estimate]) -> list[str]:
        """Return no warnings: a stream's range is not chosen from readings, so that it cannot become stale."""
        return []

    def ranges(
        self, partial: Mapping[Key, Counts], every: int, groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Return means over runs of ``every`` slots, with standard errors for correlated noise."""
        ranges = []
        for series, curve in self._curves(partial, groups):
            removed = self._removed(curve)
            for number in sorted(set((curve.slots // every).tolist())):
                first, last = number * every, number * every + every - 1
                ranges.append(self._mean(first, last, series, curve, removed, curve.slots // every == number))
        return sorted(ranges, key=lambda estimate: (estimate.first, estimate.series))

    def means(
        self, partial: Mapping[Key, Counts], slots: Collection[int], groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Return the mean over the given slots that have reports, with the standard error for correlated noise."""
        rows = []
        for series, curve in self._curves(partial, groups):
            inside = np.isin(curve.slots, list(slots))
            if inside.any():
                rows.append(self._mean(min(slots), max(slots), series, curve, self._removed(curve), inside))
        return rows

    def _mean(
        self, first: int, last: int, series: Series, curve: Curve, removed: Removed, inside: NDArray[np.bool_]
    ) -> RangeEstimate:
        """Return the mean over the curve's slots that are ``inside`` [k]; ``removed`` [k] by clipping.

        The variance of its noise is the sum of these slots' covariances over n²; covariances with other slots are not
        included.
        """
        chosen, n = curve.slots[inside], int(inside.sum())
        both = np.array([curve.band[inside, lag][np.isin(chosen - lag, chosen)].sum() for lag in range(LAGS + 1)])
        mean = float(curve.mean[inside].mean())
        error = math.sqrt(float(2 * both.sum() - both[0])) / n
        parts = removed.take(np.flatnonzero(inside))
        bias = float(parts.bias.sum()) / n
        bias_se = error_of_mean(parts, chosen, self._newest[0].cycle)
        return RangeEstimate(
            first=first,
            last=last,
            start=first * self._newest[0].slot_seconds,
            series=series,
            slots=n,
            reports=int(curve.reports[inside].sum()),
            spread=spread_of(curve.mean[inside].tolist(), curve.standard_error[inside].tolist()),
            **Load.of(mean, error, bias, bias_se)._asdict(),
        )

    def _removed(self, curve: Curve) -> Removed:
        """Return the bias of each slot's mean that comes from clipping the steps between two readings."""
        campaign, rule = self._newest[:2]
        if rule not in self._biases:
            self._biases[rule] = ClippingBias(rule, campaign.bound)
        reach = _LEVEL_CYCLES * campaign.cycle
        first = np.searchsorted(curve.slots, curve.slots - reach)
        end = np.searchsorted(curve.slots, curve.slots + reach, side="right")
        sums = np.append(0.0, np.cumsum(curve.mean - campaign.offset))
        return self._biases[rule].at((sums[end] - sums[first]) / (end - first))

    @property
    def _newest(self) -> tuple[Campaign, StreamRule, Layout, Vector]:
        return max(self._rules.values(), key=lambda known: known[0].epoch)

    def _curves(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None) -> Iterator[tuple[Series, Curve]]:
        """Yield every wanted series with its curve."""
        keys = [key for key in partial if key.fingerprint in self._rules]
        dimension = max((self._rules[key.fingerprint][1].dimension for key in keys), default=1)
        wanted = None if groups is None else set(groups)
        for group in sorted({key.group for key in keys} | {EVERYBODY}):
            if keys and (wanted is None or group in wanted):
                for coordinate in range(1, dimension + 1):
                    yield Series(group, coordinate), self.curve(partial, group, coordinate)

"""The population mean of a stream campaign: per slot with its standard error, over slots with their covariance.

The mean is of the *clipped* readings of the devices that reported: truncated to [low, theta], then moved by at most
the slew from one report to the next. What clipping removes is not in the standard error.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect.admission import EVERYBODY
from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.moments import Layout, layout_of
from undertone_aggregator.collect.partial import Counts, Key, add_counts
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate.ranges import RangeEstimate
from undertone_aggregator.estimate.reconstruct import Estimate, Z
from undertone_aggregator.estimate.smooth import LONGEST, smooth
from undertone_shared.campaign import Campaign
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]

STREAM = "stream"
SMOOTHED = "smoothed"


@dataclass(frozen=True)
class Series:
    """Means [k] at ``slots``, ascending, with the covariance [k, k] of their noise, in the reading's unit."""

    slots: tuple[int, ...]
    reports: tuple[int, ...]
    mean: Vector
    covariance: Vector

    @property
    def standard_error(self) -> Vector:
        """Standard errors [k]."""
        return np.sqrt(np.diag(self.covariance))


class StreamReconstruction:
    """Estimates from the moments of stream campaigns, epochs by their own rules."""

    def __init__(self, timeline: Timeline) -> None:
        self._rules: dict[bytes, tuple[Campaign, StreamRule, Layout, Vector]] = {}
        for epoch in timeline.epochs:
            rule = epoch.campaign.stream
            if rule is not None:
                layout = layout_of(rule)
                # The last age stands for all older ones, whose variance is no larger than its own or the steady one.
                variances = [release_variance(rule, age) for age in range(1, layout.ages + 1)]
                self._rules[epoch.campaign.fingerprint] = (epoch.campaign, rule, layout, np.array(variances))

    def series(self, partial: Mapping[Key, Counts], group: str = EVERYBODY, coordinate: int = 0) -> Series:
        """The series of one group, ``all`` for everybody together; slots without reports are left out."""
        cells: dict[tuple[int, bytes], Counts] = {}
        for key, counts in partial.items():
            if key.fingerprint in self._rules and group in (key.group, EVERYBODY):
                at = (key.slot, key.fingerprint)
                cells[at] = add_counts(cells[at], counts) if at in cells else counts
        slots = sorted({slot for slot, _ in cells})
        place = {slot: i for i, slot in enumerate(slots)}
        reports = np.zeros(len(slots))
        total = np.zeros(len(slots))
        noise = np.zeros((len(slots), len(slots)))
        for (slot, fingerprint), counts in cells.items():
            campaign, rule, layout, variances = self._rules[fingerprint]
            i, unit = place[slot], float(rule.width)
            n, moment, _ = layout.sums(counts, coordinate)
            reports[i] += n
            total[i] += n * (campaign.offset + rule.low + unit / 2) + moment * unit / rule.levels
            noise[i, i] += unit**2 * float(layout.ages_of(counts) @ variances)
            steady = unit**2 * release_variance(rule)
            share = rule.reuse / (1 << rule.shift)
            for lag, pairs in enumerate(layout.pairs(counts), 1):
                j = place.get(slot - lag)
                if pairs and j is not None and lag % rule.lag == 0:
                    noise[i, j] += int(pairs) * steady * share ** (lag // rule.lag)
                    noise[j, i] = noise[i, j]
        scale = np.where(reports > 0, reports, 1.0)
        return Series(
            tuple(slots),
            tuple(int(n) for n in reports),
            total / scale,
            noise / np.outer(scale, scale),
        )

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """One estimate per slot and group; further coordinates as groups ``<group>-2``, ``<group>-3``, ..."""
        found = []
        for name, group, coordinate in self._names(partial, groups):
            series = self.series(partial, group, coordinate)
            found += self._of(series, series.mean, series.standard_error, name, STREAM)
        return sorted(found, key=lambda one: (one.slot, one.group))

    def smoothed(
        self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None, *, cycle: int | None = None
    ) -> list[Estimate]:
        """The same, smoothed over the newest `LONGEST` slots; ``cycle``: with a season of so many slots."""
        found = []
        for name, group, coordinate in self._names(partial, groups):
            series = _newest(self.series(partial, group, coordinate))
            if series.slots:
                fit = smooth(series.slots, series.mean, series.covariance, cycle=cycle)
                found += self._of(series, fit.mean, fit.standard_error, name, SMOOTHED)
        return sorted(found, key=lambda one: (one.slot, one.group))

    def ranges(
        self, partial: Mapping[Key, Counts], every: int, groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Means over runs of ``every`` slots with the standard error that correlated noise leaves."""
        found = []
        for name, group, coordinate in self._names(partial, groups):
            series = self.series(partial, group, coordinate)
            slots = np.array(series.slots, dtype=np.int64)
            for number in sorted(set((slots // every).tolist())):
                inside = np.flatnonzero(slots // every == number)
                n = len(inside)
                mean = float(series.mean[inside].mean())
                error = math.sqrt(float(series.covariance[np.ix_(inside, inside)].sum())) / n
                found.append(
                    RangeEstimate(
                        first=number * every,
                        last=number * every + every - 1,
                        start=number * every * self._newest[0].slot_seconds,
                        group=name,
                        slots=n,
                        reports=sum(series.reports[i] for i in inside),
                        estimate=mean,
                        total=mean * n,
                        standard_error=error,
                        low=mean - Z * error,
                        high=mean + Z * error,
                        bias=None,
                        bias_se=None,
                        low_raw=None,
                        high_raw=None,
                    )
                )
        return sorted(found, key=lambda one: (one.first, one.group))

    @property
    def _newest(self) -> tuple[Campaign, StreamRule, Layout, Vector]:
        return max(self._rules.values(), key=lambda one: one[0].epoch)

    def _names(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None) -> Iterable[tuple[str, str, int]]:
        """(name, group, coordinate) of every series that is wanted."""
        mine = [key for key in partial if key.fingerprint in self._rules]
        dimension = max((self._rules[key.fingerprint][1].dimension for key in mine), default=1)
        wanted = None if groups is None else set(groups)
        for group in sorted({key.group for key in mine} | {EVERYBODY}):
            for coordinate in range(dimension):
                name = group if coordinate == 0 else f"{group}-{coordinate + 1}"
                if wanted is None or name in wanted:
                    yield name, group, coordinate

    def _of(self, series: Series, mean: Vector, error: Vector, group: str, kind: str) -> list[Estimate]:
        campaign, rule = self._newest[:2]
        found = []
        for slot, n, m, e in zip(series.slots, series.reports, mean, error, strict=True):
            m, e = float(m), float(e) if math.isfinite(e) else 0.0
            start = slot * campaign.slot_seconds
            found.append(Estimate(slot, start, group, kind, n, 0, m, e, m - Z * e, m + Z * e, rule.theta))
        return found


def _newest(series: Series) -> Series:
    return Series(
        series.slots[-LONGEST:],
        series.reports[-LONGEST:],
        series.mean[-LONGEST:],
        series.covariance[-LONGEST:, -LONGEST:],
    )

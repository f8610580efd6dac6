"""Sums of an epoch's reports over all groups, by cycle and time of day: decisions about θ are made from these sums.

A decision needs the reports of many weeks. The reports of old slots never change, so their sums are computed once and
stay in memory, and each decision reads the newest slots only.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from undertone_aggregator.counts.epochs import Epoch, Timeline, late_seconds
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial
from undertone_aggregator.estimate.estimates import Estimates
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.threshold.day import piece_at, pieces_of
from undertone_shared import report

# (first, last, kind of report) -> the store's Partial of this kind, for the slots first <= slot <= last.
Reader = Callable[[int, int, int], Partial]

# Reports are accepted for a fixed time after their slot. A slot counts as final after this multiple of that time,
# because an accepted report may be committed later.
_FINAL = 2


@dataclass
class EpochSums:
    """Sums of one kind of report in the slots ``start`` <= slot < ``stop`` of an epoch.

    ``totals``: slot -> number of its reports, with those that devices made under another epoch. ``cycles``: number of
    the cycle -> histograms of the epoch's own reports [pieces, symbols], one for each piece of the cycle
    (`threshold.day.piece_at`). ``means``: slot -> estimated mean of the truncated readings; empty for the cohort's
    reports.
    """

    start: int
    stop: int
    totals: dict[int, int] = field(default_factory=dict)
    cycles: dict[int, Counts] = field(default_factory=dict)
    means: Estimates = field(default_factory=lambda: Estimates.of([]))

    def with_reports(self, stop: int, partial: Mapping[Key, Counts], means: Estimates, epoch: Epoch) -> "EpochSums":
        """Return these sums with ``partial`` and ``means`` added, which are of the slots self.stop <= slot < stop."""
        cycle = epoch.campaign.cycle
        totals, cycles, grown = dict(self.totals), dict(self.cycles), set[int]()
        for key, counts in partial.items():
            totals[key.slot] = totals.get(key.slot, 0) + int(counts.sum())
            if key.fingerprint != epoch.campaign.fingerprint:
                continue
            number = key.slot // cycle
            if number not in grown:
                grown.add(number)
                empty = np.zeros((pieces_of(cycle), len(counts)), dtype=np.int64)
                cycles[number] = cycles.get(number, empty).astype(np.int64)
            cycles[number][piece_at(key.slot, cycle)] += counts
        for number in grown:
            # Use the smallest integers that hold the counts, because a year of cycles stays in memory.
            cycles[number] = cycles[number].astype(np.min_scalar_type(int(cycles[number].max())))
        return EpochSums(self.start, stop, totals, cycles, Estimates.together([self.means, means]))


class SettledSums:
    """The sums of a campaign's epochs. Those of final slots are kept from one decision to the next."""

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, int], EpochSums] = {}

    def read(self, read: Reader, timeline: Timeline, epoch: Epoch, slots: range, kind: int, now: int) -> EpochSums:
        """Return the sums of one kind of report in ``slots`` of an epoch, as the store has them at Unix second ``now``.

        Only slots whose sums are not kept in memory are read from the store.
        """
        campaign = epoch.campaign
        key = (campaign.fingerprint, kind)
        kept = self._kept.get(key)
        if kept is None or kept.start != slots.start or kept.stop > slots.stop:
            kept = EpochSums(slots.start, slots.start)
        partial = Partial.gather(
            (row._replace(group=EVERYBODY), counts) for row, counts in read(kept.stop, slots.stop - 1, kind).items()
        )
        means = Estimates.of([])
        if kind == report.REPORT:
            means = Reconstruction(timeline).truncated(Histograms.of(partial).group(EVERYBODY), EVERYBODY)
        seconds = campaign.slot_seconds
        late = _FINAL * late_seconds(seconds)
        final = min(max((now - late) // seconds, kept.stop), slots.stop)
        kept = self._kept[key] = kept.with_reports(
            final,
            {row: counts for row, counts in partial.items() if row.slot < final},
            means.take(means.slot < final),
            epoch,
        )
        return kept.with_reports(
            slots.stop,
            {row: counts for row, counts in partial.items() if row.slot >= final},
            means.take(means.slot >= final),
            epoch,
        )

    def forget_others(self, epochs: Collection[bytes]) -> None:
        """Forget the sums of all epochs but those with these fingerprints."""
        self._kept = {key: sums for key, sums in self._kept.items() if key[0] in epochs}

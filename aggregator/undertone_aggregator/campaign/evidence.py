"""Data for a decision about θ from the store: the histograms of each epoch, and the number of devices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import Counts, Partial
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import CohortCounts, ReportCounts
from undertone_aggregator.threshold.day import Day, Phases, day_of, piece_at, pieces_of
from undertone_shared import report

# A function that reads the Partial of slots first <= slot <= last, for one kind of report.
Reader = Callable[[int, int, int], Partial]

# Number of past epochs whose reports are used for choosing the threshold.
MEMORY_EPOCHS = 16


@dataclass(frozen=True)
class Evidence:
    """The data at Unix second ``now``; ``read`` reads the store."""

    plan: CampaignPlan
    timeline: Timeline
    read: Reader
    now: int

    @property
    def settled(self) -> int:
        """The newest slot whose reports have all arrived."""
        return self.now // self.plan.slot_seconds - self.plan.settle_slots - 1

    def cohort(self) -> dict[Epoch, CohortCounts]:
        """Return the cohort's histogram of each epoch that has one, oldest first, for the remembered epochs."""
        histograms = {}
        for number, epoch in self._remembered():
            first, last = self._judged(number)
            counts = _sum(epoch, self.read(first, last, report.COHORT))
            if counts is None and epoch.phase == THRESHOLD_PHASE:
                # No device reported in the planned slots, so later ones are used.
                counts = _sum(epoch, self.read(first, self.settled, report.COHORT))
            cohort = epoch.campaign.cohort
            if counts is not None and cohort is not None:
                histograms[epoch] = CohortCounts(cohort.mechanism, counts)
        return histograms

    def reports(self) -> list[ReportCounts]:
        """Return the report phase's own histograms of settled slots, which refine θ at no cost in privacy.

        Only epochs with one range are used, because a block's histogram is from its own time of day.
        """
        histograms = []
        for number, epoch in self._remembered():
            rule = epoch.report
            if rule is None or rule.low or len(rule.ranges) > 1:
                continue
            counts = _sum(epoch, self.read(*self._judged(number), report.REPORT))
            if counts is not None:
                histograms.append(ReportCounts.of(rule.mechanism, rule.theta, counts))
        return histograms

    def day(self) -> Day | None:
        """Return the distributions by time of day, from the cohort's and the report phase's histograms."""
        histograms: list[Phases] = []
        for number, epoch in self._remembered():
            first, last = self._judged(number)
            cohort, rule = epoch.campaign.cohort, epoch.report
            if cohort is not None:
                parts = self._parts(epoch, self.read(first, last, report.COHORT), cohort.mechanism.symbols)
                if parts.any():
                    histograms.append(Phases(CohortCounts(cohort.mechanism, parts.sum(axis=0)), parts))
            if rule is None or rule.low:
                continue
            parts = self._parts(epoch, self.read(first, last, report.REPORT), rule.mechanism.symbols)
            ends = [start for start, _, _ in rule.ranges[1:]] + [self.plan.cycle]
            for (start, _, theta), end in zip(rule.ranges, ends, strict=True):
                mine = np.zeros_like(parts)
                inside = slice(piece_at(start, self.plan.cycle), piece_at(end - 1, self.plan.cycle) + 1)
                mine[inside] = parts[inside]
                if mine.any():
                    histograms.append(Phases(ReportCounts.of(rule.mechanism, theta, mine.sum(axis=0)), mine))
        return day_of(histograms, self.plan.bound, self.plan.cycle)

    def _parts(self, epoch: Epoch, partial: Partial, symbols: int) -> Counts:
        """Return the epoch's histograms [pieces, symbols], one for each piece of the cycle, a time of day."""
        cycle = self.plan.cycle
        parts = np.zeros((pieces_of(cycle), symbols), dtype=np.int64)
        for key, counts in partial.items():
            if key.fingerprint == epoch.campaign.fingerprint:
                parts[piece_at(key.slot, cycle)] += counts
        return parts

    def devices(self) -> float:
        """Return how many devices report now: the median over the slots since the last decision, including empty ones.

        No slot before the newest epoch's first one is used. In a threshold round its planned slots are used.
        """
        first, last = self._judged(len(self.timeline) - 1)
        return self._present(max(first, last - self.plan.epoch_slots + 1), last)

    def most_devices(self) -> float:
        """Return the largest median number of reporting devices at the beginning of any remembered epoch."""
        every = self.plan.epoch_slots
        earliest = self.settled - MEMORY_EPOCHS * every
        sizes = [0.0]
        for number, _ in self._remembered():
            first, last = self._judged(number)
            if first >= earliest:
                sizes.append(self._present(first, min(last, first + every - 1)))
        return max(sizes)

    def _present(self, first: int, last: int) -> float:
        """Return the median over slots of the number of reports; 0 for an empty slot or no slot."""
        if last < first:
            return 0.0
        totals = np.zeros(last - first + 1)
        for kind in (report.COHORT, report.REPORT):
            for key, counts in self.read(first, last, kind).items():
                totals[key.slot - first] += int(counts.sum())
        return float(np.median(totals))

    def _remembered(self) -> Iterator[tuple[int, Epoch]]:
        for number in range(max(len(self.timeline) - MEMORY_EPOCHS, 0), len(self.timeline)):
            yield number, self.timeline.epochs[number]

    def _judged(self, number: int) -> tuple[int, int]:
        """Return the first and last slot of an epoch that are used for choosing θ.

        Of a threshold round these are its planned slots, of any other epoch all of its settled slots.
        """
        campaign = self.timeline.epochs[number].campaign
        if campaign.report is None:
            planned = self.plan.rounds[min(number, len(self.plan.rounds) - 1)]
            return campaign.first_slot, min(campaign.first_slot + planned - 1, self.settled)
        last = min(campaign.last_slot, self.settled)
        if number + 1 < len(self.timeline):
            last = min(last, self.timeline.epochs[number + 1].campaign.first_slot - 1)
        return campaign.first_slot, last


def _sum(epoch: Epoch, partial: Partial) -> Counts | None:
    """Return the sum of all histograms of one epoch; None if there is no report."""
    mine = [counts for key, counts in partial.items() if key.fingerprint == epoch.campaign.fingerprint]
    total: Counts | None = np.sum(mine, axis=0, dtype=np.int64) if mine else None
    return total if total is not None and total.sum() else None

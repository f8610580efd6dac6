"""What the store knows for a decision about θ: the histograms of each epoch, and the number of devices."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from undertone_aggregator.campaign.aging import Ageing, Move
from undertone_aggregator.campaign.epoch_sums import EpochSums, Reader, SettledSums
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import Counts
from undertone_aggregator.estimate.calendar import calendar
from undertone_aggregator.estimate.estimates import Estimates
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import CohortCounts, ReportCounts
from undertone_aggregator.threshold.day import Day, Phases, day_of, piece_at
from undertone_shared import report

# Number of past epochs whose reports are used for choosing the threshold.
MEMORY_EPOCHS = 16


@dataclass(frozen=True)
class Evidence:
    """The data at Unix second ``now``.

    ``read`` reads the store; ``kept`` holds the sums that earlier decisions computed.
    """

    plan: CampaignPlan
    timeline: Timeline
    read: Reader
    now: int
    kept: SettledSums = field(default_factory=SettledSums)

    @property
    def settled(self) -> int:
        """The newest slot that has settled: later reports do not change its published numbers."""
        return self.now // self.plan.slot_seconds - self.plan.settle_slots - 1

    @cached_property
    def ageing(self) -> Ageing:
        """How far readings have moved since the remembered reports."""
        remembered = list(self._remembered())
        reports = [self._reports(number, report.REPORT) for number, epoch in remembered if epoch.report is not None]
        return Ageing([epoch for _, epoch in remembered], Estimates.together([sums.means for sums in reports]))

    def cohort(self) -> dict[Epoch, list[CohortCounts]]:
        """Return the cohort's histograms of each remembered epoch that has some, the oldest epoch first.

        If readings moved during an epoch, it has several histograms. Each of them is moved as far as its readings have
        moved since, so that it describes readings as they are now.
        """
        histograms = {}
        for number, epoch in self._remembered():
            sums = self._sums(epoch, self._reports(number, report.COHORT))
            if not sums and epoch.phase == THRESHOLD_PHASE:
                # No device reported in the planned slots, so the slots after them are used.
                later = range(self._judged(number)[0], self.settled + 1)
                read = SettledSums().read(self.read, self.timeline, epoch, later, report.COHORT, self.now)
                sums = self._sums(epoch, read)
            cohort, bound = epoch.campaign.cohort, self.plan.bound
            if sums and cohort is not None:
                histograms[epoch] = [
                    CohortCounts(move.window(cohort.mechanism, bound), counts) for move, counts in sums.items()
                ]
        return histograms

    def reports(self) -> list[ReportCounts]:
        """Return the histograms of settled slots of the report phase, which refine θ at no cost in privacy.

        Only epochs with a single range that begins at 0 are used. Where each block of the day has a range of its own, a
        block's histogram would describe its own time of day alone.
        """
        histograms = []
        for number, epoch in self._remembered():
            rule = epoch.report
            if rule is None or rule.low or len(rule.ranges) > 1:
                continue
            for move, counts in self._sums(epoch, self._reports(number, report.REPORT)).items():
                theta = move.theta(rule.theta, self.plan.bound)
                if theta is not None:
                    histograms.append(ReportCounts.of(rule.mechanism, theta, counts))
        return histograms

    def day(self) -> Day | None:
        """Return the distributions by time of day, from the cohort's and the report phase's histograms."""
        histograms: list[Phases] = []
        cycle, bound = self.plan.cycle, self.plan.bound
        for number, epoch in self._remembered():
            cohort, rule = epoch.campaign.cohort, epoch.report
            if cohort is not None:
                for move, parts in self._parts(epoch, self._reports(number, report.COHORT)).items():
                    window = move.window(cohort.mechanism, bound)
                    histograms.append(Phases(CohortCounts(window, parts.sum(axis=0)), parts))
            if rule is None or rule.low:
                continue
            ends = [start for start, _, _ in rule.ranges[1:]] + [cycle]
            of_reports = self._parts(epoch, self._reports(number, report.REPORT))
            for (start, _, old), end in zip(rule.ranges, ends, strict=True):
                inside = slice(piece_at(start, cycle), piece_at(end - 1, cycle) + 1)
                for move, parts in of_reports.items():
                    of_range, theta = np.zeros_like(parts), move.theta(old, bound)
                    of_range[inside] = parts[inside]
                    if of_range.any() and theta is not None:
                        histograms.append(
                            Phases(ReportCounts.of(rule.mechanism, theta, of_range.sum(axis=0)), of_range)
                        )
        return day_of(histograms, bound, cycle)

    @cached_property
    def saw_all_days(self) -> bool:
        """True if the cohort's reports cover at least half a cycle of workdays, and half a cycle of days off.

        Also True if the cycle is not a day, or if the plan has no weekend.
        """
        days, cycle, slots = self.plan.days, self.plan.cycle, set[int]()
        for number, _ in self._remembered():
            slots |= self._reports(number, report.COHORT).totals.keys()
        off = calendar(np.array(sorted(slots), dtype=np.int64), self.plan.slot_seconds, cycle, days).off
        if off is None or not days.weekend:
            return True
        return 2 * min(int(off.sum()), int((~off).sum())) >= cycle

    def _parts(self, epoch: Epoch, reports: EpochSums) -> dict[Move, Counts]:
        """Return a map: how far readings have moved since -> the epoch's weighed histograms [pieces, symbols].

        Histograms without any report are left out.
        """
        weighed = {move: move.weighed(parts) for move, parts in self._by_move(epoch, reports).items()}
        return {move: parts for move, parts in weighed.items() if parts.any()}

    def _sums(self, epoch: Epoch, reports: EpochSums) -> dict[Move, Counts]:
        """Return a map: how far readings have moved since -> the epoch's weighed histogram [symbols].

        Histograms without any report are left out.
        """
        sums = {move: move.weighed(parts.sum(axis=0)) for move, parts in self._by_move(epoch, reports).items()}
        return {move: counts for move, counts in sums.items() if counts.sum()}

    def _by_move(self, epoch: Epoch, reports: EpochSums) -> dict[Move, Counts]:
        """Return a map: how far readings have moved since -> the epoch's histograms [pieces, symbols].

        Each is the sum over all cycles since which readings have moved that far.
        """
        together: dict[Move, list[Counts]] = {}
        for cycle, parts in reports.cycles.items():
            together.setdefault(self.ageing.since(epoch, cycle), []).append(parts)
        return {move: np.sum(each, axis=0, dtype=np.int64) for move, each in together.items()}

    def devices(self) -> float:
        """Return how many devices report now: the median number of reports in a slot of the newest epoch.

        Its newest ``epoch_slots`` settled slots are used, in a threshold round only planned ones. Slots without a
        report count as 0.
        """
        number = len(self.timeline) - 1
        first, last = self._judged(number)
        return self._present(number, max(first, last - self.plan.epoch_slots + 1), last)

    def most_devices(self) -> float:
        """Return how many devices reported at most: the largest median number of reports in a slot of an epoch.

        Of each epoch its first ``epoch_slots`` slots are used. Only remembered epochs count that began within the
        newest `MEMORY_EPOCHS` times ``epoch_slots`` settled slots.
        """
        every = self.plan.epoch_slots
        earliest = self.settled - MEMORY_EPOCHS * every
        sizes = [0.0]
        for number, _ in self._remembered():
            first, last = self._judged(number)
            if first >= earliest:
                sizes.append(self._present(number, first, min(last, first + every - 1)))
        return max(sizes)

    def _present(self, number: int, first: int, last: int) -> float:
        """Return the median number of reports in an epoch's slots ``first`` to ``last``; 0 if there is no such slot.

        A slot without reports counts as 0.
        """
        if last < first:
            return 0.0
        cohort, reports = (self._reports(number, kind).totals for kind in (report.COHORT, report.REPORT))
        return float(np.median([cohort.get(slot, 0) + reports.get(slot, 0) for slot in range(first, last + 1)]))

    def _reports(self, number: int, kind: int) -> EpochSums:
        """Return the sums of one kind of report, in the slots of an epoch that are used for choosing θ.

        A decision needs these sums several times, but reads them once.
        """
        if (number, kind) not in self._already_read:
            first, last = self._judged(number)
            self._already_read[number, kind] = self.kept.read(
                *(self.read, self.timeline, self.timeline.epochs[number]), range(first, last + 1), kind, self.now
            )
        return self._already_read[number, kind]

    @cached_property
    def _already_read(self) -> dict[tuple[int, int], EpochSums]:
        """Return the cache of ``_reports``: (number of the epoch, kind of report) -> its sums."""
        self.kept.forget_others([epoch.campaign.fingerprint for _, epoch in self._remembered()])
        return {}

    def _remembered(self) -> Iterator[tuple[int, Epoch]]:
        for number in range(max(len(self.timeline) - MEMORY_EPOCHS, 0), len(self.timeline)):
            yield number, self.timeline.epochs[number]

    def _judged(self, number: int) -> tuple[int, int]:
        """Return the first and last slot of an epoch that are used for choosing θ.

        For a threshold round these are its planned slots; for any other epoch, all of its settled slots.
        """
        campaign = self.timeline.epochs[number].campaign
        if campaign.report is None:
            planned = self.plan.rounds[min(number, len(self.plan.rounds) - 1)]
            return campaign.first_slot, min(campaign.first_slot + planned - 1, self.settled)
        last = min(campaign.last_slot, self.settled)
        if number + 1 < len(self.timeline):
            last = min(last, self.timeline.epochs[number + 1].campaign.first_slot - 1)
        return campaign.first_slot, last

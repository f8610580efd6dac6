"""Rounds: threshold epochs in which everybody reports for the threshold, then report epochs under θ.

A state machine without state of its own: what is due follows from the epochs and histograms in the store, so a restart
resumes where the last process stopped. A threshold round is judged on its planned slots alone; its epoch goes on until
the next begins.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from undertone_aggregator.collect.epochs import THRESHOLD, Epoch, Timeline, threshold_to_json
from undertone_aggregator.collect.partial import Counts, Partial
from undertone_aggregator.config import CampaignPlan
from undertone_aggregator.design import square_wave
from undertone_aggregator.design.mechanisms import traits_of
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    ReportCounts,
    Threshold,
    Variance,
    first_edges,
    next_range,
    theta_from_reports,
)
from undertone_aggregator.threshold.joint import Design, Progress, choose_jointly
from undertone_shared import report
from undertone_shared.campaign import Campaign, Cohort, ReportRule
from undertone_shared.cohort import WHOLE

# The partial of first <= slot <= last, of one kind of report.
Reader = Callable[[int, int, int], Partial]

# θ changes at most by this factor from one report epoch to the next: fake devices move it no faster.
LARGEST_CHANGE = 2
# A smaller change is not worth an epoch: it moves the error by less than a few per cent.
SMALLEST_CHANGE = 0.05
# How far back the threshold looks, in epochs.
MEMORY_EPOCHS = 16


class Rounds:
    """What the campaign's next epoch is, and when. ``seed`` draws the threshold cohort; ``read`` reads the store.

    ``clock`` tells how late it is once a mechanism is designed, which takes seconds: the epoch starts after that.
    ``progress`` is told what is being computed.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        seed: bytes,
        read: Reader,
        clock: Callable[[], float] | None = None,
        progress: Progress = lambda _: None,
    ) -> None:
        self.plan = plan
        self._seed = seed
        self._read = read
        self._clock = clock
        self._progress = progress

    def warnings(self) -> list[str]:
        """Plain sentences about a plan that will work, but not well."""
        short = [slots for slots in self.plan.rounds if slots % self.plan.cycle]
        if not short:
            return []
        return [
            f"threshold rounds of {', '.join(map(str, short))} slots are no whole cycles of {self.plan.cycle}: "
            "they see different times of day"
        ]

    def first(self, now: int) -> Epoch:
        """The campaign's first threshold epoch, which starts as planned, or as soon as the lead allows."""
        soonest = now // self.plan.slot_seconds + self.plan.lead_slots
        planned = (self.plan.start or 0) // self.plan.slot_seconds
        return self._threshold_epoch(0, max(soonest, planned), first_edges(self.plan.bound, self.plan.cells), now)

    def due(self, timeline: Timeline, now: int) -> int | None:
        """The Unix second from which the threshold is looked at next; None when no epoch is left to issue."""
        newest = timeline.last
        assert newest is not None
        first = newest.campaign.first_slot
        if newest.phase == THRESHOLD:
            look = first + self.plan.rounds[min(len(timeline), len(self.plan.rounds)) - 1] + self.plan.settle_slots
            return look * self.plan.slot_seconds
        every = self.plan.epoch_slots
        passed = (now // self.plan.slot_seconds - first - self.plan.settle_slots) // every
        look = first + max(passed, 1) * every + self.plan.settle_slots
        return look * self.plan.slot_seconds if look + self.plan.lead_slots <= newest.campaign.last_slot else None

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """The epoch to issue at Unix second ``now``, once ``due``; None without reports, or when θ may stay."""
        newest = timeline.last
        assert newest is not None
        histograms = self._cohort_counts(timeline, now)
        if newest.phase == THRESHOLD and newest not in histograms:
            return None
        cohort = list(histograms.values())
        edges = next_range(cohort, bound=self.plan.bound, cells=self.plan.cells)
        rule = newest.campaign.report
        if rule is None and len(timeline) < len(self.plan.rounds):
            return self._threshold_epoch(len(timeline), self._soonest(now), edges, now)
        query = Query.fleet(self._reports_per_slot(timeline, now))
        reports = self._report_counts(timeline, now) if self.plan.method == "robust" else ()

        def choose(variance: Variance) -> Threshold:
            chosen = theta_from_reports(
                cohort,
                bound=self.plan.bound,
                variance=variance,
                query=query,
                method=self.plan.method,  # type: ignore[arg-type]
                reports=reports,
            )
            return chosen if rule is None else limit_change(chosen, rule.theta)

        design = choose_jointly(self.plan.mechanism, self.plan.epsilon, self.plan.levels, choose, self._progress)
        starts = self._soonest(now)
        if rule is None:
            return self._report_epoch(design, starts, starts + self.plan.report_slots - 1, edges, now)
        if abs(design.threshold.theta / rule.theta - 1) < SMALLEST_CHANGE or starts > newest.campaign.last_slot:
            return None
        return self._report_epoch(design, starts, newest.campaign.last_slot, edges, now)

    def _soonest(self, now: int) -> int:
        later = now if self._clock is None else max(now, int(self._clock()))
        return later // self.plan.slot_seconds + self.plan.lead_slots

    def _reports_per_slot(self, timeline: Timeline, now: int) -> int:
        """How many devices will report by the report mechanism: the median over the newest epoch's slots."""
        first, last = self._judged(timeline, len(timeline) - 1, now)
        totals: dict[int, int] = {}
        for kind in (report.COHORT, report.REPORT):
            for key, counts in self._read(first, last, kind).items():
                totals[key.slot] = totals.get(key.slot, 0) + int(counts.sum())
        median = float(np.median(list(totals.values()))) if totals else 0.0
        return max(round(median * (1.0 - self.plan.cohort_share)), 1)

    def _judged(self, timeline: Timeline, number: int, now: int) -> tuple[int, int]:
        """First and last slot of an epoch that count for the threshold: a round's planned ones, else all settled."""
        campaign = timeline.epochs[number].campaign
        settled = now // self.plan.slot_seconds - self.plan.settle_slots - 1
        if campaign.report is None:
            planned = self.plan.rounds[min(number, len(self.plan.rounds) - 1)]
            return campaign.first_slot, min(campaign.first_slot + planned - 1, settled)
        return campaign.first_slot, min(campaign.last_slot, settled)

    def _cohort_counts(self, timeline: Timeline, now: int) -> dict[Epoch, CohortCounts]:
        """The cohort's histogram of each epoch that has one, oldest first, as far back as memory goes."""
        settled = now // self.plan.slot_seconds - self.plan.settle_slots - 1
        found = {}
        for number in range(max(len(timeline) - MEMORY_EPOCHS, 0), len(timeline)):
            epoch = timeline.epochs[number]
            first, last = self._judged(timeline, number, now)
            counts = _sum(epoch, self._read(first, last, report.COHORT))
            if counts is None and epoch.phase == THRESHOLD:
                # Nobody was there in the planned slots: whatever came since must do.
                counts = _sum(epoch, self._read(first, settled, report.COHORT))
            if counts is not None:
                found[epoch] = CohortCounts(epoch.campaign.cohort.mechanism, counts)
        return found

    def _report_counts(self, timeline: Timeline, now: int) -> list[ReportCounts]:
        """The report phase's own histograms of settled slots, which refine θ at no cost in privacy."""
        found = []
        for number in range(max(len(timeline) - MEMORY_EPOCHS, 0), len(timeline)):
            epoch = timeline.epochs[number]
            rule = epoch.report
            if rule is None or rule.low:
                continue
            counts = _sum(epoch, self._read(*self._judged(timeline, number, now), report.REPORT))
            if counts is not None:
                found.append(ReportCounts.of(rule.mechanism, rule.theta, counts))
        return found

    def _threshold_epoch(self, number: int, first: int, edges: Sequence[int], now: int) -> Epoch:
        later = self.plan.rounds[number:]
        pauses = len(later) * (self.plan.settle_slots + self.plan.lead_slots + 1)
        last = first + sum(later) + pauses + self.plan.report_slots - 1
        return Epoch(self._campaign(first, last, edges, WHOLE, None), now)

    def _report_epoch(self, design: Design, first: int, last: int, edges: Sequence[int], now: int) -> Epoch:
        chosen, mechanism = design.threshold, design.mechanism
        if design.reason is not None:
            chosen = replace(chosen, warnings=[*chosen.warnings, design.reason])
        rule = ReportRule(0, chosen.theta, mechanism)
        share = round(self.plan.cohort_share * WHOLE)
        decoded = traits_of(mechanism).decoded
        return Epoch(self._campaign(first, last, edges, share, rule), now, threshold_to_json(chosen), decoded)

    def _campaign(self, first: int, last: int, edges: Sequence[int], share: int, rule: ReportRule | None) -> Campaign:
        cohort = Cohort(self._seed, share, square_wave(self.plan.epsilon, edges))
        return self.plan.epoch(first, last, cohort=cohort, report=rule)


def limit_change(chosen: Threshold, theta: int) -> Threshold:
    """The choice, at most `LARGEST_CHANGE` times away from the θ in force."""
    capped = min(max(chosen.theta, -(-theta // LARGEST_CHANGE)), theta * LARGEST_CHANGE)
    if capped == chosen.theta:
        return chosen
    said = f"theta would be {chosen.theta}; one epoch changes it by a factor of {LARGEST_CHANGE} at most"
    return replace(chosen, theta=capped, warnings=[*chosen.warnings, said])


def _sum(epoch: Epoch, partial: Partial) -> Counts | None:
    """All histograms of one epoch together; None when there is no report."""
    mine = [counts for key, counts in partial.items() if key.fingerprint == epoch.campaign.fingerprint]
    total: Counts | None = np.sum(mine, axis=0, dtype=np.int64) if mine else None
    return total if total is not None and total.sum() else None

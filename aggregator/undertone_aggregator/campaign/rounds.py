"""Rounds: threshold epochs in which every device reports for the threshold, then report epochs under θ.

This is a state machine without its own state: the next step follows from the epochs and histograms in the store, so a
restart resumes where the last process stopped. A threshold round is judged on its planned slots only; its epoch lasts
until the next begins.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from undertone_aggregator.campaign.evidence import Evidence, Reader
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline, threshold_to_json
from undertone_aggregator.design import square_wave, stochastic_rounding
from undertone_aggregator.design.mechanisms import traits_of
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    Threshold,
    Variance,
    first_edges,
    in_blocks,
    limit_blocks,
    limit_first,
    limit_most,
    limit_range,
    next_range,
    theta_from_reports,
    with_bottom,
)
from undertone_aggregator.threshold.joint import Design, Progress, choose_jointly
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import Cohort, ReportRule

# (first slot of the cycle, low, θ) of each block.
Ranges = tuple[tuple[int, int, int], ...]

# The bound of a binary sensor.
BINARY = 1
# A smaller relative change of θ is not worth an epoch: it changes the error by less than a few per cent.
SMALLEST_CHANGE = 0.05
# No decision is made while less than this share of the devices report, because the others will come back.
FEWEST = 0.25


class Rounds:
    """Decides what the campaign's next epoch is, and when.

    ``seed`` selects the threshold cohort; ``read`` reads the store.

    ``clock`` gives the time after a mechanism is designed, which takes seconds: the epoch must start after that.
    ``progress`` receives a text about the current computation; ``tell`` the reason if no decision was made.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        seed: bytes,
        read: Reader,
        clock: Callable[[], float] | None = None,
        progress: Progress = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self._seed = seed
        self._read = read
        self._clock = clock
        self._progress = progress
        self._tell = tell

    def warnings(self) -> list[str]:
        """Return sentences about parts of the plan that will work, but not well."""
        short = [slots for slots in self.plan.rounds if slots % self.plan.cycle]
        if not short:
            return []
        return [
            f"threshold rounds of {', '.join(map(str, short))} slots are no whole cycles of {self.plan.cycle}: "
            "they see different times of day"
        ]

    def first(self, now: int) -> Epoch:
        """Return the campaign's first threshold epoch, which starts as planned, or as soon as the lead time allows."""
        soonest = now // self.plan.slot_seconds + self.plan.lead_slots
        planned = (self.plan.start or 0) // self.plan.slot_seconds
        if self.plan.bound == BINARY:
            return self._binary_epoch(max(soonest, planned), now)
        return self._threshold_epoch(0, max(soonest, planned), first_edges(self.plan.bound, self.plan.cells), now)

    def due(self, timeline: Timeline, now: int) -> int | None:
        """Return the Unix second from which the threshold is reconsidered; None if no further epoch will be issued."""
        newest = timeline.last
        assert newest is not None
        if self.plan.bound == BINARY:
            return None
        first = newest.campaign.first_slot
        if newest.phase == THRESHOLD_PHASE:
            look = first + self.plan.rounds[min(len(timeline), len(self.plan.rounds)) - 1] + self.plan.settle_slots
            return look * self.plan.slot_seconds
        every = self.plan.epoch_slots
        passed = (now // self.plan.slot_seconds - first - self.plan.settle_slots) // every
        look = first + max(passed, 1) * every + self.plan.settle_slots
        return look * self.plan.slot_seconds if look + self.plan.lead_slots <= newest.campaign.last_slot else None

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the epoch to issue at Unix second ``now``, once ``due``; None without reports, or if θ can stay."""
        newest = timeline.last
        assert newest is not None
        evidence = Evidence(self.plan, timeline, self._read, now)
        rule = newest.campaign.report
        devices, most = evidence.devices(), evidence.most_devices()
        if rule is not None and devices < max(most * FEWEST, 1.0):
            self._tell(
                f"{devices:.0f} devices report where there were {most:.0f}: theta is not decided on what a part of the "
                "fleet measures"
            )
            return None
        histograms = evidence.cohort()
        if newest.phase == THRESHOLD_PHASE and newest not in histograms:
            return None
        cohort = list(histograms.values())
        edges = next_range(cohort, bound=self.plan.bound, cells=self.plan.cells)
        if rule is None and len(timeline) < len(self.plan.rounds):
            return self._threshold_epoch(len(timeline), self._soonest(now), edges, now)
        query = Query.fleet(max(round((most if rule is None else devices) * self.plan.report_share), 1))
        design = self._design(evidence, cohort, query, rule)
        starts = self._soonest(now)
        if rule is None:
            return self._report_epoch(design, starts, starts + self.plan.report_slots - 1, edges, now)
        moved = _moved(rule.ranges, design.threshold.ranges, self.plan.cycle)
        if moved < SMALLEST_CHANGE or starts > newest.campaign.last_slot:
            return None
        return self._report_epoch(design, starts, newest.campaign.last_slot, edges, now)

    def _design(
        self, evidence: Evidence, cohort: list[CohortCounts], query: Query, before: ReportRule | None
    ) -> Design:
        """Choose θ within its limits and the mechanism for it; ``before``: the rule in force."""
        plan = self.plan
        reports = evidence.reports() if plan.method == "robust" else ()
        day = evidence.day() if plan.method == "robust" and plan.blocks > 1 else None

        def choose(variance: Variance) -> Threshold:
            chosen = theta_from_reports(
                cohort,
                bound=plan.bound,
                variance=variance,
                query=query,
                method=plan.method,  # type: ignore[arg-type]
                reports=reports,
                offset=plan.offset,
            )
            if plan.method == "robust":
                chosen = with_bottom(chosen, cohort, plan.bound, query, variance)
                chosen = in_blocks(chosen, day, plan.blocks, query, variance)

            def limited(choice: Threshold, first: int, end: int | None, harmless: int) -> Threshold:
                if before is None:
                    held = limit_first(choice, query, variance, harmless)
                else:
                    held = limit_range(choice, before.low, _nearest(before, choice.theta, first, end))
                return limit_most(held, None if plan.theta_max is None else plan.theta_max - plan.offset)

            return limit_blocks(chosen, limited)

        return choose_jointly(plan.mechanism, plan.epsilon, plan.levels, choose, self._progress)

    def _soonest(self, now: int) -> int:
        later = now if self._clock is None else max(now, int(self._clock()))
        return later // self.plan.slot_seconds + self.plan.lead_slots

    def _threshold_epoch(self, number: int, first: int, edges: Sequence[int], now: int) -> Epoch:
        later = self.plan.rounds[number:]
        pauses = len(later) * (self.plan.settle_slots + self.plan.lead_slots + 1)
        last = first + sum(later) + pauses + self.plan.report_slots - 1
        return Epoch(self._campaign(first, last, edges, 1, None), now)

    def _report_epoch(self, design: Design, first: int, last: int, edges: Sequence[int], now: int) -> Epoch:
        chosen, mechanism = design.threshold, design.mechanism
        if design.reason is not None:
            chosen = replace(chosen, warnings=[*chosen.warnings, design.reason])
        (_, low, theta), *later = chosen.ranges
        rule = ReportRule(low, theta, mechanism, tuple(later))
        decoded = traits_of(mechanism).decoded
        return Epoch(
            self._campaign(first, last, edges, self.plan.cohort_stride, rule), now, threshold_to_json(chosen), decoded
        )

    def _binary_epoch(self, first: int, now: int) -> Epoch:
        """Return an epoch for readings of 0 and 1: randomised response without a threshold, so without rounds and
        cohort.
        """
        rule = ReportRule(0, BINARY, stochastic_rounding(self.plan.epsilon))
        last = first + self.plan.report_slots - 1
        return Epoch(self._campaign(first, last, (0, 1, 2), 0, rule), now)

    def _campaign(self, first: int, last: int, edges: Sequence[int], stride: int, rule: ReportRule | None) -> Campaign:
        cohort = Cohort(square_wave(self.plan.epsilon, edges))
        schedule = self.plan.schedule(self._seed, stride)
        return self.plan.epoch(first, last, cohort=cohort, report=rule, schedule=schedule)


def _nearest(before: ReportRule, theta: int, first: int, end: int | None) -> int:
    """Return the θ in force in slots first <= i < end of the cycle that is nearest to ``theta``, which may lie between
    two.
    """
    ends = [start for start, _, _ in before.ranges[1:]] + [None]
    thetas = [
        old
        for (start, _, old), stop in zip(before.ranges, ends, strict=True)
        if (stop is None or stop > first) and (end is None or start < end)
    ]
    return min(max(theta, min(thetas)), max(thetas))


def _moved(before: Ranges, after: Ranges, cycle: int) -> float:
    """Return the share of the width in force by which both ends move together: the mean over the cycle."""
    starts = sorted({first for first, _, _ in (*before, *after)})
    total = 0.0
    for first, end in pairwise([*starts, cycle]):
        (low, theta), (bottom, top) = _in_force(before, first), _in_force(after, first)
        total += (end - first) * (abs(top - theta) + abs(bottom - low)) / (theta - low)
    return total / cycle


def _in_force(ranges: Ranges, slot: int) -> tuple[int, int]:
    """Return (low, θ) of the block that contains a slot of the cycle."""
    return next((low, theta) for first, low, theta in reversed(ranges) if first <= slot)

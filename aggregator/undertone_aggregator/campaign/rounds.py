"""Rounds: threshold epochs in which all devices report for the threshold, then report epochs under θ.

A cache of sums is the only state of the rounds: what is due follows from the epochs and histograms in the store. So
after a restart the server goes on where the last process stopped. The epoch of a threshold round lasts until the next
epoch begins, but θ is chosen from the round's planned slots only, or from later slots if no report came in those. A
report epoch ends with the campaign. A campaign that is extended gets a new epoch with the same rule and a later end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.epoch_sums import SettledSums
from undertone_aggregator.campaign.evidence import Evidence
from undertone_aggregator.campaign.presence import presence_of
from undertone_aggregator.counts.epochs import REPORT_PHASE, THRESHOLD_PHASE, Epoch, Timeline, threshold_to_json
from undertone_aggregator.design import square_wave, stochastic_rounding
from undertone_aggregator.design.mechanisms import traits_of
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    ReportCounts,
    Threshold,
    Variance,
    first_edges,
    linear_edges,
)
from undertone_aggregator.threshold.blocks import in_blocks
from undertone_aggregator.threshold.choose import next_range, theta_from_reports, with_tail
from undertone_aggregator.threshold.day import Day
from undertone_aggregator.threshold.joint import Design, Undesigned, choose_theta
from undertone_aggregator.threshold.limits import limit_blocks, limit_first, limit_most, limit_range
from undertone_aggregator.threshold.result import WHITE_BOX
from undertone_aggregator.threshold.two_sided import with_bottom
from undertone_shared.campaign import LARGEST_TIME, Campaign
from undertone_shared.scalar import Cohort, ReportRule

# Name of the method that chooses θ from all evidence, a θ for each block of the day.
ROBUST = "robust"
# For each block of the day: (its first slot in the cycle, the low end of its range, its θ).
Ranges = tuple[tuple[int, int, int], ...]

# The bins of the first round, by the plan's names.
_FIRST_EDGES = {"logarithmic": first_edges, "linear": linear_edges}
# The bound of a binary sensor, which needs no threshold.
BINARY = 1
# A new epoch is issued only if θ changes by at least this share of the range.
SMALLEST_CHANGE = 0.05
# Once θ is chosen, it is chosen again only if at least this share of the devices report.
FEWEST = 0.25


@dataclass(frozen=True)
class ThetaChoice:
    """What θ is chosen from at one moment. `choose` then returns the best θ for a mechanism, given its variance."""

    plan: CampaignPlan
    cohort: Sequence[CohortCounts]
    query: Query
    # The report rule that applies now; None before the first θ is chosen.
    before: ReportRule | None
    # For the robust method only: the histograms of the report phase, and the distributions by time of day.
    reports: Sequence[ReportCounts]
    day: Day | None
    # True if the reports for the threshold come from workdays and from days off. Until then all times of day have the
    # same θ, because readings may be distributed differently on the other days.
    saw_all_days: bool

    def choose(self, variance: Variance) -> Threshold:
        """Choose θ within limits for a mechanism with this variance: one for the cycle, or one for each block."""
        plan = self.plan
        chosen = theta_from_reports(
            self.cohort,
            bound=plan.bound,
            variance=variance,
            query=self.query,
            method=plan.method,  # type: ignore[arg-type]
            reports=self.reports,
            offset=plan.offset,
        )
        if plan.method == WHITE_BOX:
            chosen = with_tail(chosen, self.cohort, bound=plan.bound, variance=variance, query=self.query)
        if plan.method == ROBUST:
            chosen = with_bottom(chosen, self.cohort, plan.bound, self.query, variance)
            by_time = self.day if self.saw_all_days else None
            chosen = in_blocks(chosen, by_time, plan.blocks, self.query, variance)
            if self.day is not None and not chosen.bottom:
                chosen = replace(chosen, pieces=self.day.pieces)
        return limit_blocks(chosen, partial(self._limited, variance))

    def _limited(self, variance: Variance, choice: Threshold, first: int, end: int | None, harmless: int) -> Threshold:
        """Return one block's choice of θ, moved into its limits; see `undertone_aggregator.threshold.limits`."""
        if self.before is None:
            limited = limit_first(choice, self.query, variance, harmless)
        else:
            theta = _nearest(self.before, choice.theta, first, end)
            limited = limit_range(choice, self.before.low, theta, self.plan.bound)
        most = self.plan.theta_max
        return limit_most(limited, None if most is None else most - self.plan.offset)


class Rounds:
    """Decides on threshold epochs and report epochs.

    A choice of θ takes seconds to minutes. An epoch therefore starts after the time that ``means.clock`` shows at the
    end of the choice.
    """

    fixed_end = ""

    def __init__(self, plan: CampaignPlan, means: EpochMeans) -> None:
        self.plan = plan
        self._means = means
        self._kept = SettledSums()

    def warnings(self) -> dict[str, str]:
        """Return a map: kind -> sentence about a plan that will work, but badly."""
        short = [slots for slots in self.plan.rounds if slots % self.plan.cycle]
        if not short:
            return {}
        return {
            "cycles": f"threshold rounds of {', '.join(map(str, short))} slots do not last whole cycles of"
            f" {self.plan.cycle} slots: such a round sees some parts of the cycle more often than others"
        }

    def first(self, now: int) -> Epoch:
        """Return the campaign's first epoch, which starts as planned, or as soon as the lead time allows.

        It is a threshold epoch or, for a binary sensor, a report epoch.
        """
        soonest = now // self.plan.slot_seconds + self.plan.lead_slots
        planned = (self.plan.start or 0) // self.plan.slot_seconds
        if self.plan.bound == BINARY:
            return self._binary_epoch(max(soonest, planned), now)
        edges = _FIRST_EDGES[self.plan.bins](self.plan.bound, self.plan.cells)
        return self._threshold_epoch(0, max(soonest, planned), edges, now)

    def planned(self, now: int) -> list[Epoch]:
        """Return only the first epoch, because all later epochs have the same ε."""
        return [self.first(now)]

    def due(self, timeline: Timeline, now: int) -> int | None:
        """Return the Unix second from which θ can be decided next; None if no epoch is left to issue."""
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

    def waits(self, timeline: Timeline, now: int) -> str:
        """Return a sentence while too many devices that reported before are away, see `presence`; otherwise ""."""
        settled = now // self.plan.slot_seconds - self.plan.settle_slots - 1
        first = timeline.epochs[0].campaign.first_slot
        presence = presence_of(self._means.read, first, settled, self.plan.stride, self._means.strays(now))
        if not presence.away:
            return ""
        return (
            f"devices are away: slots had {presence.before:.0f} reports before, and have {presence.now:.0f} now. The"
            " server begins no new epoch for now, because it would be chosen without their reports"
        )

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the epoch to issue at Unix second ``now``, once ``due``; None without reports, or if θ may stay."""
        newest = timeline.last
        assert newest is not None
        evidence = Evidence(self.plan, timeline, self._means.read, now, self._kept)
        rule = newest.campaign.report
        devices, most = evidence.devices(), evidence.most_devices()
        if rule is not None and devices < max(most * FEWEST, 1.0):
            self._means.warn(
                f"theta is not decided: slots had {most:.0f} reports before, and have {devices:.0f} now; the server"
                " keeps theta until more devices report again"
            )
            return None
        histograms = evidence.cohort()
        if newest.phase == THRESHOLD_PHASE and newest not in histograms:
            return None
        cohort = [counts for of_epoch in histograms.values() for counts in of_epoch]
        next_edges = partial(next_range, cohort, bound=self.plan.bound, cells=self.plan.cells)
        if rule is None and len(timeline) < len(self.plan.rounds):
            edges = next_edges()
            return self._threshold_epoch(len(timeline), self._soonest(now), edges, now)
        reporting = max(round((most if rule is None else devices) * self.plan.report_share), 1)
        query = Query.named(self.plan.query, reporting, turns=self.plan.stride > 1)
        undesigned = self._choose(evidence, cohort, query, rule)
        # If the ranges stay the same, a table mechanism stays the same, too: a new table would hardly be better, and
        # takes long to design.
        if rule is not None and traits_of(rule.mechanism).designed and self._stay(rule, undesigned.threshold):
            return None
        design = undesigned.design()
        if rule is not None and self._stay(rule, design.threshold):
            return None
        edges = next_edges()
        starts = self._soonest(now)
        if rule is None:
            return self._report_epoch(design, starts, starts + self.plan.report_slots - 1, edges, now)
        last = self.last_slot(timeline)
        return self._report_epoch(design, starts, last, edges, now) if self._fits(starts, last) else None

    def last_slot(self, timeline: Timeline) -> int:
        """Return the last slot of the campaign's newest epoch, or a later slot if the plan was extended since."""
        assert timeline.last is not None
        last = timeline.last.campaign.last_slot
        learning = (self.learning_ends(timeline) or 0) // self.plan.slot_seconds
        first = next((each.campaign.first_slot for each in timeline.epochs if each.phase == REPORT_PHASE), learning)
        return max(last, min(first + self.plan.report_slots, LARGEST_TIME // self.plan.slot_seconds) - 1)

    def learning_ends(self, timeline: Timeline) -> int | None:
        """Return the Unix second at which the first report phase begins if no round is late; None if it has begun."""
        newest = timeline.last
        if newest is None or newest.phase != THRESHOLD_PHASE:
            return None
        rounds = self._round_slots(min(len(timeline), len(self.plan.rounds)) - 1)
        return (newest.campaign.first_slot + rounds) * self.plan.slot_seconds

    def reissued(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the newest epoch again, with the same rule and the plan's end, see `EpochSource`; else None.

        Devices that follow an unknown epoch accept the renewed epoch one cycle after their own began. If it is issued
        too early for them, it is issued again a cycle later.
        """
        newest = timeline.last
        assert newest is not None
        campaign, plan, last = newest.campaign, self.plan, self.last_slot(timeline)
        if newest.phase == THRESHOLD_PHASE:
            # The epoch of the next round, or of the report phase, will have the plan's later end.
            return None
        # Within a cycle of an epoch's start, devices take no other epoch. Until then the newest epoch stays broadcast,
        # for devices that were offline.
        starts = now // plan.slot_seconds + plan.lead_slots
        early = now < campaign.epoch or starts < campaign.first_slot + plan.cycle
        if early or not self._fits(starts, last):
            return None
        if last == campaign.last_slot and not self._means.strays(now):
            return None
        later = plan.epoch(starts, last, cohort=campaign.cohort, report=campaign.report, schedule=campaign.schedule)
        return replace(newest, campaign=later, issued_at=now)

    def _stay(self, rule: ReportRule, chosen: Threshold) -> bool:
        """Return True if the chosen ranges are so near to those of ``rule`` that no new epoch is needed."""
        return _moved(rule.ranges, chosen.ranges, self.plan.cycle) < SMALLEST_CHANGE

    def _fits(self, starts: int, last: int) -> bool:
        """Return True if the slots ``starts`` to ``last`` are as many as must lie between the starts of two epochs."""
        return starts + min(self.plan.cycle, self.plan.epoch_slots) <= last + 1

    def _choose(
        self, evidence: Evidence, cohort: list[CohortCounts], query: Query, before: ReportRule | None
    ) -> Undesigned:
        """Choose θ within its limits, for the plan's mechanism. ``before``: the report rule that applies now."""
        plan = self.plan
        reports = evidence.reports() if plan.method == ROBUST else ()
        day = evidence.day() if plan.method == ROBUST else None
        choice = ThetaChoice(plan, cohort, query, before, reports, day, evidence.saw_all_days)
        return choose_theta(
            plan.mechanism,
            plan.epsilon,
            plan.levels,
            choice.choose,
            self._means.progress,
            plan.reach,
            math.sqrt(query.squared),
        )

    def _soonest(self, now: int) -> int:
        clock = self._means.clock
        later = now if clock is None else max(now, int(clock()))
        return later // self.plan.slot_seconds + self.plan.lead_slots

    def _threshold_epoch(self, number: int, first: int, edges: Sequence[int], now: int) -> Epoch:
        last = first + self._round_slots(number) + self.plan.report_slots - 1
        return Epoch(self._campaign(first, last, edges, 1, None), now)

    def _round_slots(self, number: int) -> int:
        """Return how many slots lie between the start of threshold round ``number`` and that of the report phase."""
        later = self.plan.rounds[number:]
        return sum(later) + len(later) * (self.plan.settle_slots + self.plan.lead_slots + 1)

    def _report_epoch(self, design: Design, first: int, last: int, edges: Sequence[int], now: int) -> Epoch:
        chosen, mechanism = design.threshold, design.mechanism
        if design.reason is not None:
            chosen = replace(chosen, notices=[*chosen.notices, design.reason])
        (_, low, theta), *later = chosen.ranges
        rule = ReportRule(low, theta, mechanism, tuple(later))
        decoded = traits_of(mechanism).decoded
        return Epoch(
            self._campaign(first, last, edges, self.plan.cohort_stride, rule), now, threshold_to_json(chosen), decoded
        )

    def _binary_epoch(self, first: int, now: int) -> Epoch:
        """Return the epoch for readings of 0 and 1: randomised response, without reports for choosing a threshold."""
        rule = ReportRule(0, BINARY, stochastic_rounding(self.plan.epsilon))
        last = first + self.plan.report_slots - 1
        return Epoch(self._campaign(first, last, (0, 1, 2), 0, rule), now)

    def _campaign(self, first: int, last: int, edges: Sequence[int], stride: int, rule: ReportRule | None) -> Campaign:
        cohort = Cohort(square_wave(self.plan.epsilon, edges))
        schedule = self.plan.schedule(self._means.seed, stride)
        return self.plan.epoch(first, last, cohort=cohort, report=rule, schedule=schedule)


def _nearest(before: ReportRule, theta: int, first: int, end: int | None) -> int:
    """Clip ``theta`` to the smallest and largest θ that now apply in a part of the cycle.

    The part is the slots first <= i < end, or all from ``first`` on if ``end`` is None.
    """
    ends = [start for start, _, _ in before.ranges[1:]] + [None]
    thetas = [
        old
        for (start, _, old), stop in zip(before.ranges, ends, strict=True)
        if (stop is None or stop > first) and (end is None or start < end)
    ]
    return min(max(theta, min(thetas)), max(thetas))


def _moved(before: Ranges, after: Ranges, cycle: int) -> float:
    """Return the sum of both ends' moves as a share of the range's width, averaged over the cycle."""
    starts = sorted({first for first, _, _ in (*before, *after)})
    total = 0.0
    for first, end in pairwise([*starts, cycle]):
        (low, theta), (bottom, top) = _in_force(before, first), _in_force(after, first)
        total += (end - first) * (abs(top - theta) + abs(bottom - low)) / (theta - low)
    return total / cycle


def _in_force(ranges: Ranges, slot: int) -> tuple[int, int]:
    """Return (low end, θ) of the block in which a slot of the cycle lies."""
    return next((low, theta) for first, low, theta in reversed(ranges) if first <= slot)

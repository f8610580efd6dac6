"""When an epoch is due, how long it lasts, and when θ stays as it is."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from support import server
from undertone_aggregator.campaign import rounds as module
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.evidence import Reader
from undertone_aggregator.campaign.rounds import Rounds, _moved, _nearest
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.design.table import optimal_table
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import Query, Threshold, first_edges
from undertone_aggregator.threshold.joint import Design, Undesigned
from undertone_shared.scalar import ReportRule

NOW = server.FIRST
MINUTE = 60
# A Unix second at which a slot of a minute begins.
START = NOW - NOW % MINUTE
CHOSEN = Threshold(500, 400, 600, 1.0, 0.1, 1.0, np.ones(3) / 3, (0, 100, 500, 1001), "robust")


def rounds_of(plan: CampaignPlan, **options: Any) -> Rounds:
    return Rounds(plan, EpochMeans(server.SEED, cast(Reader, None), **options))


class Asked(Exception):
    """Raised where the choice of θ would begin."""


@dataclass
class Evidence:
    """Stands for the store's evidence.

    ``now_there``: how many devices report now; ``at_most``: the most that ever did.
    """

    now_there: float = 400
    at_most: float = 400
    cohort_of: list[Epoch] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __call__(self, *_: object) -> "Evidence":
        return self

    def devices(self) -> float:
        return self.now_there

    def most_devices(self) -> float:
        return self.at_most

    def cohort(self) -> dict[Epoch, list[object]]:
        return {epoch: [object()] for epoch in self.cohort_of}

    def reports(self) -> list[object]:
        self.asked.append("reports")
        return ["a histogram"]

    saw_all_days = True

    def day(self) -> None:
        self.asked.append("day")


Decide = Callable[..., tuple[Epoch | None, dict[str, Any], Evidence]]


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Decide:
    """Makes a function that returns three things: the next epoch, the arguments of the choice of θ, and the evidence.

    The choice of θ is replaced by one that always chooses ``theta``.
    """

    def decided(
        epochs: list[Epoch], now: int, *, theta: int = 500, reason: str | None = None, tell: Any = None, **options: Any
    ) -> tuple[Epoch | None, dict[str, Any], Evidence]:
        devices = {name: options.pop(name) for name in ("now_there", "at_most") if name in options}
        evidence = Evidence(**devices, cohort_of=options.pop("cohort_of", epochs))
        given: dict[str, Any] = {}
        plan = server.plan(**options)

        def choose(*_: object, **named: Any) -> Threshold:
            given.update(named)
            return replace(CHOSEN, theta=theta)

        def jointly(
            kind: str, epsilon: Any, levels: int, chosen: Any, progress: Any, *rest: float | None
        ) -> Undesigned:
            given.update(reach=rest[0], reporting=rest[1])
            threshold = chosen(lambda _: 1.0)
            mechanism = server.campaign(theta=500).report.mechanism  # type: ignore[union-attr]
            design = Design(threshold, mechanism, reason)

            class Prepared(Undesigned):
                def design(self) -> Design:
                    given["designed"] = True
                    return design

            return Prepared(kind, epsilon, levels, threshold, design, 1.1, progress)

        monkeypatch.setattr(module, "Evidence", evidence)
        monkeypatch.setattr(module, "next_range", lambda *_, **__: first_edges(1000, 16))
        monkeypatch.setattr(module, "theta_from_reports", choose)
        monkeypatch.setattr(module, "with_bottom", lambda chosen, *_: given.update(bottom=True) or chosen)
        monkeypatch.setattr(module, "in_blocks", lambda chosen, *_: given.update(blocks=True) or chosen)
        monkeypatch.setattr(module, "limit_first", lambda chosen, *_: given.update(first=True) or chosen)
        monkeypatch.setattr(module, "limit_range", lambda chosen, *_: given.update(later=True) or chosen)
        monkeypatch.setattr(module, "choose_theta", jointly)
        following = rounds_of(plan, warn=tell or (lambda _: None)).next(Timeline(epochs), now)
        return following, given, evidence

    return decided


def test_a_threshold_round_is_looked_at_when_its_own_slots_are_settled() -> None:
    rounds = rounds_of(server.plan(rounds=[4, 8], settle_slots=3))
    epochs = [Epoch(server.campaign(NOW + 100 * number), 0) for number in range(3)]
    dues = [rounds.due(Timeline(epochs[: number + 1]), NOW) for number in range(3)]
    # If nobody answers a round, a third epoch of rounds follows. It is as long as the last planned one.
    assert dues == [NOW + 4 + 3, NOW + 100 + 8 + 3, NOW + 200 + 8 + 3]


def test_who_is_there_is_counted_in_slots_that_are_settled() -> None:
    """Devices are counted in the newest settled slots: in later slots, reports may still be missing."""
    asked = list[tuple[int, int]]()

    def read(first: int, last: int, kind: int) -> Partial:
        asked.append((first, last))
        return Partial()

    means = EpochMeans(server.SEED, read)
    for settle_slots in (1, 3):
        asked.clear()
        rounds = Rounds(server.plan(slot_seconds=MINUTE, settle_slots=settle_slots), means)
        assert rounds.waits(Timeline([rounds.first(START)]), START + 30 * MINUTE + 59) == ""
        assert max(last for _, last in asked) == START // MINUTE + 30 - settle_slots - 1


def test_the_end_of_the_threshold_rounds_is_that_of_the_last_one_and_its_pauses() -> None:
    rounds = rounds_of(server.plan(rounds=[4, 8], settle_slots=1, lead_slots=2, report_slots=100))
    assert rounds.learning_ends(Timeline([])) is None
    epochs = [rounds.first(NOW), Epoch(server.campaign(NOW + 100), 0), Epoch(server.campaign(NOW + 200), 0)]
    ends = [rounds.learning_ends(Timeline(epochs[: number + 1])) for number in range(3)]
    # While the first of the two rounds runs, the second one is still to come. The third epoch repeats a round that
    # nobody answered.
    assert ends == [NOW + 2 + 4 + 8 + 2 * (1 + 2 + 1), NOW + 100 + 8 + 1 + 2 + 1, NOW + 200 + 8 + 1 + 2 + 1]
    assert rounds.learning_ends(Timeline(server.two_epochs())) is None
    minutes = rounds_of(server.plan(slot_seconds=MINUTE, rounds=[4], settle_slots=1, lead_slots=2))
    assert minutes.learning_ends(Timeline([minutes.first(START)])) == START + (2 + 4 + 1 + 2 + 1) * MINUTE


def test_slots_are_counted_in_slots_and_dues_in_seconds() -> None:
    plan = server.plan(slot_seconds=MINUTE, rounds=[4], settle_slots=1, lead_slots=2, start=START + 30 * MINUTE)
    rounds = rounds_of(plan)
    epoch = rounds.first(START)
    assert epoch.campaign.first_slot == START // MINUTE + 30
    assert rounds.due(Timeline([epoch]), START) == START + (30 + 4 + 1) * MINUTE
    assert rounds.first(START + 29 * MINUTE).campaign.first_slot == START // MINUTE + 31
    assert rounds_of(server.plan(slot_seconds=MINUTE)).first(START).campaign.first_slot == START // MINUTE + 2


def test_a_report_epoch_of_minutes_is_due_in_seconds(decide: Decide) -> None:
    options: dict[str, Any] = {"slot_seconds": MINUTE, "rounds": [4], "epoch_slots": 8, "settle_slots": 1}
    rounds = rounds_of(server.plan(**options))
    epochs = [rounds.first(START)]
    following, _, _ = decide(epochs, START + 7 * MINUTE, **options)
    assert following is not None
    first = START // MINUTE + 7 + 2
    assert (following.phase, following.campaign.first_slot) == ("report", first)
    due = rounds.due(Timeline([*epochs, following]), START + 10 * MINUTE)
    assert due == (first + 8 + 1) * MINUTE


@pytest.mark.parametrize(
    ("now", "look"), [(0, 9), (15, 9), (16, 9), (17, 17), (24, 17), (25, 25), (896, 889), (897, 897)]
)
def test_a_report_epoch_is_looked_at_once_every_few_slots(now: int, look: int) -> None:
    """The server considers a new θ every 8 slots from slot 100 on, if the lead for a new epoch still fits."""
    epochs = server.two_epochs()
    rounds = rounds_of(server.plan(epoch_slots=8, settle_slots=1, lead_slots=3))
    assert rounds.due(Timeline(epochs), NOW + 100 + now) == NOW + 100 + look


def test_no_look_is_left_where_an_epoch_would_begin_after_the_last_slot() -> None:
    epochs = server.two_epochs()
    for lead, due in ((3, NOW + 997), (4, None)):
        rounds = rounds_of(server.plan(epoch_slots=8, settle_slots=1, lead_slots=lead))
        assert rounds.due(Timeline(epochs), NOW + 997) == due


def test_an_extended_campaign_gets_its_newest_epoch_with_a_later_end() -> None:
    epochs = server.two_epochs()
    timeline, newest = Timeline(epochs), epochs[1]
    length = newest.campaign.last_slot + 1 - newest.campaign.first_slot

    def extended(more: int, now: int) -> Epoch | None:
        rounds = rounds_of(server.plan(report_slots=length + more, lead_slots=3, epoch_slots=8))
        assert rounds.last_slot(timeline) == newest.campaign.last_slot + max(more, 0)
        return rounds.reissued(timeline, now)

    begun = newest.campaign.epoch
    assert [extended(more, begun + 50) for more in (-1, 0)] == [None, None]
    assert extended(20, begun) is None, "a device that is offline needs the newest epoch for a cycle"
    for now, first in ((begun + 1, begun + 4), (begun + 50, begun + 53)):
        later = extended(20, now)
        assert later is not None
        before, after = newest.campaign, later.campaign
        assert (after.first_slot, after.last_slot) == (first, before.last_slot + 20)
        unchanged, extent = json.loads(bytes(before.body)), {"epoch": after.epoch, "last_slot": after.last_slot}
        assert json.loads(bytes(after.body)) == unchanged | extent
        assert (later.issued_at, later.chosen, later.phase) == (now, newest.chosen, "report")
    # No epoch is shorter than a cycle of 4 slots, because devices take a new epoch only a cycle after the last one.
    assert extended(1, newest.campaign.end - 5) is None
    assert extended(2, newest.campaign.end - 5) is not None
    assert extended(200, newest.campaign.end + 100) is not None, "the campaign goes on after a pause"
    # With a lead of a whole cycle, an epoch can be extended from its first second on, and not before.
    rounds = rounds_of(server.plan(report_slots=length + 20, lead_slots=4, epoch_slots=8))
    assert [rounds.reissued(timeline, begun + late) is None for late in (-1, 0)] == [True, False]


def test_during_a_threshold_round_an_extended_campaign_ends_later_and_the_round_stays() -> None:
    timeline = Timeline(server.two_epochs()[:1])
    rounds = rounds_of(server.plan(report_slots=100_000))
    learning_ends = rounds.learning_ends(timeline)
    assert learning_ends is not None
    assert rounds.last_slot(timeline) == learning_ends // rounds.plan.slot_seconds + 100_000 - 1
    for shorter in (1, 50):
        rounds = rounds_of(server.plan(report_slots=shorter))
        assert rounds.last_slot(timeline) == timeline.epochs[0].campaign.last_slot
    assert rounds.reissued(timeline, NOW + 10) is None


@pytest.mark.parametrize("bound", [1, 1000])
def test_the_first_epoch_waits_for_the_lead_and_lasts_as_planned(bound: int) -> None:
    rounds = rounds_of(server.plan(bound=bound, rounds=[4], lead_slots=5, settle_slots=2, report_slots=12))
    for now, first in ((NOW, NOW + 5), (NOW + 1, NOW + 6)):
        campaign = rounds.first(now).campaign
        assert campaign.first_slot == first
        assert campaign.last_slot - first + 1 == 12 + (0 if bound == 1 else 4 + 2 + 5 + 1)


def test_an_epoch_begins_after_the_time_that_its_design_took(decide: Decide) -> None:
    plan = server.plan(slot_seconds=MINUTE, lead_slots=2)
    for clock, first in ((None, 2), (START + 3 * MINUTE + 59.9, 5), (START - 600.0, 2)):
        rounds = rounds_of(plan, clock=None if clock is None else lambda clock=clock: clock)
        assert rounds._soonest(START) == START // MINUTE + first


@pytest.mark.parametrize(
    ("there", "most", "enough"), [(100, 400, True), (99.9, 400, False), (1, 1, True), (0.5, 1, False)]
)
def test_theta_is_decided_while_a_quarter_of_the_devices_reports(
    decide: Decide, there: float, most: float, enough: bool
) -> None:
    told: list[str] = []
    epochs = server.two_epochs()
    following, given, _ = decide(epochs, NOW + 109, theta=900, now_there=there, at_most=most, tell=told.append)
    assert (following is not None) == bool(given) == (not told) == enough
    # During the rounds there is no earlier number of devices to compare with: the histogram alone shows that devices
    # report.
    assert decide(epochs[:1], NOW + 9, rounds=[4], now_there=0, at_most=0)[0] is not None


def test_a_round_that_nobody_answered_goes_on(decide: Decide) -> None:
    epochs = server.two_epochs()
    assert decide(epochs[:1], NOW + 9, cohort_of=[])[0] is None
    # If no report has come from the cohort of a report epoch, θ is chosen from the cohort of the epoch before it.
    assert decide(epochs, NOW + 109, theta=900, cohort_of=epochs[:1])[0] is not None


def test_the_rounds_are_as_many_as_planned(decide: Decide) -> None:
    epochs = [Epoch(server.campaign(NOW + 100 * number), 0) for number in range(2)]
    phases = [decide(epochs[:n], NOW + 300, rounds=[4, 4])[0].phase for n in (1, 2)]  # type: ignore[union-attr]
    assert phases == ["threshold", "report"]


@pytest.mark.parametrize(("theta", "designed"), [(500, False), (524, False), (525, True)])
def test_a_table_stays_without_a_design_where_its_theta_stays(
    decide: Decide, monkeypatch: pytest.MonkeyPatch, theta: int, designed: bool
) -> None:
    rounds, newest = server.two_epochs()
    assert decide([rounds, newest], NOW + 109, theta=theta)[1]["designed"], "a Hybrid may give way to a table"
    monkeypatch.setattr(newest.campaign.report, "mechanism", optimal_table("1", 500, density=[0.5] * 9, levels=8))
    following, given, _ = decide([rounds, newest], NOW + 109, theta=theta)
    assert given.get("designed", False) == (following is not None) == designed


@pytest.mark.parametrize(("theta", "issued"), [(500, False), (524, False), (525, True), (475, True), (476, False)])
def test_a_change_of_theta_by_a_twentieth_is_worth_an_epoch(decide: Decide, theta: int, issued: bool) -> None:
    following, given, _ = decide(server.two_epochs(), NOW + 109, theta=theta)
    assert (following is not None) == issued
    assert "later" in given
    assert "first" not in given
    if following is not None:
        assert following.campaign.report is not None
        assert following.campaign.report.ranges == ((0, 0, theta),)
        assert following.campaign.first_slot == NOW + 109 + 2
        assert following.campaign.last_slot == NOW + 1000


@pytest.mark.parametrize(("now", "issued"), [(994, True), (995, True), (996, False)])
def test_the_last_cycle_may_have_an_epoch_of_its_own(decide: Decide, now: int, issued: bool) -> None:
    following, _, _ = decide(server.two_epochs(), NOW + now, theta=900, lead_slots=2)
    assert (following is not None) == issued


def test_the_report_phase_lasts_as_planned_and_says_why_the_hybrid_reports(decide: Decide) -> None:
    epochs = server.two_epochs()[:1]
    following, given, _ = decide(epochs, NOW + 9, rounds=[4], report_slots=20, lead_slots=2)
    assert following is not None
    assert (following.campaign.first_slot, following.campaign.last_slot) == (NOW + 11, NOW + 30)
    assert following.threshold is not None
    assert following.threshold.notices == []
    assert "first" in given
    following, _, _ = decide(epochs, NOW + 9, rounds=[4], reason="no table is better")
    assert following is not None
    assert following.threshold is not None
    assert following.threshold.notices == ["no table is better"]


@pytest.mark.parametrize(
    ("method", "blocks", "asked"),
    [("robust", 1, ["reports", "day"]), ("robust", 2, ["reports", "day"]), ("ems", 1, []), ("ems", 2, [])],
)
def test_only_the_robust_method_reads_the_report_phase(
    decide: Decide, method: str, blocks: int, asked: list[str]
) -> None:
    epochs = server.two_epochs()
    _, given, evidence = decide(epochs, NOW + 109, method=f'"{method}"', blocks=blocks)
    assert evidence.asked == asked
    assert bool(given["reports"]) == ("bottom" in given) == ("blocks" in given) == (method == "robust")
    assert given["method"] == method


def test_theta_is_chosen_for_the_devices_that_will_report(decide: Decide) -> None:
    epochs = server.two_epochs()
    share = server.plan().report_share
    assert 0 < share < 1
    _, given, _ = decide(epochs[:1], NOW + 9, rounds=[4], now_there=300, at_most=400)
    assert given["query"] == Query.fleet(round(400 * share))
    _, given, _ = decide(epochs, NOW + 109, now_there=300, at_most=400)
    assert given["query"] == Query.fleet(round(300 * share))
    _, given, _ = decide(epochs[:1], NOW + 9, rounds=[4], now_there=0, at_most=0)
    assert given["query"] == Query.fleet(1)


def test_a_table_has_the_reach_of_the_plan(decide: Decide) -> None:
    _, given, _ = decide(server.two_epochs()[:1], NOW + 9, rounds=[4], mechanism='"auto"', reach=1.3)
    assert given["reach"] == 1.3


def test_a_plan_without_a_reach_leaves_it_to_the_number_of_reports(decide: Decide) -> None:
    epochs, share = server.two_epochs()[:1], server.plan().report_share
    _, given, _ = decide(epochs, NOW + 9, rounds=[4], mechanism='"auto"', now_there=300, at_most=400)
    assert given["reach"] is None
    assert given["reporting"] == round(400 * share)


def test_both_ends_of_a_block_move() -> None:
    before = ((0, 100, 400), (12, 200, 1000))
    after = ((0, 130, 370), (12, 280, 920))
    # The width of 300 changes by 60 over a quarter of the cycle, the width of 800 by 160 over the rest.
    assert _moved(before, after, 48) == pytest.approx(0.2)
    assert _moved(before, ((0, 70, 430), (12, 120, 1080)), 48) == pytest.approx(0.2)


def test_a_block_that_ends_where_another_begins_has_no_part_of_it() -> None:
    rule = ReportRule(0, 400, server.campaign(theta=400).report.mechanism, ((12, 0, 1000), (20, 0, 700)))  # type: ignore[union-attr]
    assert [_nearest(rule, theta, 0, 12) for theta in (100, 700)] == [400, 400]
    assert [_nearest(rule, theta, 12, 20) for theta in (100, 2000)] == [1000, 1000]
    assert [_nearest(rule, theta, 20, None) for theta in (100, 2000)] == [700, 700]
    assert [_nearest(rule, theta, 11, 21) for theta in (100, 2000)] == [400, 1000]


def test_rounds_that_are_no_whole_cycles_are_warned_of() -> None:
    assert not rounds_of(server.plan()).warnings()
    warnings = rounds_of(server.plan(rounds=[4, 3])).warnings()
    assert list(warnings) == ["cycles"], "the demo recognises the warning by this kind"
    assert "3 slots do not last whole cycles of 4 slots" in warnings["cycles"]


def test_blocks_move_by_their_mean_over_the_cycle() -> None:
    before = ((0, 0, 400), (12, 0, 1000))
    assert _moved(before, before, 48) == 0
    # θ moves by half over a quarter of the cycle, then by a tenth over the rest.
    assert _moved(before, ((0, 0, 600), (12, 0, 1100)), 48) == pytest.approx(0.25 * 0.5 + 0.75 * 0.1)
    # Only the boundary between the blocks moves, by two slots.
    assert _moved(before, ((0, 0, 400), (14, 0, 1000)), 48) == pytest.approx(2 / 48 * 0.6)
    assert _moved(((0, 100, 400),), ((0, 130, 400),), 48) == pytest.approx(0.1)


def test_a_block_is_limited_by_what_was_in_force_in_it() -> None:
    rule = ReportRule(0, 400, server.campaign(theta=400).report.mechanism, ((12, 0, 1000),))  # type: ignore[union-attr]
    assert [_nearest(rule, theta, 0, 10) for theta in (100, 400, 900)] == [400, 400, 400]
    assert [_nearest(rule, theta, 10, None) for theta in (100, 700, 2000)] == [400, 700, 1000]
    assert _nearest(rule, 100, 12, None) == 1000


@pytest.mark.parametrize(("limit", "theta"), [(None, 900), (850, 900), (849, 899), (300, 350)])
def test_theta_obeys_the_operators_limit_which_counts_from_the_offset(
    decide: Decide, limit: int | None, theta: int
) -> None:
    options: dict[str, Any] = {} if limit is None else {"theta_max": limit}
    following, _, _ = decide(server.two_epochs()[:1], NOW + 9, rounds=[4], theta=900, offset=-50, default=0, **options)
    assert following is not None
    assert following.campaign.report is not None
    assert following.campaign.report.ranges == ((0, 0, theta),)


def test_everybody_reports_for_the_threshold_in_rounds_and_few_afterwards(decide: Decide) -> None:
    plan = server.plan(rounds=[4], bound=700, cells=16)
    epoch = rounds_of(plan).first(NOW)
    assert (epoch.phase, epoch.campaign.schedule.cohort_stride) == ("threshold", 1)
    assert epoch.campaign.cohort is not None
    assert epoch.campaign.cohort.mechanism.edges == tuple(first_edges(700, 16))
    assert epoch.campaign.schedule.seed == server.SEED
    following, _, _ = decide([epoch], NOW + 9, rounds=[4])
    assert following is not None
    assert following.campaign.schedule.cohort_stride == server.plan().cohort_stride > 1


def test_a_binary_sensors_cohort_has_nobody_and_two_cells() -> None:
    campaign = rounds_of(server.plan(bound=1, epsilon=2)).first(NOW).campaign
    assert campaign.schedule.cohort_stride == 0
    assert campaign.cohort is not None
    assert campaign.cohort.mechanism.edges == (0, 1, 2)
    assert campaign.report is not None
    assert campaign.report.ranges == ((0, 0, 1),)

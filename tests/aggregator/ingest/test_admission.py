import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from support import server
from support.report_topic import is_report_topic
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import LATE_SLOTS, Epoch, Timeline, late_seconds
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.counts.seen import COUNTED, Seen
from undertone_aggregator.counts.sequences import Sequences
from undertone_aggregator.ingest.admission import DUPLICATES, REASONS, Admission, topic_filters
from undertone_aggregator.store.store import Batch
from undertone_shared import report
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.scalar import ReportRule, ScalarRule
from undertone_shared.schedule import Schedule
from undertone_shared.topics import report_topic, shard

OLD, NEW = (epoch.campaign for epoch in two_epochs())


def member(device: str) -> bool:
    return NEW.schedule.is_member(NEW.schedule.place(device), FIRST + 150)


MEMBER = next(f"m{i}" for i in range(100) if member(f"m{i}"))
OTHER = next(f"m{i}" for i in range(100) if not member(f"m{i}"))


def admission(**options: object) -> Admission:
    made = Admission(PREFIX, "meters", 1, Seen(), cells=cells_of, **options)  # type: ignore[arg-type]
    made.timeline = Timeline(two_epochs())
    return made


def gate(topic: str, payload: bytes, *, retained: bool = False, now: int = FIRST + 200) -> str:
    return admission().judge(topic, payload, retained, now, Batch())


def test_an_honest_report_is_counted_in_its_cell() -> None:
    batch = Batch()
    topic, payload = delivery(NEW, OTHER, FIRST + 150, 7)
    assert admission().judge(topic, payload, False, FIRST + 151, batch) == COUNTED
    key = Key("meters", NEW.fingerprint, report.REPORT, "all", FIRST + 150)
    assert list(batch.partial) == [key]
    assert batch.partial[key][7] == batch.partial[key].sum() == 1
    assert batch.outcomes == {COUNTED: 1}


def test_groups_are_the_servers_own() -> None:
    gate, batch = admission(groups={MEMBER: "north"}), Batch()
    for device in (MEMBER, OTHER):
        gate.judge(*delivery(NEW, device, FIRST + 150), False, FIRST + 200, batch)
    assert {key.group for key in batch.partial} == {"north", "other"}


@pytest.mark.parametrize(
    "topic",
    [
        f"{PREFIX}/meters/{shard(OTHER)}/{OTHER}/reports",
        f"{PREFIX}/meters/{shard(OTHER)}/{OTHER}/report/x",
        f"{PREFIX}/meters/0{shard(OTHER)}/{OTHER}/report",
        f"{PREFIX}/others/{shard(OTHER)}/{OTHER}/report",
        f"{PREFIX}/meters/{shard(OTHER)}/+/report",
        f"{PREFIX}/meters/{shard(OTHER)}/A/report",
        f"{PREFIX}/meters/{shard(OTHER)}/{'m' * 33}/report",
        f"x{PREFIX}/meters/{shard(OTHER)}/{OTHER}/report",
        "",
    ],
)
def test_other_topics_are_refused(topic: str) -> None:
    assert gate(topic, delivery(NEW, OTHER, FIRST + 150)[1]) == "topic"


def test_a_wrong_shard_cannot_count_a_device_twice() -> None:
    payload = delivery(NEW, OTHER, FIRST + 150)[1]
    gate, batch = admission(), Batch()
    for number in range(70):
        gate.judge(f"{PREFIX}/meters/{number}/{OTHER}/report", payload, False, FIRST + 200, batch)
    assert batch.outcomes == {COUNTED: 1, "shard": 69}


def test_retained_reports_are_refused() -> None:
    assert gate(*delivery(NEW, OTHER, FIRST + 150), retained=True) == "retained"


@pytest.mark.parametrize(
    "change",
    [
        lambda payload: b"",
        lambda payload: payload[:-1],
        lambda payload: payload + b"\0",
        lambda payload: bytes([report.VERSION - 1]) + payload[1:],
        lambda payload: payload[:1] + b"\7" + payload[2:],
    ],
    ids=["empty", "too short", "no multiple of 4", "version", "kind"],
)
def test_what_is_no_report_is_malformed(change: Callable[[bytes], bytes]) -> None:
    topic, payload = delivery(NEW, OTHER, FIRST + 150)
    assert gate(topic, payload) == COUNTED
    assert gate(topic, change(payload)) == "malformed"


def test_a_fingerprint_that_was_never_issued_is_another_campaigns() -> None:
    foreign = server.campaign(bound=999)
    assert gate(*delivery(foreign, OTHER, FIRST + 50)) == "other_campaign"


@pytest.mark.parametrize(
    ("epoch", "slot", "outcome"),
    [
        (OLD, FIRST - 1, "other_campaign"),
        (OLD, FIRST, COUNTED),
        (OLD, FIRST + 99, COUNTED),
        (OLD, FIRST + 900, COUNTED),
        (NEW, FIRST + 99, "other_campaign"),
        (NEW, FIRST + 100, COUNTED),
    ],
)
def test_a_slot_belongs_to_its_epoch_or_to_the_one_that_a_device_without_a_connection_knows(
    epoch: object, slot: int, outcome: str
) -> None:
    assert gate(*delivery(epoch, MEMBER, slot), now=FIRST + 1000) == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(("slot_seconds", "longest"), [(1800, LATE_SLOTS), (3600, LATE_SLOTS), (900, 192), (7, 24685)])
def test_an_old_epoch_lasts_for_as_long_as_a_device_keeps_reports(slot_seconds: int, longest: int) -> None:
    """Reports that a device draws while it knows no newer epoch are counted, if they come in time."""
    first = FIRST // slot_seconds
    old, new = (
        server.campaign_of(
            slot_seconds=slot_seconds,
            epoch=slot * slot_seconds,
            last_slot=first + 10**5,
            cohort=OLD.cohort,
            schedule=OLD.schedule,
        )
        for slot in (first, first + 100)
    )
    timeline = Timeline([Epoch(old, 0), Epoch(new, 0)])
    assert timeline.span(old.fingerprint) == (timeline.epochs[0], first, first + 100 + longest)
    assert late_seconds(slot_seconds) // slot_seconds == longest
    assert timeline.span(new.fingerprint) == (timeline.epochs[1], first + 100, first + 10**5 + 1)


def test_nothing_is_taken_after_the_last_slot() -> None:
    assert gate(*delivery(NEW, MEMBER, NEW.last_slot), now=NEW.end) == COUNTED
    assert gate(*delivery(NEW, MEMBER, NEW.last_slot + 1), now=NEW.end + 1) == "other_campaign"


def test_the_kind_is_recomputed() -> None:
    for device, kind in ((MEMBER, report.REPORT), (OTHER, report.COHORT), (OTHER, report.STREAM)):
        chain = 1 if kind == report.STREAM else 0
        payload = report.pack(kind, NEW.fingerprint, FIRST + 150, (0,), 1, chain)
        assert gate(report_topic(PREFIX, "meters", device), payload) == "wrong_kind"


def test_symbols_are_those_of_the_mechanism() -> None:
    rule = NEW.report
    assert rule is not None
    for device, symbols in ((MEMBER, NEW.cohort.mechanism.symbols), (OTHER, rule.mechanism.symbols)):
        assert gate(*delivery(NEW, device, FIRST + 150, symbols - 1)) == COUNTED
        assert gate(*delivery(NEW, device, FIRST + 150, symbols)) == "symbol"


def test_a_report_out_of_turn_is_refused() -> None:
    campaign = copy.copy(server.campaign(cohort_stride=0, theta=500))
    campaign.schedule = Schedule(server.SEED, 3, 0)
    gate, batch = admission(), Batch()
    gate.timeline = Timeline([Epoch(campaign, FIRST)])
    place = campaign.schedule.place("d")
    outcomes = {}
    for slot in range(FIRST, FIRST + 9):
        outcomes[slot] = gate.judge(*delivery(campaign, "d", slot), False, FIRST + 15, batch)
    assert outcomes == {slot: COUNTED if campaign.schedule.is_turn(place, slot) else "turn" for slot in outcomes}
    assert list(outcomes.values()).count(COUNTED) == 3


@pytest.mark.parametrize(("coin", "never"), [(0, range(2, 9)), (65536, range(2)), (1, ()), (65535, ())])
def test_a_part_that_the_coin_never_chooses_has_no_symbols(coin: int, never: Iterable[int]) -> None:
    """Up to ε = 0.609 the Hybrid never uses its piecewise part, so honest devices never send piecewise symbols."""
    mechanism = Hybrid(coin, WindowMechanism(3, 2, 1, 1, 1), WindowMechanism(3, 2, 3, 1, 4, None, 2))
    epoch = copy.copy(server.campaign(cohort_stride=0, theta=500))
    epoch.rule = ScalarRule(epoch.cohort, ReportRule(0, 500, mechanism))
    gate, batch = admission(), Batch()
    gate.timeline = Timeline([Epoch(epoch, FIRST)])
    outcomes = [
        gate.judge(*delivery(epoch, f"d{symbol}", FIRST, symbol), False, FIRST + 5, batch)
        for symbol in range(mechanism.symbols + 1)
    ]
    assert mechanism.symbols == 9
    assert outcomes == ["symbol" if symbol in {*never, 9} else COUNTED for symbol in range(10)]
    assert batch.outcomes["symbol"] == len([*never, 9])


def test_time_has_a_window() -> None:
    slot = FIRST + 150
    made = delivery(NEW, OTHER, slot)
    assert gate(*made, now=slot + 1 - 60) == COUNTED
    assert gate(*made, now=slot + 1 - 61) == "future"
    assert gate(*made, now=slot + 1 + 2 * 86400) == COUNTED
    assert gate(*made, now=slot + 2 + 2 * 86400) == "late"


def test_time_is_counted_in_the_campaigns_slots() -> None:
    made = delivery(NEW, OTHER, FIRST + 150)
    end = (FIRST + 151) * 60

    def at(now: int) -> str:
        gate = Admission(PREFIX, "meters", 60, Seen(), cells=cells_of)
        gate.timeline = Timeline(two_epochs())
        return gate.judge(*made, False, now, Batch())

    assert [at(end - 61), at(end - 60), at(end + 2 * 86400), at(end + 2 * 86400 + 1)] == [
        *("future", COUNTED, COUNTED, "late")
    ]


def test_a_refusal_is_counted_in_the_slot_in_which_it_arrived() -> None:
    gate, batch = Admission(PREFIX, "meters", 60, Seen(), cells=cells_of), Batch()
    gate.timeline = Timeline(two_epochs())
    gate.judge(*delivery(NEW, OTHER, FIRST + 150), False, (FIRST + 170) * 60 + 59, batch)
    gate.judge("undertone", b"", False, (FIRST + 170) * 60 + 60, batch)
    assert batch.refused == {("topic", FIRST + 171): 1}


def test_long_slots_may_be_96_slots_late() -> None:
    gate = Admission(PREFIX, "meters", 3600, Seen(), cells=cells_of)
    assert gate._late == 96 * 3600


@pytest.mark.parametrize("slot_seconds", [1, 60, 1800, 86400])
def test_the_lane_takes_what_is_in_time_by_the_rule(slot_seconds: int) -> None:
    gate = Admission(PREFIX, "meters", slot_seconds, Seen(), cells=cells_of)
    now = FIRST * slot_seconds + slot_seconds // 3
    # Slots around the last and around the first one whose reports are in time.
    ends = (now + gate._tolerance, now - gate._late)
    slots = [edge // slot_seconds + step for edge in ends for step in range(-4, 4)]
    taken = gate.in_time(np.array(slots), now).tolist()
    assert taken == [not gate._untimely(slot, now) for slot in slots]
    for edge in (taken[:8], taken[8:]):
        assert set(edge) == {True, False}


def test_a_repeat_is_a_duplicate_and_other_bytes_a_conflict() -> None:
    gate, batch = admission(), Batch()
    for symbol in (3, 3, 4):
        gate.judge(*delivery(NEW, OTHER, FIRST + 150, symbol), False, FIRST + 200, batch)
    assert batch.outcomes == {COUNTED: 1, "duplicate": 1, "conflict": 1}
    assert batch.conflicts == {"all": 1}
    # Refusals are counted at the slot of arrival; a duplicate is no refusal.
    assert batch.refused == {("conflict", FIRST + 200): 1}
    assert batch.partial.reports == 1
    assert len(batch.seen) == 16


def test_a_conflict_is_its_groups() -> None:
    gate, batch = admission(groups={OTHER: "north"}), Batch()
    for symbol in (3, 4, 5):
        gate.judge(*delivery(NEW, OTHER, FIRST + 150, symbol), False, FIRST + 200, batch)
    assert batch.conflicts == {"north": 2}


def test_what_a_report_shows_to_be_missing_is_its_groups_and_its_number_is_kept() -> None:
    gate, batch = admission(groups={OTHER: "north"}), Batch()
    for slot, sequence in ((150, 1), (155, 4)):
        gate.judge(*delivery(NEW, OTHER, FIRST + slot, sequence=sequence), False, FIRST + 200, batch)
    assert batch.lost == {("north", FIRST + 155): 2}
    resumed = Sequences()
    resumed.load([(False, bytes(batch.sequences))])
    assert resumed.snapshot() == gate.sequences.snapshot()


def test_one_interval_counts_once_across_epochs() -> None:
    gate, batch = admission(), Batch()
    for epoch in (OLD, NEW):
        gate.judge(*delivery(epoch, MEMBER, FIRST + 100), False, FIRST + 200, batch)
    assert batch.outcomes == {COUNTED: 1, "conflict": 1}


def test_the_audit_names_every_delivery() -> None:
    gate, batch = admission(audit=True), Batch()
    topic, payload = delivery(NEW, OTHER, FIRST + 150)
    for _ in range(2):
        gate.judge(topic, payload, False, FIRST + 200, batch)
    gate.judge("x", b"", False, FIRST + 200, batch)
    assert [(device, outcome) for device, _, outcome in batch.audit] == [
        (OTHER, COUNTED),
        (OTHER, "duplicate"),
        ("", "topic"),
    ]


def test_workers_subscribe_to_every_shard_once() -> None:
    filters = Counter(topic for worker in range(3) for topic in topic_filters("p", "c", worker, 3))
    assert sorted(filters) == sorted(f"p/c/{number}/+/report" for number in range(64))
    assert set(filters.values()) == {1}
    assert topic_filters("p", "c", 0, 1) == ["p/c/+/+/report"]


@pytest.mark.parametrize("level", [*map(str, range(70)), "00", "01", "007", "100", "-1", "x", "", "é", "٣"])
def test_what_reaches_no_worker_would_not_have_been_counted(level: str) -> None:
    """Several workers subscribe to the 64 shards only. A lone worker hears all topics and must refuse the others."""
    topic = f"{PREFIX}/meters/{level}/{OTHER}/report"
    filters = [pattern for worker in range(3) for pattern in topic_filters(PREFIX, "meters", worker, 3)]
    reached = sum(topic_matches_sub(pattern, topic) for pattern in filters)
    assert topic_matches_sub(*topic_filters(PREFIX, "meters", 0, 1), topic)
    assert reached == (level in map(str, range(64)))
    if not reached:
        assert gate(topic, delivery(NEW, OTHER, FIRST + 150)[1]) in ("topic", "shard")


LEVELS = st.one_of(
    st.sampled_from(["meters", "report", "0", "63", "64", "00", "m1", "+", "#", "", "é", "a" * 33]), st.text(max_size=8)
)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(LEVELS, max_size=6))
@example(["meters", "0", "m1", "report"])
@example(["meters", "56", "m1", "report", ""])
@example(["meters", "56", "m1"])
@example(["meters", "49", "x", "m1", "report"])
@example(["meters", "049", "m1", "report"])
@example(["meters", "-1", "m1", "report"])
@example(["meters", "", "m1", "report"])
@example(["meters", "1", "METER", "report"])
@example(["meters", "1", "m" * 33, "report"])
def test_the_topic_rule_is_the_one_of_levels_read_one_by_one(levels: list[str]) -> None:
    topic = "/".join([PREFIX, *levels])
    allowed = is_report_topic(PREFIX, "meters", topic)
    outcome = gate(topic, b"")
    assert outcome in (("shard", "malformed") if allowed else ("topic", "shard"))
    assert allowed or outcome == "topic" or (levels[1].isdecimal() and int(levels[1]) > 63)


def payload(chance: random.Random) -> bytes:
    """Bytes near an honest report: many fields are plausible, and some reports are cut, longer or random."""
    slot = chance.choice([chance.randrange(FIRST - 3, FIRST + 130), chance.getrandbits(32)])
    made = (
        bytes([chance.choice([2, 2, 2, 0, 255]), chance.choice([0, 0, 1, 1, 2, 3])])
        + chance.choice([OLD.fingerprint, NEW.fingerprint, chance.randbytes(8)])
        + slot.to_bytes(4, "big")
        + chance.choice([chance.randrange(40), chance.getrandbits(32)]).to_bytes(4, "big")
        + chance.choice([b"\0\0", b"\0\0", b"\0\1"])
        + chance.choice([1, 7, 0, chance.getrandbits(32)]).to_bytes(4, "big")
    )
    return chance.choice([made, made, made, made[: chance.randrange(24)], made + made[:4], chance.randbytes(24)])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(FIRST - 10, FIRST + 200))
def test_fifty_thousand_payloads_never_raise_and_are_all_accounted_for(seed: int, now: int) -> None:
    gate, batch, chance = admission(audit=True), Batch(), random.Random(seed)
    for number in range(500):
        topic = report_topic(PREFIX, "meters", (MEMBER, OTHER)[number % 2])
        assert gate.judge(topic, payload(chance), False, now, batch) in {COUNTED, *REASONS, *DUPLICATES}
    assert sum(batch.outcomes.values()) == len(batch.audit) == 500
    assert batch.partial.reports == batch.outcomes[COUNTED] == len(batch.seen) // 16


def test_a_conflict_names_its_device_and_nothing_else_does() -> None:
    gate, batch = admission(), Batch()
    for device, symbol in ((OTHER, 1), (OTHER, 1), (MEMBER, 1), (OTHER, 2)):
        gate.judge(*delivery(NEW, device, FIRST + 150, symbol), False, FIRST + 200, batch)
        assert batch.conflicting == ({OTHER} if symbol == 2 else set())

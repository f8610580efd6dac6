"""The fast path counts and refuses the same reports as the slow path, whatever arrives and in whatever order.

The slow path applies the rules to one report after the other.
"""

import random
from typing import Any

import pytest

from support.hostile import EPOCHS, GROUPS, OLD, stream_of
from support.server import FIRST, PREFIX, campaign, delivery
from undertone_aggregator.base.timing import FAILURES
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.columns import unpack
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.seen import COUNTED, NEWER, RECORD_BYTES, Seen, digest, record
from undertone_aggregator.counts.sequences import CLOSES
from undertone_aggregator.counts.sequences import RECORD_BYTES as NUMBERS_BYTES
from undertone_aggregator.ingest import tally as module
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.devices import Devices
from undertone_aggregator.ingest.fast_path import LEAST, FastPath
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.store.store import Batch
from undertone_shared import report
from undertone_shared.schedule import Schedule
from undertone_shared.topics import report_topic


def admission(epochs: list[Epoch], **options: Any) -> Admission:
    made = Admission(PREFIX, "meters", 1, Seen(), cells=cells_of, audit=True, **options)
    made.timeline = Timeline(epochs)
    return made


def records(batch: Batch) -> dict[bytes, list[bytes]]:
    """The deduplication's records of each device, in the order of writing."""
    rows: dict[bytes, list[bytes]] = {}
    for at in range(0, len(batch.seen), RECORD_BYTES):
        row = bytes(batch.seen[at : at + RECORD_BYTES])
        rows.setdefault(row[:8], []).append(row)
    return rows


def numbers(batch: Batch) -> dict[bytes, bytes]:
    """What a store keeps of each device's sequence numbers: the newest record."""
    rows = (bytes(batch.sequences[at : at + NUMBERS_BYTES]) for at in range(0, len(batch.sequences), NUMBERS_BYTES))
    return {row[:8]: row for row in rows}


def audits(batch: Batch) -> dict[tuple[str, bytes], str]:
    """What a store's audit keeps: one outcome for each report.

    This is `COUNTED` if the report was ever counted, else its first outcome.
    """
    kept: dict[tuple[str, bytes], str] = {}
    for device, code, outcome in batch.audit:
        if outcome == COUNTED or (device, code) not in kept:
            kept[device, code] = outcome
    return kept


def compare(epochs: list[Epoch], deliveries: list[Delivery], size: int, now: int, **options: Any) -> tuple[int, int]:
    """Judge the same reports twice: in batches by the fast path, and one by one.

    Return (reports counted, reports that the fast path counted).
    """
    fast, slow = admission(epochs, **options), admission(epochs, **options)
    judged = 0
    counted = 0
    original = fast.judge

    def count(*arguments: Any) -> str:
        nonlocal judged
        outcome = original(*arguments)
        judged += outcome == COUNTED
        return outcome

    fast.judge = count  # type: ignore[method-assign]

    def fail(sentence: str) -> None:
        raise AssertionError(sentence)

    closes = 0
    observe = slow.sequences.observe

    def watch(*arguments: Any) -> int:
        nonlocal closes
        shown = observe(*arguments)
        closes += shown == CLOSES
        return shown

    slow.sequences.observe = watch  # type: ignore[method-assign]
    for first in range(0, len(deliveries), size):
        part = deliveries[first : first + size]
        quick, plain = Batch(), Batch()
        FastPath(fast, fail).judge(part, now, quick)
        for topic, payload, retained, _ in part:
            slow.judge(topic, payload, retained, now, plain)
        assert quick.outcomes == plain.outcomes
        assert quick.partial == plain.partial
        # A late report closes a gap of its group. If several are open, the order among devices decides which one.
        assert abs(sum(quick.lost.values()) - sum(plain.lost.values())) <= closes
        assert records(quick) == records(plain)
        assert sorted(quick.chains[i : i + 20] for i in range(0, len(quick.chains), 20)) == sorted(
            plain.chains[i : i + 20] for i in range(0, len(plain.chains), 20)
        )
        assert numbers(quick) == numbers(plain)
        assert audits(quick) == audits(plain)
        counted += quick.outcomes[COUNTED]
    assert fast.seen.snapshot() == slow.seen.snapshot()
    assert fast.sequences.snapshot() == slow.sequences.snapshot()
    assert sorted(_rows(fast)) == sorted(_rows(slow))
    return counted, counted - judged


def _rows(judged: Admission) -> list[bytes]:
    data = judged.chains.snapshot()
    return [data[i : i + 20] for i in range(0, len(data), 20)]


@pytest.mark.slow_but("3-turns", "1-turns", "0-scalar", "2-stream")
@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("seed", range(4))
def test_both_say_the_same_of_hostile_deliveries(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    devices, size = chance.choice([(5, 40), (50, 100), (300, 500), (2000, 2000)])
    steps = chance.choice([3, 63, 64, 65, 120])
    deliveries = stream_of(EPOCHS[kind], chance, devices, 6000, chance.choice([0.0, 0.05, 0.25]), steps)
    groups = chance.choice([None, GROUPS])
    counted, quick = compare(EPOCHS[kind], deliveries, size, FIRST + 900, groups=groups)
    assert counted > 100
    assert quick > counted // 20 or devices == 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", EPOCHS)
def test_both_say_the_same_of_a_million(kind: str) -> None:
    for seed in range(34):
        chance = random.Random(1000 + seed)
        devices, size = chance.choice([(20, 60), (300, 500), (3000, 2000), (20_000, 2000)])
        deliveries = stream_of(EPOCHS[kind], chance, devices, 10_000, chance.choice([0.0, 0.05, 0.3]), 65)
        compare(EPOCHS[kind], deliveries, size, FIRST + chance.choice([150, 300, 900]), groups=GROUPS)


def test_an_honest_fleet_takes_the_lane_however_small() -> None:
    """The fast path takes every report of fifty or of three thousand devices, also the first report of each device."""
    for devices in (50, 3000):
        deliveries = [
            Delivery(*delivery(OLD.campaign, f"d{number}", FIRST + slot, 1, slot + 1), False, None)
            for slot in range(4)
            for number in range(devices)
        ]
        counted, quick = compare([OLD], deliveries, max(devices, LEAST), FIRST + 50)
        assert counted == 4 * devices
        assert quick == 4 * devices


def test_several_reports_of_one_device_in_a_batch_take_the_lane_in_their_order() -> None:
    deliveries = [
        Delivery(*delivery(OLD.campaign, f"d{number}", FIRST + slot, 1, slot + 1), False, None)
        for slots in ((0,), (1, 2, 5, 4, 6))
        for number in range(LEAST)
        for slot in slots
    ]
    counted, quick = compare([OLD], deliveries[:LEAST], LEAST, FIRST + 50)
    assert (counted, quick) == (LEAST, LEAST)
    # Reports of slots 0, 1, 2 and 5 take the fast path. Slot 4 is older than 5, so slots 4 and 6 are judged one by one.
    counted, quick = compare([OLD], deliveries, len(deliveries), FIRST + 50)
    assert counted == 6 * LEAST
    assert quick == 4 * LEAST
    counted, quick = compare([OLD], deliveries, LEAST, FIRST + 50)
    assert counted == 6 * LEAST
    assert quick >= 3 * LEAST


def test_reports_that_have_nothing_in_common_are_counted_apart() -> None:
    """Reports of one batch are counted in two histograms if they differ in epoch, slot, kind and group."""
    old, new = EPOCHS["scalar"]
    rule = new.campaign.schedule
    late = [name for name in (f"d{n}" for n in range(999)) if not rule.is_member(rule.place(name), FIRST + 100)][:LEAST]
    early = [f"e{number}" for number in range(LEAST)]
    known = [Delivery(*delivery(old.campaign, name, FIRST + 60, 1, 1), False, None) for name in early + late]
    mixed = [Delivery(*delivery(old.campaign, name, FIRST + 99, 1, 2), False, None) for name in early]
    mixed += [Delivery(*delivery(new.campaign, name, FIRST + 100, 1, 2), False, None) for name in late]
    groups = dict.fromkeys(early, "north") | dict.fromkeys(late, "south")
    counted = compare([old, new], known + mixed, 2 * LEAST, FIRST + 150, groups=groups)
    assert counted == (4 * LEAST, 4 * LEAST)


def test_a_device_takes_the_lane_as_often_as_its_window_allows() -> None:
    """Reports up to `NEWER` slots after a device's newest report take the fast path.

    Later ones are judged one by one.
    """
    size = NEWER + LEAST
    known = [Delivery(*delivery(OLD.campaign, f"d{number}", FIRST, 1, 1), False, None) for number in range(size)]
    many = [Delivery(*delivery(OLD.campaign, "d0", FIRST + 1 + k, 1, 2 + k), False, None) for k in range(size)]
    assert compare([OLD], known + many, size, FIRST + 90) == (2 * size, size + NEWER)


def test_a_failure_sends_the_batch_one_by_one_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    deliveries = [
        Delivery(*delivery(OLD.campaign, f"d{number}", FIRST + slot, 1), False, None)
        for slot in range(3)
        for number in range(LEAST)
    ]
    broken, whole = admission([OLD]), admission([OLD])
    said: list[str] = []
    before = FAILURES[broken.campaign]

    def fail(*_: object) -> None:
        raise IndexError("poison")

    for at in range(0, len(deliveries), LEAST):
        part = deliveries[at : at + LEAST]
        quick, plain = Batch(), Batch()
        FastPath(whole).judge(part, FIRST + 50, plain)
        with monkeypatch.context() as patch:
            patch.setattr(module, "newer", fail)
            FastPath(broken, said.append).judge(part, FIRST + 50, quick)
        assert quick.outcomes == plain.outcomes
        assert quick.partial == plain.partial
    assert broken.seen.snapshot() == whole.seen.snapshot()
    assert FAILURES[broken.campaign] == before + len(said) == before + len(deliveries) // LEAST
    assert (
        said[0]
        == "alarm: reports cannot be counted together; each is counted by itself, none is lost: IndexError('poison')"
    )


def test_an_error_of_the_program_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = admission([OLD])

    def wrong(*_: object) -> None:
        raise AttributeError("an error of the program")

    monkeypatch.setattr(FastPath, "admitted", wrong)
    with pytest.raises(AttributeError, match="an error of the program"):
        FastPath(gate).judge([Delivery("t", b"", False, None)] * LEAST, FIRST + 50, Batch())


@pytest.mark.parametrize("payload", [b"", b"7 bytes", bytes(23), bytes(25), bytes(1000)])
def test_a_batch_of_one_poison_report(payload: bytes) -> None:
    """The fast path does not fail at payloads of a wrong length, or at a batch with fewer bytes than one report."""
    topic = report_topic(PREFIX, "meters", "d1")
    compare([OLD], [Delivery(topic, payload, False, None)] * LEAST, LEAST, FIRST + 50)
    compare([OLD], [Delivery(topic, payload, False, None)], 1, FIRST + 50)


@pytest.mark.parametrize(
    ("at", "changed"), [(0, bytes([report.VERSION + 1])), (20, bytes(4))], ids=["version", "number"]
)
def test_what_is_no_report_is_refused_among_plain_reports(at: int, changed: bytes) -> None:
    deliveries = [Delivery(*delivery(OLD.campaign, f"d{n}", FIRST + 1), False, None) for n in range(LEAST)]
    topic, payload, retained, mark = deliveries[0]
    deliveries[0] = Delivery(topic, payload[:at] + changed + payload[at + len(changed) :], retained, mark)
    assert compare([OLD], deliveries, LEAST, FIRST + 50) == (LEAST - 1, LEAST - 1)


def test_columns_are_the_reports_fields() -> None:
    payloads = [
        report.pack(report.REPORT, b"abcdefgh", 2**32 - 1, (2**32 - 1,), 2**32 - 1),
        report.pack(report.STREAM, b"\xff" * 8, 7, (-(2**31) + 1,), 1, 65535),
        b"short",
    ]
    columns, sound = unpack(payloads)
    assert sound.tolist() == [True, True, False]
    assert columns.kind.tolist()[:2] == [1, 2]
    assert [fingerprint.to_bytes(8, "big") for fingerprint in columns.fingerprint.tolist()[:2]] == [
        b"abcdefgh",
        b"\xff" * 8,
    ]
    assert columns.slot.tolist()[:2] == [2**32 - 1, 7]
    assert columns.symbol.tolist()[0] == 2**32 - 1
    assert columns.released.tolist()[1] == -(2**31) + 1
    assert columns.chain.tolist()[:2] == [0, 65535]


def test_devices_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertone_aggregator.ingest import devices as devices_module

    monkeypatch.setattr(devices_module, "MOST", 100)
    known = Devices(lambda topic: (topic, None if topic == "x" else int(topic)), {"7": "north"})
    for first in range(0, 1000, 30):
        rows = known.rows([str(number) for number in range(first, first + 30)] + ["x", str(first)])
        assert rows[-2] == -1
        assert rows[-1] == rows[0]
        assert known.keys[rows[:30]].tolist() == list(range(first, first + 30))
        assert [known.name(row) for row in rows[:30].tolist()] == [str(first + i) for i in range(30)]
        assert len(known._known) <= 131
    schedule = Schedule(bytes(16), 7, 3)
    rows = known.rows(["7", "8", "x"])
    places = known.places(schedule, rows, rows >= 0)
    assert places[:2].tolist() == [schedule.place("7"), schedule.place("8")]
    assert [known.group_name(int(known.groups[row])) for row in rows[:2]] == ["north", "other"]


def test_records_are_those_of_one_by_one() -> None:
    import numpy as np

    from undertone_aggregator.counts import seen

    made = seen.records(
        np.array([2**64 - 1, 3], np.uint64), np.array([2**32 - 1, 0]), np.array([2**21 - 1, 5], np.uint64)
    )
    assert made == record(2**64 - 1, 2**32 - 1, 2**21 - 1) + record(3, 0, 5)
    assert seen.digests([b"x", b"y"], 2).tolist() == [digest(b"x"), digest(b"y")]
    assert campaign().name == "meters"


def test_every_honest_report_is_admitted_at_once_and_no_other() -> None:
    """Three slots of an epoch are tried: its first, one between, and its last.

    A device reports with kind COHORT in its slots of the threshold cohort, and with kind REPORT in the others. Reports
    with the other kind, and reports outside the epoch, are not admitted.
    """
    issued = campaign(FIRST + 100, FIRST + 160, cohort_stride=9, theta=500)
    gate = admission([OLD, Epoch(issued, 0)])
    now, slots = FIRST + 200, (FIRST + 100, FIRST + 130, FIRST + 160)
    honest = [Delivery(*delivery(issued, f"d{number}", slot, 1), False, None) for number in range(27) for slot in slots]
    admitted, _ = FastPath(gate).admitted(honest, now)
    assert admitted.good.all()
    assert {report.COHORT, report.REPORT} == set(admitted.columns.kind.tolist())
    wrong = [
        Delivery(topic, payload[:1] + bytes([1 - payload[1]]) + payload[2:], False, None)
        for topic, payload, _, _ in honest
    ]
    assert not FastPath(gate).admitted(wrong, now)[0].good.any()
    outside = [
        Delivery(*delivery(issued, f"d{number}", FIRST + slot, 1), False, None)
        for number in range(27)
        for slot in (99, 161, 163)
    ]
    assert not FastPath(gate).admitted(outside, now)[0].good.any()

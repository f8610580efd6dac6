"""What sequence numbers show about reports that devices drew but that never came."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from support import deliveries
from support.memory_store import MemoryStore
from support.server import FIRST, PREFIX, SEED, delivery, two_epochs
from support.waiting import wait_for
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.seen import device_key
from undertone_aggregator.counts.sequences import CLOSES, RECORD_BYTES, MissingReports, Sequences
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery, Intake
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import Mosquitto

OLD, _ = two_epochs()
ONE = device_key("d1")[1]


def observed(reports: list[tuple[int, int]], first_slot: int = 100) -> list[int]:
    """Return what each report (slot, sequence) of one device shows: how many reports are missing, or `CLOSES`.

    `CLOSES` means that the report itself was missing before.
    """
    sequences = Sequences()
    return [sequences.observe(ONE, first_slot, slot, sequence) for slot, sequence in reports]


@pytest.mark.parametrize(
    ("reports", "shown"),
    [
        # The reports come in order. In some slots the device drew nothing.
        ([(100, 1), (101, 2), (105, 3)], [0, 0, 0]),
        # Two late reports close a gap.
        ([(100, 1), (103, 4), (101, 2), (102, 3)], [0, 2, CLOSES, CLOSES]),
        # The first three reports are missing. Thirty-nine cannot be missing, since the campaign had only four slots.
        ([(103, 4)], [3]),
        ([(103, 40)], [0]),
        # The ledger began again. In the first case its second report is missing, in the second case its first two are.
        ([(150, 51), (151, 1), (153, 3)], [50, 0, 1]),
        ([(150, 51), (155, 3)], [50, 2]),
        # A device lies about its sequence. Between the two reports is one slot, so only one report counts as missing.
        ([(100, 1), (102, 4_000_000_000)], [0, 1]),
        # A report of the old ledger comes late.
        ([(150, 51), (152, 1), (151, 52)], [50, 0, 0]),
        # A late report with the same number as the newest report comes from another ledger.
        ([(150, 51), (153, 54), (151, 54)], [50, 2, 0]),
        # This report comes late and closes no gap.
        ([(100, 1), (102, 2), (101, 1)], [0, 0, 0]),
        # A second report for the same slot has another number.
        ([(100, 1), (100, 7)], [0, 0]),
        ([(100, 1), (103, 4), (103, 2)], [0, 2, 0]),
        # After two reports of one slot, the next report is compared with the first of the two.
        ([(100, 1), (100, 7), (103, 9)], [0, 0, 2]),
        # The same number in a later slot comes from a ledger that began again.
        ([(150, 51), (155, 51)], [50, 4]),
    ],
)
def test_what_a_devices_numbers_show(reports: list[tuple[int, int]], shown: list[int]) -> None:
    assert observed(reports) == shown


def test_no_device_closes_another_ones_gaps() -> None:
    """A lying device sends late reports with small numbers. The losses of 29 honest devices stay in the total."""
    sequences, losses, total = Sequences(), MissingReports(), Counter[tuple[str, int]]()
    honest = [device_key(f"d{number}")[1] for number in range(29)]
    liar = device_key("liar")[1]

    def report(key: int, slot: int, sequence: int) -> None:
        missing = sequences.observe(key, 100, slot, sequence)
        if missing:
            total.update(dict(losses.note(missing, "all", slot)))

    for key in honest:
        report(key, 100, 1)
        report(key, 102, 3)
    report(liar, 199, 100)
    claimed = total.total() - 29
    for slot in range(198, 100, -1):
        report(liar, slot, slot - 100)
    assert 29 <= total.total() <= 29 + claimed
    for key in honest:
        report(key, 101, 2)
    assert total.total() <= claimed, "what came late after all is missing no more"


def keys_of(sequences: Sequences) -> list[int]:
    """Return the keys of the devices in the snapshot, in its order."""
    return np.frombuffer(sequences.snapshot(), dtype="<u8").reshape(-1, 3)[:, 0].tolist()


def test_the_state_survives_in_records_and_in_snapshots() -> None:
    chance = random.Random(7)
    sequences = Sequences()
    records: list[bytes] = []
    keys = [device_key(f"d{number}")[1] for number in range(9000)]
    for slot in range(3):
        for key in chance.sample(keys, 6000):
            sequences.observe(key, 0, slot, slot + 1)
            records.append(sequences.record(key))
    replayed, resumed, half = Sequences(), Sequences(), Sequences()
    replayed.load((False, record) for record in records)
    snapshot = sequences.snapshot()
    resumed.load([(True, snapshot)])
    half.load([(True, snapshot)], range(32))
    assert keys_of(half) == [key for key in keys_of(sequences) if (key >> 56) % 64 < 32]
    assert replayed.snapshot() == resumed.snapshot() == snapshot
    assert len(snapshot) == RECORD_BYTES * len(sequences)
    assert 0 < len(half) < len(sequences)
    with pytest.raises(Invalid, match="expected a multiple of 24"):
        Sequences().load([(False, b"x")])


def test_reports_that_arrive_after_all_close_the_oldest_gap_of_their_group() -> None:
    losses = MissingReports({("north", 5): 2})
    total: Counter[tuple[str, int]] = Counter({("north", 5): 2})
    for missing, group, slot in [(1, "north", 9), (3, "south", 9), (CLOSES, "north", 3), (CLOSES, "south", 9)]:
        total.update(dict(losses.note(missing, group, slot)))
    assert +total == {("north", 5): 1, ("north", 9): 1, ("south", 9): 3}
    total.update(dict(losses.note(CLOSES, "north", 4)))
    assert +total == {("north", 9): 1, ("south", 9): 3}


def test_what_closes_no_gap_changes_nothing() -> None:
    losses = MissingReports({("all", 9): 2, ("all", 7): 0})
    # A report with 0 shows no missing report and closes no gap.
    assert losses.note(0, "all", 3) == []
    assert losses.note(CLOSES, "north", 3) == []
    # A late report closes a gap that was noticed after its slot, the earliest first, and no more gaps than there are.
    assert [losses.note(CLOSES, "all", 3) for _ in range(3)] == [[(("all", 9), -1)], [(("all", 9), -1)], []]
    # A gap may have been noticed just one slot after the late report's own slot. A gap that was noticed before
    # the report's own slot stays open.
    assert MissingReports({("all", 9): 1}).note(CLOSES, "all", 8) == [(("all", 9), -1)]
    assert MissingReports({("all", 9): 1, ("all", 3): 1}).note(CLOSES, "all", 7) == [(("all", 9), -1)]
    # Of two gaps that were noticed much later, the late report closes the earlier one.
    assert MissingReports({("all", 300): 1, ("all", 200): 1}).note(CLOSES, "all", 3) == [(("all", 200), -1)]
    # Another gap is noticed in an older slot. A late report for slot 6 still closes the newest gap.
    older = MissingReports({("all", 9): 1})
    older.note(1, "all", 5)
    assert older.note(CLOSES, "all", 6) == [(("all", 9), -1)]
    losses.note(1, "all", 5)
    assert losses.note(CLOSES, "all", 5) == []
    assert losses.note(CLOSES, "all", 4) == [(("all", 5), -1)]


@pytest.mark.slow
def test_a_late_report_costs_the_same_however_many_are_missing() -> None:
    """A gap was noticed in each of 200,000 slots. 4000 late reports take less than 10 seconds of processor time."""
    losses = MissingReports({("all", slot): 1 for slot in range(200_000)})
    began = time.process_time()
    assert [losses.note(CLOSES, "all", 1000) for _ in range(2000)][-1] == [(("all", 3000), -1)]
    # These reports are for a slot later than all gaps, and close none.
    assert [losses.note(CLOSES, "all", 250_000) for _ in range(2000)][-1] == []
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([4, 5, 6, 7], True),
        # Each number is compared with the last one, not with the one before the last.
        ([4, 9, 5, 10], False),
        ([4, 5, 5, 6], False),
        ([5, 6, 7, 8], False),
    ],
)
def test_a_run_of_reports_is_expected_if_each_number_follows_the_one_before(numbers: list[int], expected: bool) -> None:
    sequences = Sequences()
    sequences.observe(ONE, 100, 102, 3)
    other = device_key("d2")[1]
    sequences.observe(other, 100, 102, 1)
    rows = sorted([(other, 103, 2), *((ONE, 103 + i, number) for i, number in enumerate(numbers))])
    keys, slots, numbered = (
        np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), ("u8", "i8", "i8"), strict=True)
    )
    mask, records = sequences.observe_all(keys, slots, numbered, 100)
    assert mask.tolist() == [key == other or expected for key, _, _ in rows]
    known = [other, ONE] if expected else [other]
    assert records == b"".join(sequences.record(key) for key in sorted(known))


class Dropping:
    """Stands for a broker that drops messages. It acknowledges what ``drop`` names, and delivers it to nobody."""

    def __init__(self, inner: Intake, drop: set[tuple[str, bytes]]) -> None:
        self._inner = inner
        self._drop = drop
        self.dropped = 0

    @property
    def ready(self) -> bool:
        return self._inner.ready

    def take(self, seconds: float) -> Sequence[Delivery]:
        taken = self._inner.take(seconds)
        gone = [delivery for delivery in taken if delivery[:2] in self._drop]
        self._inner.acknowledge(gone)
        self.dropped += len(gone)
        return [delivery for delivery in taken if delivery[:2] not in self._drop]

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self._inner.acknowledge(deliveries)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mosquitto]:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with deliveries.open_broker(tmp_path / "b") as made:
        yield made


@pytest.mark.slow
def test_lost_equals_what_a_broker_dropped_of_acknowledged_reports(broker: Mosquitto) -> None:
    chance = random.Random(SEED[1])
    slots, names = 60, [f"d{number}" for number in range(60)]
    reports = [
        (name, n, delivery(OLD.campaign, name, FIRST + n, chance.randrange(3), n + 1))
        for n in range(slots)
        for name in names
    ]
    # A device's last report shows how many reports before it are missing. Nothing shows what is missing after it.
    drop = {message for _, n, message in reports if n < slots - 1 and chance.random() < 0.01}
    # Some reports come late, and some come twice.
    order = sorted(range(len(reports)), key=lambda i: i + (chance.randrange(600) if chance.random() < 0.1 else 0))
    sent = [reports[i][2] for i in order] + [reports[i][2] for i in order[::50]]
    groups = {name: "north" if number % 3 else "south" for number, name in enumerate(names)}
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, batch=200, groups=groups)
    store = MemoryStore()
    store.set_meta({"campaign": "meters"})
    store.add_epoch(OLD)
    intake = Dropping(open_intake([deliveries.address(broker)], plan, print), drop)
    wait_for(lambda: bool(intake.take(0.05)) or intake.ready)
    ingest = Ingest(plan, store, intake, clock=lambda: FIRST + 200.0)
    sender = deliveries.Sender(broker)
    made = sender.send(sent)
    goal = sum(message not in drop for message in sent)
    wait_for(lambda: bool(ingest.step()) and store.outcomes()["received"] >= goal, 60)
    sender.flush(made)
    sender.close()
    intake.close()
    mine = Counter(groups[name] for name, _, message in reports if message in drop)
    shown = {group: n for group, (n, _) in store.lost().items()}
    assert 20 < sum(mine.values()) <= intake.dropped
    assert shown == mine
    # A new worker starts with what the store has, and changes no count.
    Ingest(plan, store, intake, clock=lambda: FIRST + 200.0)
    assert store.outcomes()["counted"] == len(reports) - len(drop)


@pytest.mark.parametrize("seed", range(20))
def test_many_at_once_are_what_they_are_one_by_one(seed: int) -> None:
    """A batch has several reports of a device; some numbers are missing, and some slots are late.

    Judged at once or one by one, the batch gives the same state and the same gaps.
    """
    chance = random.Random(seed)
    fast, slow = Sequences(), Sequences()
    last: dict[int, tuple[int, int]] = {}
    plain_ones = 0
    for _ in range(30):
        batch = []
        for _ in range(chance.randrange(1, 60)):
            key = chance.randrange(1, 15) << 58
            slot, number = last.get(key, (100, 0))
            slot += chance.choice([1] * 40 + [0, 3, -2])
            number += chance.choice([1] * 60 + [2, 0, 5])
            last[key] = slot, number
            batch.append((key, slot, number))
        keys, slots, numbers = (np.array(column) for column in zip(*batch, strict=True))
        keys = keys.astype(np.uint64)
        order = np.argsort(keys, kind="stable")
        plain = np.zeros(len(keys), dtype=bool)
        plain[order], _ = fast.observe_all(keys[order], slots[order], numbers[order], 0)
        plain_ones += int(plain.sum())
        missing = [fast.observe(batch[i][0], 0, *batch[i][1:]) for i in np.flatnonzero(~plain).tolist()]
        for i, (key, slot, number) in enumerate(batch):
            shown = slow.observe(key, 0, slot, number)
            if plain[i]:
                assert shown == 0
            else:
                assert shown == missing.pop(0)
        assert fast.snapshot() == slow.snapshot()
    assert plain_ones > 50


def test_new_devices_are_counted_with_those_that_were_merged() -> None:
    sequences = Sequences()
    for key in range(10):
        sequences.observe(key, 0, 1, 1)
    sequences.snapshot()
    for key in range(7, 13):
        sequences.observe(key, 0, 2, 2)
    assert len(sequences) == 13


@pytest.mark.parametrize(
    ("slot", "number", "plain"), [(102, 1, True), (102, 2, False), (102, 3, False), (102, 4, True)]
)
def test_a_first_report_is_expected_if_it_shows_nothing_missing(slot: int, number: int, plain: bool) -> None:
    """A number above the number of slots so far comes from an earlier campaign, so it shows no missing report."""
    keys, slots, numbers = (
        np.array([value], dtype=kind) for value, kind in ((ONE, "u8"), (slot, "i8"), (number, "i8"))
    )
    fast, slow = Sequences(), Sequences()
    mask, records = fast.observe_all(keys, slots, numbers, 100)
    assert mask.tolist() == [plain]
    assert (slow.observe(ONE, 100, slot, number) == 0) is plain
    if plain:
        assert records == slow.record(ONE) == fast.snapshot() == slow.snapshot()

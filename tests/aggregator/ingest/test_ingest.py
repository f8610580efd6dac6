"""Ingest without a broker: deliveries come from a list."""

import io
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from support.list_intake import ListIntake
from support.memory_store import MemoryStore
from support.server import FIRST, PREFIX, delivery, two_epochs
from support.waiting import wait_for
from undertone_aggregator.base.interpreter import INGEST_THREADS, ThreadLimit
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.counts.seen import RECORD_BYTES, Seen
from undertone_aggregator.ingest import ingest as module
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.settings.groups import keep_groups
from undertone_aggregator.store.store import Batch, StoreError

PLAN = IngestPlan(PREFIX, "meters", 1, cells_of, audit=True)
ADDRESS = Address("127.0.0.1", 1, "aggregator", "secret")
OLD, NEW = two_epochs()


class Failing(MemoryStore):
    """A store whose disk is full for the next ``failures`` commits."""

    failures = 0

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("database or disk is full")
        super().commit(worker, batch, snapshots)


def new_store() -> Failing:
    made = Failing()
    made.set_meta({"campaign": "meters"})
    made.add_epoch(OLD)
    return made


@pytest.fixture
def store() -> Failing:
    return new_store()


def reports(count: int, slot: int = FIRST + 1) -> list[Delivery]:
    return [Delivery(*delivery(OLD.campaign, f"d{number}", slot), False) for number in range(count)]


def make(
    store: MemoryStore, said: list[str], intake: ListIntake | None = None, threads: ThreadLimit = INGEST_THREADS
) -> Ingest:
    return Ingest(PLAN, store, intake or ListIntake([]), say=said.append, clock=lambda: FIRST + 200.5, threads=threads)


def test_a_full_disk_delays_and_counts_nothing_twice(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    said: list[str] = []
    ingest = make(store, said)
    assert ingest.commit(reports(5))
    store.failures = 3
    assert ingest.commit(reports(8))
    assert said == ["the store cannot be written, trying again: database or disk is full"] * 3
    assert store.outcomes() == {"counted": 8, "duplicate": 5, "received": 13}
    assert store.partial().reports == 8


def test_a_full_disk_does_not_stop_the_end(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 60)
    ingest = make(store, [])
    store.failures = 10**9
    stop = threading.Event()
    stop.set()
    ingest.run(stop, lambda _: None)
    assert not ingest.commit(reports(5)), "nothing may be acknowledged"
    store.failures = 0
    assert store.outcomes()["received"] == 0


def test_a_store_that_fails_keeps_no_other_waiting(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 60)
    turns, stop = ThreadLimit(1, 60), threading.Event()
    said: list[str] = []
    healthy = new_store()
    failing = make(store, said, ListIntake(reports(5)), turns)
    well = make(healthy, [], ListIntake(reports(5)), turns)
    store.failures = 10**9
    threads = [threading.Thread(target=ingest.run, args=(stop, lambda _: None)) for ingest in (failing, well)]
    threads[0].start()
    try:
        wait_for(lambda: said)
        threads[1].start()
        wait_for(lambda: healthy.outcomes()["counted"] == 5, 50, "the commit of a campaign that has a healthy store")
    finally:
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()


class Hanging(MemoryStore):
    """A store that commits nothing before ``released`` is set, such as a database that another program locks."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.released = threading.Event(), threading.Event()

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        self.hangs.set()
        assert self.released.wait(60)
        super().commit(worker, batch, snapshots)


def test_stores_that_hang_keep_no_other_waiting() -> None:
    now, stop = [0.0], threading.Event()
    turns = ThreadLimit(2, 60.0, clock=lambda: now[0])
    stores = [Hanging(), Hanging()]
    healthy = new_store()
    for store in stores:
        store.add_epoch(OLD)
    threads = [
        threading.Thread(target=make(store, [], ListIntake(reports(5)), turns).run, args=(stop, lambda _: None))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    try:
        for store in stores:
            assert store.hangs.wait(60)
        now[0] = 60.5
        well = make(healthy, [], threads=turns)
        for slot in range(10):
            assert well.commit(reports(5, FIRST + slot))
        assert healthy.outcomes()["counted"] == 50
        assert [store.outcomes()["received"] for store in stores] == [0, 0]
    finally:
        stop.set()
        for store in stores:
            store.released.set()
        for thread in threads:
            thread.join()


def test_an_epoch_that_another_process_issues_is_known_at_once(store: Failing) -> None:
    ingest = make(store, [])
    late = [Delivery(*delivery(NEW.campaign, "d1", FIRST + 150), False)]
    assert ingest.commit(late)
    store.add_epoch(NEW)
    assert ingest.commit(late)
    assert store.outcomes() == {"other_campaign": 1, "counted": 1, "received": 2}
    assert [outcome for _, _, outcome in store.audit()] == ["counted"]


def test_a_small_fleet_leaves_digests_of_about_one_slot_besides_the_three_newest(store: Failing) -> None:
    ingest, devices = make(store, []), 50
    for slot in range(40):
        assert ingest.commit(reports(devices, FIRST + slot))
        rows = sum(len(data) // RECORD_BYTES for is_snapshot, data in store.segments(SEEN) if not is_snapshot)
        assert rows <= devices, f"slot {slot}"


def test_a_tiny_fleet_is_not_tidied_after_each_report(store: Failing) -> None:
    ingest = make(store, [])
    for slot in range(module.COMPACT_RECORDS):
        assert ingest.commit(reports(1, FIRST + slot))
    assert [is_snapshot for is_snapshot, _ in store.segments(SEEN)] == [False] * module.COMPACT_RECORDS
    assert ingest.commit(reports(1, FIRST + module.COMPACT_RECORDS))
    assert [is_snapshot for is_snapshot, _ in store.segments(SEEN)] == [True]


def test_deduplication_is_compacted_and_survives(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_RECORDS", 10)
    ingest = make(store, [])
    for slot in range(5):
        ingest.commit(reports(4, FIRST + slot))
    assert [is_snapshot for is_snapshot, _ in store.segments(SEEN)] == [True, False, False]
    seen = Seen()
    seen.load(store.segments(SEEN))
    assert len(seen) == 4
    again = make(store, [])
    again.commit(reports(4, FIRST + 4))
    assert store.outcomes()["duplicate"] == 4


def test_what_is_committed_is_acknowledged_and_nothing_else(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    intake = ListIntake(reports(7), batch=3)
    ingest = make(store, [], intake)
    assert [ingest.step() for _ in range(2)] == [3, 3]
    assert intake.waiting == 1
    store.failures = 1
    ingest._stop.set()
    assert ingest.step() == 0
    intake.break_connection()
    assert (store.outcomes()["counted"], intake.waiting) == (6, 1), "what was not committed comes again"
    ingest._stop.clear()
    assert (ingest.step(), intake.waiting) == (1, 0)
    assert store.outcomes() == {"counted": 7, "received": 7}


def test_it_is_ready_when_its_intake_is_and_closes_it_at_the_end(store: Failing) -> None:
    intake = ListIntake(reports(5))
    stop = threading.Event()
    make(store, [], intake).run(stop, lambda ready: stop.set() if ready else None)
    assert (intake.closed, intake.waiting, store.outcomes()["counted"]) == (True, 0, 5)


def test_a_device_that_contradicts_itself_is_named(store: Failing) -> None:
    said: list[str] = []
    ingest = make(store, said)
    ingest.commit([Delivery(*delivery(OLD.campaign, "d7", FIRST + 1, symbol), False) for symbol in (0, 1)])
    assert said == ["devices sent a second, different report for a slot that was already counted: d7"]
    assert store.outcomes()["conflict"] == 1
    stream = io.StringIO()
    journal = Journal(stream)
    journal.say_once("ingest", said[0])
    # The public page shows alarms, so the line with the name is none.
    assert "d7" in stream.getvalue()
    assert journal.recent_alarms(0) == []


def test_of_many_devices_that_contradict_themselves_some_are_named(store: Failing) -> None:
    said: list[str] = []
    pairs = [(f"d{n}", symbol) for n in range(1, 8) for symbol in (0, 1)]
    ingest = make(store, said)
    ingest.commit([Delivery(*delivery(OLD.campaign, name, FIRST + 1, symbol), False) for name, symbol in pairs])
    assert said[-1].endswith("already counted: d1, d2, d3, d4, d5 and 2 more")


def test_the_password_is_not_in_what_is_printed() -> None:
    assert "secret" not in repr(ADDRESS)


def test_a_device_that_is_added_to_a_group_counts_there_at_once(store: Failing) -> None:
    """The server need not start again. Reports that were counted before the change stay in their group."""
    keep_groups(store, {"d0": "north"})
    ingest = Ingest(replace(PLAN, groups={"d0": "north"}), store, ListIntake([]), clock=lambda: FIRST + 200.5)
    assert ingest.commit(reports(3))
    assert keep_groups(store, {"d0": "north", "d1": "south"})
    assert not keep_groups(store, {"d1": "south", "d0": "north"})
    assert ingest.commit(reports(3, FIRST + 2))
    sizes = Counter({(key.group, key.slot - FIRST): int(n.sum()) for key, n in store.partial().items()})
    assert sizes == {("north", 1): 1, ("other", 1): 2, ("north", 2): 1, ("south", 2): 1, ("other", 2): 1}

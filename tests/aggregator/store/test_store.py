"""The contract of every store, and what the SQLite file adds to it."""

import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.list_intake import ListIntake
from support.micropython import REPO
from support.refusal import refused
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.device_states import CHAINS, SEEN, SEQUENCES
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.counts.seen import Seen
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.store.inventory import ACTIVE, MOVED, REVOKED, Device, refused_keys, tombstone
from undertone_aggregator.store.store import SETTLED, Batch, NoStore, Store, StoreError, open_store
from undertone_aggregator.store.store_address import KINDS, StoreKind
from undertone_aggregator.threshold import Threshold
from undertone_shared.errors import Invalid

STATES = (SEEN, CHAINS, SEQUENCES)


def judged(symbols: list[int], slot: int = FIRST + 50) -> Batch:
    """A batch with one report for each symbol, each from another device."""
    epochs = two_epochs()
    admission = Admission("undertone-test/server", "meters", 1, Seen(), cells=cells_of, audit=True)
    admission.timeline = Timeline(epochs)
    batch = Batch()
    for number, symbol in enumerate(symbols):
        admission.judge(*delivery(epochs[0].campaign, f"d{number}", slot, symbol), False, FIRST + 200, batch)
    return batch


# The stores that the product has, and the one of the guide. Whoever adds a kind of store adds it here; it then has to
# pass all tests that use `opened`.
KINDS_TRIED = ["sqlite", "memory", pytest.param("postgresql", marks=pytest.mark.services)]


@pytest.fixture(params=KINDS_TRIED)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store that does not exist yet, of each kind."""
    monkeypatch.setitem(KINDS, "memory", StoreKind("support.memory_store", "open_memory", False, "memory:NAME"))
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres").new_database())
    return f"{request.param}:{tmp_path / 'store'}"


@pytest.fixture
def opened(url: str) -> Callable[[], Store]:
    """Opens one store of each kind, as often as it is called."""
    return lambda: open_store(url)


def test_the_guide_names_the_store_that_is_tried_here() -> None:
    guide = (REPO / "docs/extending.md").read_text(encoding="utf-8")
    assert "(../tests/support/memory_store.py)" in guide
    assert '"open_memory", False, "memory:NAME"' in guide


def test_every_kind_that_is_shipped_is_tried() -> None:
    tried = {getattr(kind, "values", (kind,))[0] for kind in KINDS_TRIED}
    assert tried == {*KINDS, "memory"}


def test_it_has_every_member_that_the_protocol_names(opened: Callable[[], Store]) -> None:
    with opened() as store:
        assert [name for name in vars(Store) if not name.startswith("_") and not hasattr(store, name)] == []


def test_its_own_address_opens_it_again(url: str) -> None:
    if not url.startswith("postgresql"):
        with pytest.raises(NoStore):
            open_store(url, read_only=True)
    with open_store(url, campaign="meters") as store:
        store.set_meta({"campaign": "meters"})
        assert store.name in store.url
        again = store.url
    with open_store(again, read_only=True) as store:
        assert (store.meta(), store.campaigns(), store.damage()) == ({"campaign": "meters"}, ["meters"], "")


def test_a_worker_counts_into_it_and_goes_on_from_it(opened: Callable[[], Store]) -> None:
    epoch = two_epochs()[0]
    plan = IngestPlan(PREFIX, "meters", 1, cells_of)
    sent = [Delivery(*delivery(epoch.campaign, f"d{number}", FIRST + 50), False) for number in range(7)]
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        store.add_epoch(epoch)
    for counted, duplicate in ((7, 0), (7, 7)):
        with opened() as store:
            intake = ListIntake(sent)
            Ingest(plan, store, intake, clock=lambda: FIRST + 200.0).step()
            assert (intake.waiting, store.partial().reports) == (0, 7)
            outcomes = store.outcomes()
            # A store without digests cannot tell whether a report that comes again has the same bytes.
            again = outcomes["duplicate"] + outcomes["duplicate_unverified"]
            assert (outcomes["counted"], again) == (counted, duplicate)


def test_batches_add_up_over_workers_and_restarts(opened: Callable[[], Store]) -> None:
    expected = judged([0, 1, 1]).partial.merge(judged([2, 2]).partial).merge(judged([0]).partial)
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        store.commit("0of2", judged([0, 1, 1]))
        store.commit("1of2", judged([2, 2]))
    with opened() as store:
        store.commit("1of2", judged([0]))
        assert store.partial() == expected
        assert store.partial(kind=1).reports == 0
        assert store.partial(FIRST + 51).reports == 0
        assert store.outcomes() == {"counted": 6, "received": 6}
        assert store.newest_slot() == FIRST + 50


def test_what_comes_after_its_slot_settled_is_kept_apart(opened: Callable[[], Store]) -> None:
    slot, in_time, late = FIRST + 50, judged([0, 1, 1]).partial, judged([2, 2])
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        store.commit("0of2", Batch(in_time))
        store.set_meta({SETTLED: str(slot)})
        for worker in ("0of2", "0of2", "1of2"):
            store.commit(worker, late)
        store.commit("1of2", judged([0], FIRST + 51))
    with opened() as store:
        assert store.partial(slot, slot, late=False) == in_time
        assert store.partial(slot, slot).reports == 3 + 6
        assert store.partial(late=False).reports == 3 + 1
        assert store.late_reports() == 6
        assert store.newest_slot() == FIRST + 51
        assert store.counted_groups() == store.counted_groups(FIRST + 60) == {"all"}
        assert store.meta(SETTLED) == {SETTLED: str(slot)}


def test_conflicts_add_up_by_group(opened: Callable[[], Store]) -> None:
    with opened() as store:
        store.commit("0of2", Batch(outcomes=Counter(conflict=3), conflicts=Counter(north=2, south=1)))
        store.commit("1of2", Batch(outcomes=Counter(conflict=1), conflicts=Counter(north=1)))
    with opened() as store:
        store.commit("0of2", Batch(outcomes=Counter(conflict=4), conflicts=Counter(north=4)))
        assert store.conflicts() == {"north": 7, "south": 1}
        assert store.outcomes()["conflict"] == 8


def test_refusals_add_up_by_reason_and_slot_of_arrival(opened: Callable[[], Store]) -> None:
    with opened() as store:
        store.commit("0of2", Batch(refused=Counter({("late", FIRST): 2, ("symbol", FIRST + 1): 1})))
        store.commit("1of2", Batch(refused=Counter({("late", FIRST): 3})))
    with opened() as store:
        # A slot of arrival is what the server's clock shows, so any number is possible.
        edges = {("late", 0): 1, ("late", 0xFFFFFFFF): 1}
        store.commit("0of2", Batch(refused=Counter({("late", FIRST): 1, **edges})))
        assert store.refusals() == {("late", FIRST): 6, ("symbol", FIRST + 1): 1, **edges}
        assert store.refusals(FIRST + 1, FIRST + 9) == {("symbol", FIRST + 1): 1}


def test_a_batch_is_all_or_nothing(opened: Callable[[], Store]) -> None:
    with opened() as store:
        batch = judged([0])
        batch.audit.append(("d", b"x", None))  # type: ignore[arg-type]
        with pytest.raises(StoreError):
            store.commit("0of1", batch)
        assert store.partial().reports == 0
        assert not list(store.segments(SEEN))
        assert store.outcomes()["received"] == 0


def test_what_settled_up_to_a_slot_is_late_from_then_on(opened: Callable[[], Store]) -> None:
    with opened() as store:
        assert (store.newest_slot(), store.late_reports()) == (None, 0)
        store.set_meta({"campaign": "meters"})
        store.commit("0of1", judged([0], FIRST))
        assert (store.late_reports(), store.newest_slot(), store.partial().reports) == (0, FIRST, 1)
        store.set_meta({SETTLED: str(FIRST + 5)})
        for slot, late in ((5, 1), (6, 1), (4, 2), (7, 2)):
            store.commit("0of1", judged([1], FIRST + slot))
            assert store.late_reports() == late
        slots = [store.partial(FIRST + slot, FIRST + slot).reports for slot in (0, 4, 5, 6, 7, 8)]
        assert slots == [1, 1, 1, 1, 1, 0]
        between = [store.partial(FIRST + 4, FIRST + 6, late=late).reports for late in (True, False)]
        assert between == [3, 1]
        assert store.newest_slot() == FIRST + 7
        assert (store.partial(kind=0).reports, store.partial(kind=1).reports) == (5, 0)


def test_a_selection_of_slots_holds_both_of_its_ends(opened: Callable[[], Store]) -> None:
    """The slots include the first possible one and the last that a report can name."""
    slots = {"a": 0, "b": 5, "c": 0xFFFFFFFF}
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        partial = Partial()
        for group, slot in slots.items():
            partial.add(Key("meters", b"abcdefgh", 1, group, slot), 0, 2)
        store.commit("0of1", Batch(partial))
        assert {key.group for key in store.partial()} == {"a", "b", "c"}
        assert {key.group for key in store.partial(0, 5)} == {"a", "b"}
        assert {key.group for key in store.partial(1, 0xFFFFFFFE)} == {"b"}
        for settled in (-1, 5):
            # The same holds for slots whose sums are stored.
            store.set_meta({SETTLED: str(settled)})
            while store.sum_up(9):
                pass
            assert [store.counted_groups(first) for first in (0, 1, 5, 6)] == [
                {"a", "b", "c"},
                {"b", "c"},
                {"b", "c"},
                {"c"},
            ]
            assert store.counted_groups() == {"a", "b", "c"}


def sums_of(store: Store) -> list[tuple[int, bytes, int, list[int], dict[str, int]]]:
    """All sums in a store: slot, epoch, kind, the histogram of all groups, the number of reports of each group."""
    sums = store.sums(0, 0xFFFFFFFF)
    return sorted(
        (slot, of.fingerprint, of.kind, counts, {name: n for name, n in zip(sums.names, reports, strict=True) if n})
        for of, table in sums.tables.items()
        for slot, counts, reports in zip(*(column.tolist() for column in table), strict=True)
    )


def test_sums_are_those_of_the_histograms_and_of_no_late_report(opened: Callable[[], Store]) -> None:
    """Groups appear one after the other, some reports come from a second worker, and some slots have no reports."""
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        sent = [(slot, kind, group) for slot in (3, 4, 6, 9, 300) for kind in (0, 1, 2) for group in "cab"[: slot - 2]]
        for worker in ("0of2", "1of2"):
            partial = Partial()
            for number, (slot, kind, group) in enumerate(sent):
                partial.add_counts(Key("meters", b"of epoch", kind, group, slot), np.array([number, 500, 2]))
            store.commit(worker, Batch(partial))
        histograms = store.histograms(4, 9, kind=1, groups=["a", "b"])
        assert [(key.slot, key.group) for key, _ in histograms.items()] == [
            (slot, group) for slot in (4, 6, 9) for group in ("a", "b")[: slot - 3]
        ]
        assert {key.group for key, _ in store.histograms(0, 999, groups=["c"]).items()} == {"c"}
        assert not store.histograms(0, 999, groups=[]).tables
        before = sums_of(store)
        assert len(before) == 5 * 3
        assert before[4] == (4, b"of epoch", 1, [2 * (5 + 6), 2000, 8], {"c": 2 * 507, "a": 2 * 508})
        # In a vector of moments, the first number is the number of reports.
        assert before[5][-1] == {"c": 2 * 7, "a": 2 * 8}
        store.set_meta({SETTLED: "100"})
        late = Partial()
        late.add(Key("meters", b"of epoch", 1, "d", 4), 0, 3)
        store.commit("0of2", Batch(late))
        steps = 1
        while store.sum_up(2):
            steps += 1
            assert sums_of(store) == before
        assert steps <= 4
        assert sums_of(store) == before
        assert store.histograms(0, 999, late=True).sums().names == ("d",)
        assert store.counted_groups() == {*"abcd"}
    with opened() as store:
        store.set_meta({SETTLED: "300"})
        assert not store.sum_up(1)
        assert sums_of(store) == before
        sums = store.sums(5, 6)
        assert [table.slot.tolist() for table in sums.tables.values()] == [[6]] * 3
        assert not store.sums(400, 500).tables


def test_sums_of_a_time_are_those_of_its_slots_and_of_no_other(opened: Callable[[], Store]) -> None:
    """Some sums are stored.

    The others are added up from histograms, of which only a limited number is read at a time.
    """
    slots = [slot for slot in range(1, 300) if slot % 7]
    with opened() as store:
        partial = Partial()
        for slot in slots:
            partial.add(Key("meters", b"of epoch", 1, "a", slot), 0, 2)
        store.commit("0of1", Batch(partial))
        store.set_meta({"campaign": "meters", SETTLED: "50"})
        while store.sum_up(9):
            pass
        # These slots lie around the last stored sum and around the blocks of 96 slots that are added up together.
        edges = (1, 2, 50, 51, 52, 145, 146, 147, 148, 193, 194, 242, 243, 299)
        for first, last in itertools.combinations_with_replacement(edges, 2):
            found = [slot for table in store.sums(first, last).tables.values() for slot in table.slot.tolist()]
            assert sorted(found) == [slot for slot in slots if first <= slot <= last], (first, last)


def test_a_slot_that_may_get_more_reports_is_not_summed_up(opened: Callable[[], Store]) -> None:
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        for number, slots in enumerate((range(1, 7), range(4, 7))):
            partial = Partial()
            for slot in slots:
                partial.add(Key("meters", b"of epoch", 1, "a", slot), 0, 2)
            store.commit(f"{number}of2", Batch(partial))
            store.set_meta({SETTLED: "3"})
            assert not store.sum_up(9)
        (sums,) = store.sums(1, 6).tables.values()
        assert sums.slot.tolist() == [1, 2, 3, 4, 5, 6]
        assert sums.counts[:, 0].tolist() == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("histograms", [1, 3, 128, 129, 300])
def test_every_histogram_of_a_batch_is_added_to_the_stored_one(opened: Callable[[], Store], histograms: int) -> None:
    keys = [Key("meters", bytes([n % 2]) * 8, n % 2, f"g{n % 3}", FIRST + n) for n in range(histograms)]
    with opened() as store:
        store.set_meta({"campaign": "meters"})
        for _ in range(2):
            partial = Partial()
            for number, key in enumerate(keys):
                partial.add_counts(key, np.array([1, number]))
            store.commit("0of1", Batch(partial))
        added = {key: counts.tolist() for key, counts in store.partial().items()}
    assert added == {key: [2, 2 * number] for number, key in enumerate(keys)}


def test_losses_add_up_by_group_and_slot(opened: Callable[[], Store]) -> None:
    with opened() as store:
        store.commit("0of2", Batch(lost=Counter({("north", 5): 3, ("south", 5): 1})))
        store.commit("1of2", Batch(lost=Counter({("north", 5): 2, ("north", 6): 4})))
        store.commit("0of2", Batch(lost=Counter({("north", 5): -1})))
        assert store.losses() == {("north", 5): 4, ("south", 5): 1, ("north", 6): 4}
        assert store.lost() == {"north": (8, 5), "south": (1, 5)}
        store.commit("0of2", Batch(lost=Counter({("north", 5): -4, ("south", 5): -1})))
        assert store.lost() == {"north": (4, 6)}


def test_the_audit_keeps_the_first_outcome_unless_counted_later(opened: Callable[[], Store]) -> None:
    with opened() as store:
        for outcome in ("future", "counted", "duplicate"):
            store.commit("0of1", Batch(outcomes=Counter({outcome: 1}), audit=[("d", b"x", outcome)]))
        assert list(store.audit()) == [("d", b"x", "counted")]


def test_deduplication_resumes_and_compacts(opened: Callable[[], Store]) -> None:
    with opened() as store:
        batch = judged([0, 1, 1])
        store.commit("0of1", batch)
        seen = Seen()
        seen.load(store.segments(SEEN))
        assert len(seen) == 3
        store.commit("0of1", Batch(), {SEEN: seen.snapshot()})
        assert [is_snapshot for is_snapshot, _ in store.segments(SEEN)] == [True]
        again = Seen()
        again.load(store.segments(SEEN))
        # PostgreSQL keeps no digests, so only the devices and their slots are compared.
        words = [np.frombuffer(each.snapshot(), "<u8").reshape(4, -1)[:3] for each in (seen, again)]
        assert np.array_equal(*words)


def test_compacting_forgets_what_it_replaces_and_no_other_workers(opened: Callable[[], Store]) -> None:
    def data(store: Store) -> list[list[bytes]]:
        return [[data for _, data in store.segments(state)] for state in STATES]

    with opened() as store:
        for worker in ("0of2", "1of2"):
            for number in (b"1", b"2"):
                part = bytearray(worker.encode() + number)
                store.commit(worker, Batch(seen=part, chains=part, sequences=part))
        before = [b"0of21", b"0of22", b"1of21", b"1of22"]
        assert [sorted(rows) for rows in data(store)] == [before] * 3
        part = bytearray(b"in the snapshots")
        whole = Batch(seen=part, chains=part, sequences=part)
        store.commit("0of2", whole, {state: state.encode() for state in STATES})
        assert data(store) == [[*before[2:], state.encode()] for state in STATES]
        assert [is_snapshot for is_snapshot, _ in store.segments(SEEN)] == [False, False, True]
        for state in STATES:
            store.compact(state, b"all")
    with opened() as store:
        assert data(store) == [[b"all"]] * 3


def test_epochs_come_back_whole(opened: Callable[[], Store]) -> None:
    chosen = Threshold(
        theta=500,
        low=400,
        high=600,
        bias=1.5,
        bias_se=float("nan"),
        expected_mse=2.0,
        density=np.array([0.25, 0.75]),
        edges=(0, 10, 1001),
        method="robust",
        warnings=["few reports"],
    )
    first, second = two_epochs()
    second = Epoch(second.campaign, second.issued_at, threshold_to_json(chosen))
    with opened() as store:
        for epoch in (first, second):
            store.add_epoch(epoch)
        assert store.epoch_count() == 2
        old, new = store.epochs()
    assert (old.campaign.body, old.threshold) == (first.campaign.body, None)
    assert (new.campaign.body, new.issued_at) == (second.campaign.body, second.issued_at)
    assert new.threshold is not None
    assert new.threshold.quantile(0.5) == chosen.quantile(0.5)
    assert new.threshold.warnings == ["few reports"]
    assert np.isnan(new.threshold.bias_se)


def test_a_failed_transaction_leaves_nothing(opened: Callable[[], Store]) -> None:
    with opened() as store:
        with contextlib.suppress(KeyError), store.transaction():
            store.set_meta({"campaign": "meters"})
            raise KeyError
        assert store.meta() == {}


def test_one_holds_it_alone_or_many_together(opened: Callable[[], Store]) -> None:
    store, other = opened(), opened()
    with store.shared(0), other.shared(0), pytest.raises(Invalid, match="another server"), opened().exclusive(0):
        pass
    with store.exclusive(0):
        for hold in (other.shared, other.exclusive):
            with pytest.raises(Invalid, match="another server"), hold(0):
                pass
    with other.exclusive(0):
        pass


def test_it_has_one_server_whatever_its_workers_hold(opened: Callable[[], Store]) -> None:
    """While a server runs, no other may begin, whether or not its workers have started."""
    first, worker, second = opened(), opened(), opened()
    with first.serving(0):
        with first.exclusive(0):
            pass
        with pytest.raises(Invalid, match="another server"), second.serving(0):
            pass
        with worker.shared(0), pytest.raises(Invalid, match="another server"), second.serving(0):
            pass
    with second.serving(0):
        pass


def test_the_same_epoch_twice_is_an_error(opened: Callable[[], Store]) -> None:
    with opened() as store:
        store.add_epoch(two_epochs()[0])
        with pytest.raises(StoreError):
            store.add_epoch(two_epochs()[0])


def test_the_inventory_changes_as_a_whole(opened: Callable[[], Store]) -> None:
    devices = [Device("d1", "north", "active", 5), Device("d2", "all", "revoked", 6)]
    with opened() as store:
        store.set_devices(devices)
        assert list(store.devices().values()) == devices
        assert store.revoked_count() == 1
        store.set_devices([devices[0]._replace(state="revoked")], without=["d2"])
        assert store.devices() == {"d1": Device("d1", "north", "revoked", 5)}
        assert store.revoked_count() == 1
        store.set_devices([tombstone(devices[1], 7)])
        assert store.revoked_count() == 2


def test_a_device_that_moved_is_not_refused(opened: Callable[[], Store]) -> None:
    """Workers compare these two numbers with each batch, and read the whole inventory if they differ."""
    devices = [Device(state, "all", state, 5) for state in (ACTIVE, REVOKED, MOVED)]
    with opened() as store:
        store.set_devices([*devices, tombstone(Device("gone", "all", REVOKED, 5), 6)])
        assert store.revoked_count() == len(refused_keys(store.devices().values())) == 2


def test_an_unknown_scheme_is_refused() -> None:
    with refused("scheme", "'oracle'"):
        open_store("oracle:somewhere")


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no store"):
        open_store(tmp_path / "none", read_only=True)
    text = tmp_path / "text"
    text.write_text("hello, I am a text file\n" * 100, encoding="utf-8")
    foreign = tmp_path / "foreign"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    for path in (text, foreign):
        path.chmod(0o644)
        before = path.read_bytes()
        for read_only in (True, False):
            with pytest.raises(Invalid):
                open_store(path, read_only=read_only)
            assert path.read_bytes() == before
            assert path.stat().st_mode & 0o777 == 0o644
    assert set(tmp_path.iterdir()) == {text, foreign}


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    for read_only in (True, False):
        with pytest.raises(Invalid, match="upgrade Undertone"):
            open_store(path, read_only=read_only)


def test_reading_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path).close()
    with open_store(path, read_only=True) as store, pytest.raises(StoreError):
        store.set_meta({"a": "b"})


def test_nobody_else_reads_a_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "s.sqlite"
        left = tmp_path / "left.sqlite"
        left.touch(0o644)
        for each in (path, left):
            with open_store(each) as store:
                store.set_meta({"campaign": "meters"})
                with store.shared(0):
                    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert set(modes.values()) == {0o600}
        assert len(modes) >= 6, "store, log, index and lock of each"
    finally:
        os.umask(before)


def test_another_process_that_comes_and_goes_does_not_cut_us_off(tmp_path: Path) -> None:
    """This process has two connections, another one has one. When the other leaves, it must not delete the log file."""
    path = tmp_path / "s.sqlite"
    program = (
        "import sys; from pathlib import Path; from undertone_aggregator.store.store import open_store\n"
        "with open_store(Path(sys.argv[1])) as store: store.set_meta({'from': 'there'})"
    )
    with open_store(path) as first:
        first.set_meta({"campaign": "meters"})
        second = open_store(path)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=240)
        assert first.meta()["from"] == "there"
        second.set_meta({"back": "here"})
        second.close()
        assert first.meta()["back"] == "here"
    with open_store(path, read_only=True) as store:
        assert store.meta() == {"campaign": "meters", "from": "there", "back": "here"}

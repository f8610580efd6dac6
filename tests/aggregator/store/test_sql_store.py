"""What the databases add to the contract: files from before, several campaigns in one, a server that goes away."""

import contextlib
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Select
from sqlalchemy.dialects import postgresql, sqlite

from support.postgres import Postgres
from support.refusal import refused
from support.server import two_epochs
from undertone_aggregator.counts.device_states import CHAINS, SEEN, SEQUENCES, DeviceStates
from undertone_aggregator.counts.partial import Key, Partial, pack_counts
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.store.postgres_store import PostgresStore
from undertone_aggregator.store.sql_store import SqlStore
from undertone_aggregator.store.sqlite_store import SqliteStore, copy_before, revision_in
from undertone_aggregator.store.store import SETTLED, Batch, DiskFull, Store, StoreError, open_store
from undertone_aggregator.store.tables import HEAD
from undertone_shared.errors import Invalid

# The schema of stores from before revisions, version 2, as it was written then.
BEFORE = """
    CREATE TABLE migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE epochs (
        epoch INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, body BLOB NOT NULL, issued_at INTEGER NOT NULL,
        threshold TEXT, decoded TEXT
    );
    CREATE TABLE partials (
        slot INTEGER NOT NULL, fingerprint BLOB NOT NULL, kind INTEGER NOT NULL, grp TEXT NOT NULL,
        worker TEXT NOT NULL, counts BLOB NOT NULL
    );
    CREATE UNIQUE INDEX partial_key ON partials (slot, fingerprint, kind, grp, worker);
    CREATE TABLE counters (
        worker TEXT NOT NULL, outcome TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (worker, outcome)
    ) WITHOUT ROWID;
    CREATE TABLE seen (
        id INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT NOT NULL, is_snapshot INTEGER NOT NULL, data BLOB NOT NULL
    );
    CREATE TABLE audit (
        device TEXT NOT NULL, digest BLOB NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (device, digest)
    ) WITHOUT ROWID;
    CREATE TABLE chains (id INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT NOT NULL, data BLOB NOT NULL);
    PRAGMA application_id = 1431588401;
    INSERT INTO migrations VALUES (1, 0), (2, 0);
    INSERT INTO meta VALUES ('campaign', 'load'), ('epsilon', '1');
    INSERT INTO counters VALUES ('0of1', 'counted', 3), ('0of1', 'late', 1);
    INSERT INTO seen VALUES (5, '0of1', 1, x'01'), (9, '0of1', 0, x'02');
    INSERT INTO audit VALUES ('d', x'0a', 'counted');
    INSERT INTO chains VALUES (3, '0of1', x'0b');
"""


# A threshold epoch, a report epoch and a stream's of wire 1, as stores hold them.
WIRE_1 = (
    b'{"version":1,"campaign":"load","sensor":"energy","unit":"Wh","measure":"sum","offset":0,"bound":1000,'
    b'"slot_seconds":1800,"cycle":48,"epoch":1793491200,"last_slot":999999,"default":0,"cohort":{"seed":'
    b'"000102030405060708090a0b0c0d0e0f","share":16777216,"mechanism":{"kind":"square-wave","a":2,"b":1,"window":3,'
    b'"edges":[0,100,200,500,1000]}},"report":null}',
    b'{"version":1,"campaign":"load","sensor":"energy","unit":"Wh","measure":"sum","offset":0,"bound":1000,'
    b'"slot_seconds":1800,"cycle":48,"epoch":1793577600,"last_slot":999999,"default":0,"cohort":{"seed":'
    b'"000102030405060708090a0b0c0d0e0f","share":838861,"mechanism":{"kind":"square-wave","a":2,"b":1,"window":3,'
    b'"edges":[0,100,200,500,1000]}},"report":{"low":0,"theta":300,"mechanism":{"kind":"hybrid","coin":20000,'
    b'"rounding":[2,1],"piecewise":[2,1,3,2,16]}}}',
    b'{"version":1,"campaign":"load","sensor":"energy","unit":"Wh","measure":"sum","offset":0,"bound":1000,'
    b'"slot_seconds":1800,"cycle":48,"epoch":1793664000,"last_slot":999999,"default":0,"cohort":null,"report":null,'
    b'"stream":{"kind":"gaussian","low":0,"theta":300,"levels":1000,"slew":50,"shift":8,"reuse":217,'
    b'"noise":[65000000,1000000000000],"dimension":1,"lag":1,"reports":48,"chains":2,"restart":0,"renewal":48}}',
)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    path = tmp_path / "before.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.executescript(BEFORE)
        counts = pack_counts(np.array([1, 2, 0]))
        database.execute("INSERT INTO partials VALUES (7, x'0102', 1, 'all', '0of1', ?)", (counts,))
    return path


def test_a_file_from_before_revisions_moves_over_whole(before: Path) -> None:
    with refused(before, HEAD, "undertone upgrade"):
        open_store(before, read_only=True)
    assert revision_in(before) is None
    open_store(before).close()
    assert (revision_in(before), revision_in(copy_before(before))) == (HEAD, None), "the copy is of the old format"
    for _ in range(2):
        with open_store(before) as store:
            assert store.meta() == {"campaign": "load", "epsilon": "1"}
            assert store.outcomes() == {"counted": 3, "late": 1, "received": 4}
            assert list(store.segments(SEEN)) == [(True, b"\x01"), (False, b"\x02")]
            assert list(store.segments(CHAINS)) == [(False, b"\x0b")]
            assert list(store.audit()) == [("d", b"\x0a", "counted")]
            ((key, counts),) = store.partial().items()
            assert (key.campaign, key.slot, key.fingerprint, counts.tolist()) == ("load", 7, b"\x01\x02", [1, 2, 0])
    with open_store(before, campaign="load") as store:
        store.commit("0of1", Batch(seen=bytearray(b"\x03")))
        assert [data for _, data in store.segments(SEEN)] == [b"\x01", b"\x02", b"\x03"]


def test_epochs_of_wire_1_are_still_there(before: Path) -> None:
    with contextlib.closing(sqlite3.connect(before)) as database, database:
        for number, body in enumerate(WIRE_1):
            old = hashlib.sha256(body).digest()[:4]
            epoch = 1793491200 + 86400 * number
            database.execute("INSERT INTO epochs VALUES (?, ?, ?, 5, NULL, NULL)", (epoch, old, body))
            counts = pack_counts(np.array([number, 2, 0]))
            database.execute("INSERT INTO partials VALUES (?, ?, 1, 'all', '0of1', ?)", (100 + number, old, counts))
    for _ in range(2):
        with open_store(before) as store:
            epochs = [epoch.campaign for epoch in store.epochs()]
            assert [len(campaign.fingerprint) for campaign in epochs] == [8, 8, 8]
            assert [campaign.schedule.cohort_stride for campaign in epochs] == [1, 23, 0]
            assert (epochs[0].report, epochs[1].report.theta, epochs[2].rule.law) == (None, 300, "gaussian")
            assert epochs[1].cohort.mechanism.edges == (0, 100, 200, 500, 1000)
            by_slot = {key.slot: (key.fingerprint, counts.tolist()) for key, counts in store.partial(100).items()}
            assert by_slot == {100 + i: (campaign.fingerprint, [i, 2, 0]) for i, campaign in enumerate(epochs)}


def test_facts_of_the_first_format_get_the_names_of_today(before: Path) -> None:
    with contextlib.closing(sqlite3.connect(before)) as database, database:
        facts = json.dumps({"name": "load", "kind": "report"})
        database.execute("INSERT INTO meta VALUES ('facts', ?)", (facts,))
    with open_store(before) as store:
        meta = store.meta()
    assert json.loads(meta["facts"]) == {"name": "load", "collect": "reports"}
    assert json.loads(meta["plan"]) == {"epsilon": "1"}


# The tables of the states of devices before revision 0011, one of each state.
SPLIT = """
    CREATE TABLE seen (
        id INTEGER PRIMARY KEY AUTOINCREMENT, campaign INTEGER NOT NULL, worker TEXT NOT NULL,
        is_snapshot BOOLEAN NOT NULL, data BLOB NOT NULL
    );
    CREATE INDEX ix_seen_campaign ON seen (campaign);
    CREATE TABLE chains (
        id INTEGER PRIMARY KEY AUTOINCREMENT, campaign INTEGER NOT NULL, worker TEXT NOT NULL, data BLOB NOT NULL
    );
    CREATE TABLE sequences (
        id INTEGER PRIMARY KEY AUTOINCREMENT, campaign INTEGER NOT NULL, worker TEXT NOT NULL, data BLOB NOT NULL
    );
"""


def split_segments(database: sqlite3.Connection) -> None:
    """Give a new store the empty tables that it had before revision 0011, in place of the one of today."""
    database.execute("DROP TABLE segments")
    for statement in filter(str.strip, SPLIT.split(";")):
        database.execute(statement)


@pytest.mark.parametrize("revision", [f"{number:04}" for number in range(1, 11)])
def test_every_revision_of_the_second_version_is_brought_up(tmp_path: Path, revision: str) -> None:
    """Each lacked tables and columns that later ones added; what is there stays."""
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        store.set_meta({"campaign": "load"})
    added = {"0003": ("sequences", "losses"), "0004": ("devices",), "0006": ("leases", "members", "groups")}
    added |= {"0007": ("conflicts",), "0009": ("late",), "0012": ("refusals",), "0013": ("sums",)}
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        split_segments(database)
        database.execute("INSERT INTO seen VALUES (4, 1, '0of1', 1, x'01'), (7, 1, '0of1', 0, x'02')")
        database.execute("INSERT INTO chains VALUES (2, 1, '0of1', x'03')")
        for since, names in added.items():
            for name in names if revision < since else ():
                database.execute(f"DROP TABLE {name}")
        if revision < "0002":
            for column in ("epsilon", "delta"):
                database.execute(f"ALTER TABLE epochs DROP COLUMN {column}")
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    with open_store(path, campaign="load") as store:
        assert store.meta() == {"campaign": "load"}
        store.add_epoch(replace(two_epochs()[0], budget=Budget.parse("1")))
        assert [epoch.budget for epoch in store.epochs()] == [Budget.parse("1")]
        store.commit("0of1", Batch(outcomes=Counter(counted=1), sequences=bytearray(24)))
        assert (store.late_reports(), store.losses(), store.groups(), store.devices()) == (0, {}, {}, {})
        assert list(store.segments(SEEN)) == [(True, b"\x01"), (False, b"\x02")]
        assert list(store.segments(CHAINS)) == [(False, b"\x03")]
        assert list(store.segments(SEQUENCES)) == [(False, bytes(24))]
    assert columns_of(path) == columns_of_new(tmp_path)


def test_a_store_of_revision_0011_gets_the_table_of_refusals(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        store.commit("0of1", Batch(outcomes=Counter(late=2)))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE refusals")
        database.execute("UPDATE alembic_version SET version_num = '0011'")
    with open_store(path, campaign="load") as store:
        assert (store.refusals(), store.outcomes()["late"]) == ({}, 2)
        store.commit("0of1", Batch(refused=Counter({("late", 7): 1})))
        assert store.refusals() == {("late", 7): 1}
    assert columns_of(path) == columns_of_new(tmp_path)


def test_a_store_of_revision_0012_gets_its_sums_from_its_server(tmp_path: Path) -> None:
    """And so does a store that has lost them, or the names of their groups."""
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        partial = Partial()
        for group in ("north", "south"):
            partial.add(Key("load", b"of epoch", 1, group, 5), 0, 2)
        store.commit("0of1", Batch(partial))
        store.set_meta({"campaign": "load", SETTLED: "5"})
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE sums")
        database.execute("UPDATE alembic_version SET version_num = '0012'")
    for lose in ("DELETE FROM sums", "DELETE FROM meta WHERE name = 'summed_groups'"):
        with open_store(path, campaign="load") as store:
            before = store.sums(0, 9).tables
            store.sum_up(9)
            (sums,) = store.sums(0, 9).tables.values()
            assert [column.tolist() for column in sums] == [[5], [[2, 0]], [[1, 1]]]
            assert [column.tolist() for column in sums] == [
                column.tolist() for (of,) in [before.values()] for column in of
            ]
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            assert database.execute("SELECT slot FROM sums").fetchall() == [(5,)]
            database.execute(lose)
    assert columns_of(path) == columns_of_new(tmp_path)


def columns_of(path: Path) -> dict[str, set[str]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {row[1] for row in database.execute(f"PRAGMA table_info({name})")} for name in names}


def columns_of_new(folder: Path) -> dict[str, set[str]]:
    path = folder / "new.sqlite"
    open_store(path).close()
    return columns_of(path)


def test_a_store_of_revision_0005_opens_and_goes_on(tmp_path: Path) -> None:
    """A dump of what the last version before workers on several machines left: 11 reports, of six devices."""
    path = tmp_path / "s.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(Path(__file__).with_name("store_0005.sql").read_text(encoding="utf-8"))
    for _ in range(2):
        with open_store(path, campaign="meters") as store:
            assert store.outcomes() == {"counted": 11, "duplicate": 1, "received": 12}
            assert store.partial().reports == 11
            assert [epoch.campaign.rule.theta for epoch in store.epochs()] == [None, 500]
            assert store.devices()["d9"].state == "revoked"
            assert len(list(store.audit())) == 11
            states = DeviceStates()
            states.load(store.segments)
            assert (len(states.seen), len(states.sequences), len(states.chains)) == (6, 6, 0)
            assert (store.groups(), store.conflicts()) == ({}, {})
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (0,)


def test_a_move_that_fails_leaves_the_file_as_it_was(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(sqlite3.connect(before)) as database, database:
        database.execute("DROP TABLE audit")
        database.execute("CREATE TABLE audit (device TEXT, digest BLOB, outcome TEXT)")
        database.execute("INSERT INTO audit VALUES ('d', x'0a', NULL)")
    with refused(before, "store"):
        open_store(before)
    with contextlib.closing(sqlite3.connect(before)) as database:
        assert database.execute("SELECT max(version) FROM migrations").fetchone() == (2,)
        assert database.execute("SELECT n FROM counters WHERE outcome = 'counted'").fetchone() == (3,)


def test_a_file_holds_one_campaign(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path).close()
    with open_store(path, campaign="load") as store:
        store.set_meta({"campaign": "load"})
    with refused(path, "load", "water"):
        open_store(path, campaign="water")
    with open_store(path, read_only=True) as store:
        assert store.meta() == {"campaign": "load"}


@pytest.mark.services
def test_campaigns_in_one_database_do_not_meet(postgres: Postgres) -> None:
    url = postgres.new_database()
    for number, name in enumerate(("load", "water"), 1):
        with open_store(url, campaign=name) as store:
            store.set_meta({"campaign": name})
            store.commit("0of1", Batch(outcomes=Counter(counted=number), seen=bytearray(name.encode())))
    for number, name in enumerate(("load", "water"), 1):
        with open_store(url, campaign=name, read_only=True) as store:
            assert store.meta() == {"campaign": name}
            assert store.outcomes() == {"counted": number, "received": number}
            assert [data for _, data in store.segments(SEEN)] == [name.encode()]
            with pytest.raises(StoreError):
                store.set_meta({"campaign": "other"})
    with refused("load", "water"):
        open_store(url)
    with pytest.raises(Invalid, match="holds no campaign gas"):
        open_store(url, campaign="gas", read_only=True)
    with open_store(url, campaign="load") as load, open_store(url, campaign="water") as water:
        water.compact(SEEN, "0of1", b"", everyone=True)
        assert [data for _, data in load.segments(SEEN)] == [b"load"]
        with load.exclusive(0), water.exclusive(0):
            pass


def test_an_address_that_is_none_is_refused() -> None:
    with refused("postgresql://user@host/database"):
        open_store("postgresql://a:b:c:d")


def test_a_server_that_is_not_there_is_a_store_error(free_port: Callable[[], int]) -> None:
    with pytest.raises(StoreError, match="refused"):
        open_store(f"postgresql://u@127.0.0.1:{free_port()}/none")


@pytest.mark.services
def test_a_server_that_is_killed_loses_nothing_that_was_committed(free_port: Callable[[], int]) -> None:
    server = Postgres(free_port(), durable=False)
    try:
        store: Store = open_store(server.new_database())
        store.commit("0of1", Batch(outcomes=Counter(counted=2)))
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreError):
                store.commit("0of1", Batch(outcomes=Counter(counted=1)))
        server.start()
        assert store.outcomes()["counted"] == 2
        store.commit("0of1", Batch(outcomes=Counter(counted=1)))
        assert store.outcomes()["counted"] == 3
        store.close()
    finally:
        server.close()


def test_want_of_room_is_told_from_other_failures(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.sqlite", campaign="load") as store:
        assert isinstance(store, SqliteStore)
        store._connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(DiskFull, match="database or disk is full"):
            store.set_meta({"long": "x" * 100_000})
        store._connection.exec_driver_sql("PRAGMA max_page_count = 100000")
        store.set_meta({"long": "x" * 100_000})
        store._connection.exec_driver_sql("DROP TABLE meta")
        with pytest.raises(StoreError, match="no such table") as caught:
            store.set_meta({"long": "y"})
        assert not isinstance(caught.value, DiskFull)
    for state, expected in (("53100", True), ("53200", False), (None, False)):
        error = RuntimeError("could not extend file")
        error.sqlstate = state  # type: ignore[attr-defined]
        assert PostgresStore._is_full(None, error) == expected  # type: ignore[arg-type]


def test_sequence_numbers_from_before_have_no_open_gaps(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="power") as store:
        store.set_meta({"campaign": "power"})
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        split_segments(database)
        database.execute("UPDATE alembic_version SET version_num = '0007'")
        database.execute("INSERT INTO sequences VALUES (1, 1, '0of1', ?)", (b"\x01" * 16 + b"\x02" * 16,))
    with open_store(path, campaign="power") as store:
        assert list(store.segments(SEQUENCES)) == [(False, b"\x01" * 16 + bytes(8) + b"\x02" * 16 + bytes(8))]


def locked(store: SqlStore, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(condition, lock) of each lock that an action asks PostgreSQL for; SQLite, which runs it here, ignores them."""
    statements: list[str] = []
    executed, ran = store.execute, store.run

    def note(statement: Any) -> None:
        if isinstance(statement, Select):
            statements.append(" ".join(str(statement.compile(dialect=postgresql.dialect())).split()))

    def execute(statement: Any, rows: Any = None) -> Any:
        note(statement)
        return executed(statement, rows)

    def run(name: str, build: Callable[[], Any], rows: Any) -> Any:
        note(build())
        return ran(name, build, rows)

    with monkeypatch.context() as patched:
        patched.setattr(store, "execute", execute)
        patched.setattr(store, "run", run)
        action()
    parts = [text.partition(" WHERE ")[2].partition(" FOR ") for text in statements if " FOR " in text]
    return [(condition.partition("%")[0].strip(), lock) for condition, _, lock in parts]


def test_who_settles_a_slot_and_who_counts_in_it_lock_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first slot settles there is no row that names it: then the campaign's own is locked."""
    own, named = "campaigns.id =", "meta.campaign ="
    with open_store(tmp_path / "s.sqlite", campaign="load") as store:
        assert isinstance(store, SqlStore)

        def commit() -> None:
            store.commit("0of1", Batch())

        assert locked(store, commit, monkeypatch) == [(named, "SHARE"), (own, "SHARE"), (named, "SHARE")]
        assert locked(store, lambda: store.set_meta({"campaign": "load"}), monkeypatch) == []
        assert locked(store, lambda: store.set_meta({SETTLED: "5"}), monkeypatch) == [(own, "NO KEY UPDATE")]
        assert locked(store, commit, monkeypatch) == [(named, "SHARE")]


def test_a_connection_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.sqlite", campaign="load") as store:
        assert isinstance(store, SqlStore)
        store.set_meta({"campaign": "load"})
        first = store._connection
        assert store._connection is first
        first.invalidate()
        assert store.meta() == {"campaign": "load"}
        second = store._connection
        assert second is not first
        assert first.closed
    assert second.closed


def test_a_database_is_locked_while_it_is_brought_up_to_date_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[SqliteStore] = []
    monkeypatch.setattr(SqliteStore, "_lock_migration", lambda store: locked.append(store))
    for times in (1, 1):
        open_store(tmp_path / "s.sqlite").close()
        assert len(locked) == times


def test_rows_are_written_in_the_databases_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "s.sqlite", campaign="load") as store:
        assert isinstance(store, SqlStore)
        written: list[type] = []
        run = store.run
        monkeypatch.setattr(
            store, "run", lambda name, build, rows: written.append(type(build())) or run(name, build, rows)
        )
        store.set_groups({"d": "north"})
        assert sqlite.Insert in written
        assert postgresql.Insert not in written
        assert store.groups() == {"d": "north"}


def test_of_two_campaigns_one_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path, campaign="load").close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO campaigns (name) VALUES ('water')")
    with refused(path, "load", "water"):
        open_store(path)
    for name in ("load", "water"):
        open_store(path, campaign=name).close()


def test_a_failing_statement_of_every_batch_is_a_store_error_and_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.sqlite", campaign="load") as store:
        assert isinstance(store, SqlStore)
        store.commit("0of1", Batch(outcomes=Counter(counted=1)))
        store._connection.exec_driver_sql("ALTER TABLE counters RENAME TO elsewhere")
        with pytest.raises(StoreError, match="no such table: counters"):
            store.commit("0of1", Batch(outcomes=Counter(counted=1), seen=bytearray(16)))
        store._connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO counters")
        assert list(store.segments(SEEN)) == []
        store.commit("0of1", Batch(outcomes=Counter(counted=1)))
        assert store.outcomes()["counted"] == 2

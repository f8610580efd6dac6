"""What stores in databases do in addition to the contract of all stores.

They read files of earlier versions, hold several campaigns, and survive lost connections.
"""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Select, text
from sqlalchemy.dialects import postgresql, sqlite

from support.postgres import Postgres
from support.refusal import refused
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.store import migrations, tables
from undertone_aggregator.store.postgres_store import PostgresStore
from undertone_aggregator.store.sql_store import SqlStore
from undertone_aggregator.store.sqlite_store import SqliteStore, copy_before, revision_in
from undertone_aggregator.store.store import (
    SETTLED,
    Batch,
    DiskFull,
    NoStore,
    Store,
    StoreError,
    campaigns_in,
    open_store,
)
from undertone_aggregator.store.tables import HEAD
from undertone_shared.errors import Invalid


def revise(monkeypatch: pytest.MonkeyPatch, step: Callable[[Connection], None]) -> str:
    """Make a later version of Undertone whose only migration is this step; return its revision."""
    later = f"{int(HEAD) + 1:04}"
    monkeypatch.setattr(tables, "HEAD", later)
    monkeypatch.setattr(migrations, "STEPS", {HEAD: (later, step)})
    return later


def test_a_store_of_the_version_before_is_brought_up_and_keeps_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        store.commit("0of1", Batch(outcomes=Counter(counted=3)))
    steps: list[int] = []
    later = revise(monkeypatch, lambda connection: steps.append(1))
    with refused(path, later, "undertone upgrade"):
        open_store(path, read_only=True)
    for _ in range(2):
        with open_store(path, campaign="load") as store:
            assert store.outcomes()["counted"] == 3
    assert steps == [1]
    assert (revision_in(path), revision_in(copy_before(path))) == (later, HEAD), "the copy is of the old format"


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        store.commit("0of1", Batch(outcomes=Counter(counted=3)))

    def fail(connection: Connection) -> None:
        connection.execute(tables.counters.delete())
        connection.execute(text("no statement"))

    revise(monkeypatch, fail)
    with refused(path, "store"):
        open_store(path)
    assert revision_in(path) == HEAD
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT n FROM counters WHERE outcome = 'counted'").fetchone() == (3,)


@pytest.mark.parametrize("revision", [None, "0001", "0012"])
def test_a_store_from_before_the_first_release_is_refused_and_stays_as_it_is(
    tmp_path: Path, revision: str | None
) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path, campaign="load").close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        if revision is None:
            database.execute("DROP TABLE alembic_version")
        else:
            database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    for read_only in (True, False):
        with refused(path, "before 0.3.0"):
            open_store(path, read_only=read_only)
    assert revision_in(path) == revision
    assert not copy_before(path).exists()
    with refused("missing.sqlite", "cannot be used"):
        revision_in(tmp_path / "missing.sqlite")


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    """SQLite removes its log file when the last connection is closed, so the test looks for this file."""
    path = tmp_path / "s.sqlite"
    open_store(path, campaign="load").close()
    # The error is kept, so that everything it refers to stays in memory.
    with pytest.raises(Invalid) as refusal:
        open_store(path, campaign="water")
    assert not Path(f"{path}-wal").exists(), refusal


def test_a_file_without_a_campaign_gets_one_only_from_its_server(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_store(path, campaign="load").close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM campaigns")
    for kind in ({"create": False}, {"read_only": True}):
        with pytest.raises(NoStore, match="holds no campaign load"):
            open_store(path, campaign="load", **kind)
    assert campaigns_in(path) == []
    open_store(path, campaign="load").close()
    assert campaigns_in(path) == ["load"]


def test_a_database_without_tables_holds_no_store_yet(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA application_id = {tables.APPLICATION}")
    with pytest.raises(NoStore, match="holds no store yet"):
        open_store(path, read_only=True)
    open_store(path, campaign="load").close()


@pytest.mark.parametrize("name", ["load", None])
def test_a_campaign_that_another_process_creates_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """Two processes open the same new store at the same moment."""
    path = tmp_path / "s.sqlite"
    rows = SqliteStore.rows

    def overtaken(store: SqliteStore, *query: Any) -> Iterator[Any]:
        found = list(rows(store, *query))
        monkeypatch.setattr(SqliteStore, "rows", rows)
        open_store(path, campaign=name).close()
        return iter(found)

    monkeypatch.setattr(SqliteStore, "rows", overtaken)
    open_store(path, campaign=name).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM campaigns").fetchall() == [(name or "",)]


def test_what_another_process_upgrades_meanwhile_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may upgrade the database before this one locks it, even to a version unknown to this one."""
    path = tmp_path / "s.sqlite"
    open_store(path, campaign="load").close()
    steps: list[int] = []
    revise(monkeypatch, lambda connection: steps.append(1))

    def upgraded(store: SqliteStore) -> None:
        store.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    monkeypatch.setattr(SqliteStore, "_lock_setup", upgraded)
    with refused(path, "upgrade Undertone"):
        open_store(path, campaign="load")
    assert steps == []


def test_a_store_that_has_lost_its_sums_gets_them_from_its_server(tmp_path: Path) -> None:
    """This also holds for a store that has lost the names of the sums' groups."""
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        partial = Partial()
        for group in ("north", "south"):
            partial.add(Key("load", b"of epoch", 1, group, 5), 0, 2)
        store.commit("0of1", Batch(partial))
        store.set_meta({"campaign": "load", SETTLED: "5"})
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


def test_so_many_slots_are_summed_up_at_a_time(tmp_path: Path) -> None:
    """The sums go from the oldest slot that has reports to the newest one that has settled."""
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="load") as store:
        partial = Partial()
        for slot in (1, 9, 10, 25, 33, 34, 50, 51):
            partial.add(Key("load", b"of epoch", 1, "all", slot), 0, 2)
        store.commit("0of1", Batch(partial))
        store.set_meta({"campaign": "load", SETTLED: "50"})
        newest = []
        for more in (True, True, True, True, False, False):
            assert store.sum_up(9) == more
            with contextlib.closing(sqlite3.connect(path)) as database:
                newest += database.execute("SELECT max(slot) FROM sums").fetchone()
        assert newest == [9, 10, 33, 34, 50, 50]


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
        water.compact(SEEN, b"")
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


def locked(store: SqlStore, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return (condition, lock) of each row lock in the statements of an action.

    They are compiled for PostgreSQL; the action itself runs on SQLite, which has no such locks.
    """
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
    """Before the first slot settles, no row names a settled slot, so both lock the campaign's own row."""
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


def test_a_database_is_locked_while_its_tables_and_its_campaign_are_made_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[SqliteStore] = []
    monkeypatch.setattr(SqliteStore, "_lock_setup", lambda store: locked.append(store))
    for times in (2, 2):
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

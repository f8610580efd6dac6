"""Each lease has one owner at a time, by the database's clock. An owner that has lost its lease can commit nothing."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, update

from support.postgres import Postgres
from support.waiting import wait_for
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.store import tables
from undertone_aggregator.store.leases import COORDINATOR, Fenced, fair_shares
from undertone_aggregator.store.postgres_store import PostgresStore
from undertone_aggregator.store.sql_leases import SqlLeases
from undertone_aggregator.store.sqlite_store import SqliteStore
from undertone_aggregator.store.store import Batch, Store, open_store

ROLES = [COORDINATOR, "0of2", "1of2"]
Opened = Callable[[], SqliteStore | PostgresStore]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens one database, as often as it is called.

    Servers use leases on PostgreSQL only; SQLite runs the same statements.
    """
    where = str(tmp_path / "s.sqlite")
    if request.param == "postgres":
        where = request.getfixturevalue("postgres").new_database()
    make = PostgresStore if request.param == "postgres" else SqliteStore
    return lambda: make(where.removeprefix("postgresql:"))


def test_a_role_has_one_owner_at_a_time(opened: Opened) -> None:
    with opened() as store:
        leases = SqlLeases(store)
        leases.reset(ROLES)
        assert sorted(leases.free()) == sorted(ROLES)
        lease = leases.take("0of2", "a", 60)
        assert lease is not None
        assert leases.take("0of2", "b", 60) is None
        assert leases.owners() == {COORDINATOR: "", "0of2": "a", "1of2": ""}
        leases.renew(lease)
        leases.release(lease)
        after = leases.take("0of2", "b", 60)
        assert after is not None
        assert after.token > lease.token
        for act in (leases.renew, leases.begin):
            with pytest.raises(Fenced, match="0of2 belongs to another worker"):
                act(lease)
        # A release of a lease that another worker owns has no effect.
        leases.release(lease)
        assert leases.owners()["0of2"] == "b"


def pass_seconds(store: SqliteStore | PostgresStore, table: Table, seconds: float) -> None:
    """Let seconds pass for this table's leases. A real wait would let a slow machine lose its lease too early."""
    store.execute(update(table).values(until=table.c.until - seconds))


def test_a_lease_that_is_not_renewed_ends_by_the_databases_clock(opened: Opened) -> None:
    with opened() as store:
        leases = SqlLeases(store)
        leases.reset(ROLES)
        lease = leases.take("0of2", "a", 60)
        assert lease is not None
        assert leases.owners()["0of2"] == "a"
        pass_seconds(store, tables.leases, 61)
        assert leases.owners()["0of2"] == ""
        # No other process has taken the lease, so its owner can still renew it.
        leases.renew(lease)
        assert leases.take("0of2", "b", 60) is None
        pass_seconds(store, tables.leases, 61)
        assert leases.take("0of2", "b", 60) is not None
        with pytest.raises(Fenced):
            leases.renew(lease)


def test_a_late_commit_is_refused_and_leaves_nothing(opened: Opened) -> None:
    with opened() as store, opened() as other:
        leases, theirs = SqlLeases(store), SqlLeases(other)
        leases.reset(ROLES)
        lease = leases.take("0of2", "a", 60)
        assert lease is not None
        store.fence(lambda: leases.renew(lease))
        store.commit("0of2", Batch(outcomes=Counter(counted=1), seen=bytearray(b"\1")))
        pass_seconds(other, tables.leases, 61)
        assert theirs.take("0of2", "b", 60) is not None
        for late in (
            lambda: store.commit("0of2", Batch(outcomes=Counter(counted=5), seen=bytearray(b"\2"))),
            lambda: store.set_meta({"status": "late"}),
            lambda: store.compact(SEEN, b"\3"),
            lambda: store.set_devices([]),
        ):
            with pytest.raises(Fenced):
                late()
        store.fence(None)
        assert other.outcomes() == {"counted": 1, "received": 1}
        assert list(other.segments(SEEN)) == [(False, b"\1")]
        assert other.meta() == {}


def test_a_new_server_dispossesses_everybody_and_remembers_which_sessions_began(opened: Opened) -> None:
    with opened() as store:
        leases = SqlLeases(store)
        leases.reset(ROLES)
        held = [leases.take(role, "a", 60) for role in ROLES]
        assert not leases.begun()
        for lease in held:
            assert lease is not None
            leases.begin(lease)
        assert leases.begun()
        leases.reset(ROLES)
        assert leases.begun()
        for lease in held:
            assert lease is not None
            with pytest.raises(Fenced):
                leases.renew(lease)
        leases.reset([COORDINATOR, "0of1"])
        assert sorted(leases.owners()) == ["0of1", COORDINATOR]
        assert not leases.begun()


def test_members_come_and_go(opened: Opened) -> None:
    with opened() as store:
        leases = SqlLeases(store)
        leases.join("a", 64, 60)
        leases.join("b", 3, 60)
        leases.join("a", 2, 600)
        assert leases.members() == {"a": 2, "b": 3}
        pass_seconds(store, tables.members, 61)
        assert leases.members() == {"a": 2}
        leases.leave("a")
        assert leases.members() == {}


@pytest.mark.parametrize(
    ("partitions", "members", "shares"),
    [
        (8, {"a": 64}, {"a": 8}),
        (8, {"a": 64, "b": 64, "c": 64}, {"a": 3, "b": 3, "c": 2}),
        (8, {"a": 1, "b": 64}, {"a": 1, "b": 7}),
        (8, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (2, {"a": 64, "b": 64, "c": 64}, {"a": 1, "b": 1, "c": 0}),
        (8, {}, {}),
    ],
)
def test_shares_are_fair(partitions: int, members: dict[str, int], shares: dict[str, int]) -> None:
    assert fair_shares(partitions, members) == shares


def shorten_idle_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in ("postgres_store", "sql_leases"):
        monkeypatch.setattr(f"undertone_aggregator.store.{module}.IDLE_SECONDS", seconds)


@contextmanager
def suspended_owner(url: str, act: Callable[[Store, Callable[[], None]], None]) -> Iterator[Store]:
    """Yield another worker's store while the owner of 0of2, whose lease has expired, is in a transaction.

    ``act(store, pause)`` is the transaction; ``pause`` returns when the block ends. The transaction must fail then.
    """
    with open_store(url) as store, open_store(url) as other:
        leases = store.leases
        assert leases is not None
        leases.reset(ROLES)
        lease = leases.take("0of2", "a", 0.1)
        assert lease is not None
        stopped, go_on = threading.Event(), threading.Event()
        ended: list[BaseException] = []

        def pause() -> None:
            stopped.set()
            go_on.wait(120)

        def commit() -> None:
            try:
                with store.transaction():
                    leases.renew(lease)
                    act(store, pause)
            except Exception as wrong:
                ended.append(wrong)

        thread = threading.Thread(target=commit)
        thread.start()
        assert stopped.wait(60)
        # The lease has expired, but the transaction that renews it has not ended.
        time.sleep(0.2)
        yield other
        go_on.set()
        thread.join(60)
        assert ended, "the late commit was kept"
        assert other.outcomes()["counted"] == 0
        assert other.campaigns() == []


@pytest.mark.services
def test_an_owner_that_is_stopped_in_a_transaction_holds_nobody_up(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends the session of the stopped owner, and with the session the lock on the lease's row."""
    shorten_idle_time(monkeypatch, 5)

    def act(store: Store, pause: Callable[[], None]) -> None:
        pause()
        store.commit("0of2", Batch(outcomes=Counter(counted=1)))

    with suspended_owner(postgres.new_database(), act) as other:
        theirs = other.leases
        assert theirs is not None
        assert theirs.take("0of2", "b", 60) is None, (
            "the lease was free, or `take` waited until the session of its owner ended"
        )
        wait_for(lambda: theirs.take("0of2", "b", 60) is not None, what="the end of the session that stopped")


@pytest.mark.services
@pytest.mark.parametrize("how", ["take", "reset"])
def test_an_owner_that_is_stopped_between_two_rows_holds_nobody_up(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The driver sends many rows as a pipeline, during which PostgreSQL's own idle timeout does not count."""
    shorten_idle_time(monkeypatch, 3)

    def act(store: Store, pause: Callable[[], None]) -> None:
        def rows() -> Iterator[list[str]]:
            yield ["first"]
            pause()
            yield ["second"]

        assert isinstance(store, PostgresStore)
        driver: Any = store._connection.connection.driver_connection
        driver.cursor().executemany("INSERT INTO campaigns (name) VALUES (%s)", rows())

    with suspended_owner(postgres.new_database(), act) as other:
        theirs = other.leases
        assert theirs is not None
        if how == "take":
            assert theirs.take("0of2", "b", 60) is None, "the lease was free"
            wait_for(lambda: theirs.take("0of2", "b", 60) is not None, what="the end of the session that stopped")
        else:
            theirs.reset(ROLES)
            assert theirs.take("0of2", "b", 60) is not None

"""Leases in the tables of a SQL store; servers use them on PostgreSQL."""

import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Float, and_, bindparam, column, delete, extract, func, literal_column, select, text, update

from undertone_aggregator.store import tables
from undertone_aggregator.store.database import Database
from undertone_aggregator.store.leases import COORDINATOR, Fenced, Lease

# When any worker leaves, the rows of workers whose membership ended this many seconds ago are deleted, too.
_FORGET_SECONDS = 86400.0
# PostgreSQL ends a transaction whose process sends nothing for this many seconds, and so is probably suspended.
IDLE_SECONDS = 10.0
_RETRY_SECONDS = 0.2


class SqlLeases:
    """`Leases` in the tables of a SQL store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._own_rows = database.own_rows(tables.leases)

    def reset(self, roles: Iterable[str]) -> None:
        table, wanted = tables.leases, list(roles)
        self._wait_for_open_transactions()
        with self._database.transaction():
            # This update waits until the current owners' open transactions end. Their later transactions are refused.
            self._run(update(table).where(self._own_rows).values(token=table.c.token + 1, until=0.0, owner=""))
            self._run(delete(table).where(and_(self._own_rows, table.c.role.not_in(wanted))))
            present = {row.role for row in self._run(select(table).where(self._own_rows))}
            rows = [
                {"role": role, "owner": "", "token": 1, "until": 0.0, "begun": False}
                for role in wanted
                if role not in present
            ]
            self._database.upsert(table, rows, lambda new: {"owner": new.owner})

    def take(self, role: str, owner: str, seconds: float) -> Lease | None:
        table = tables.leases
        # If an owner is suspended within a transaction, it has locked the row. The lease then counts as taken, so that
        # nobody waits for it. The transaction ends after IDLE_SECONDS.
        free = select(table.c.role).where(and_(self._own_rows, table.c.role == role, table.c.until < self._now()))
        values = {"owner": owner, "token": table.c.token + 1, "until": self._now() + seconds}
        taken = update(table).where(and_(self._own_rows, table.c.role.in_(free.with_for_update(skip_locked=True))))
        token = self._run(taken.values(values).returning(table.c.token)).scalar_one_or_none()
        if token is None:
            self._end_suspended()
            return None
        return Lease(role, token, seconds)

    def renew(self, lease: Lease) -> None:
        # This statement runs in every commit, so it must be fast.
        def build() -> Any:
            ours = and_(
                self._own_rows, tables.leases.c.role == bindparam("whose"), tables.leases.c.token == bindparam("its")
            )
            return update(tables.leases).where(ours).values(until=self._now() + bindparam("more", type_=Float))

        renewal = {"whose": lease.role, "its": lease.token, "more": lease.seconds}
        if self._database.execute(self._database.prepared("renew", build), renewal).rowcount != 1:
            raise lost(lease)

    def release(self, lease: Lease) -> None:
        self._run(update(tables.leases).where(self._is(lease)).values(until=0.0, owner=""))

    def begin(self, lease: Lease) -> None:
        if self._run(update(tables.leases).where(self._is(lease)).values(begun=True)).rowcount != 1:
            raise lost(lease)

    def begun(self) -> bool:
        table = tables.leases
        rows = self._run(select(table).where(and_(self._own_rows, table.c.role != COORDINATOR))).all()
        return bool(rows) and all(row.begun for row in rows)

    def free(self) -> list[str]:
        table = tables.leases
        return [row.role for row in self._run(select(table).where(and_(self._own_rows, table.c.until < self._now())))]

    def owners(self) -> dict[str, str]:
        table = tables.leases
        late = (table.c.until < self._now()).label("late")
        rows = self._run(select(table.c.role, table.c.owner, late).where(self._own_rows).order_by(table.c.role))
        return {role: "" if late else owner for role, owner, late in rows}

    def join(self, name: str, most: int, seconds: float) -> None:
        table = tables.members
        # The time of expiry must come from the database's clock, so the row is inserted without it and then updated.
        row = {"name": name, "most": most, "until": 0.0}
        self._database.upsert(table, [row], lambda new: {"most": new.most})
        ours = and_(self._database.own_rows(table), table.c.name == name)
        self._run(update(table).where(ours).values(until=self._now() + seconds))

    def leave(self, name: str) -> None:
        table = tables.members
        gone = (table.c.name == name) | (table.c.until < self._now() - _FORGET_SECONDS)
        self._run(delete(table).where(and_(self._database.own_rows(table), gone)))

    def members(self) -> dict[str, int]:
        table = tables.members
        here = and_(self._database.own_rows(table), table.c.until > self._now())
        return {row.name: row.most for row in self._run(select(table).where(here).order_by(table.c.name))}

    def _wait_for_open_transactions(self) -> None:
        """Wait until no owner has locked its row, and end the transactions of suspended owners."""
        own = select(tables.leases.c.role).where(self._own_rows)
        while len(self._run(own.with_for_update(skip_locked=True)).all()) < len(self._run(own).all()):
            self._end_suspended()
            time.sleep(_RETRY_SECONDS)

    def _end_suspended(self) -> None:
        """End the sessions that have locked a lease in a transaction and have sent nothing for IDLE_SECONDS.

        PostgreSQL's own idle timeout misses a session that is suspended between the rows of an executemany: the driver
        sends them as a pipeline, during which PostgreSQL does not count the session as idle.
        """
        if self._database.dialect != "postgresql":
            return
        # In a locked row, the column xmax holds the transaction that has locked it.
        lockers: Any = select(literal_column("leases.xmax")).select_from(tables.leases).where(self._own_rows)
        silent = text("wait_event = 'ClientRead' AND state_change < clock_timestamp() - make_interval(secs => :idle)")
        ended = select(func.pg_terminate_backend(column("pid"))).select_from(text("pg_stat_activity"))
        suspended = ended.where(silent, column("backend_xid").in_(lockers))
        self._database.execute(suspended, {"idle": IDLE_SECONDS}).all()

    def _is(self, lease: Lease) -> Any:
        return and_(self._own_rows, tables.leases.c.role == lease.role, tables.leases.c.token == lease.token)

    def _now(self) -> Any:
        """The database's clock in Unix seconds, the only clock that leases use."""
        if self._database.dialect == "postgresql":
            return extract("epoch", func.now())
        return (func.julianday("now") - 2440587.5) * 86400.0

    def _run(self, statement: Any) -> Any:
        return self._database.execute(statement)


def lost(lease: Lease) -> Fenced:
    """Return the error for a lease that another worker has taken."""
    return Fenced(f"{lease.role} belongs to another worker now")

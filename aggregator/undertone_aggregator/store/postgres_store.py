"""The store in a PostgreSQL database."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from undertone_aggregator.store import tables
from undertone_aggregator.store.leases import Leases
from undertone_aggregator.store.sql_leases import IDLE_SECONDS, SqlLeases
from undertone_aggregator.store.sql_store import SqlStore
from undertone_shared.errors import Invalid

_RETRY_SECONDS = 0.05
# Advisory locks of PostgreSQL have two numbers. The first says what is locked: `_LOCKS` the store, `_SERVERS` the right
# to serve it. The second is the campaign's number, or `_SETUP` for the whole database.
_LOCKS = tables.APPLICATION
_SETUP = 0
_SERVERS = _LOCKS + 1
# Settings of psycopg that close a connection to a host that has vanished. The last one is in milliseconds, the other
# times are in seconds.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
_DISK_FULL = "53100"


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database, ``postgresql://user@host/database``, locked by an advisory lock."""

    _several = True

    def __init__(
        self,
        where: str,
        *,
        campaign: str | None = None,
        read_only: bool = False,
        create: bool = True,
        choose: bool = True,
    ) -> None:
        try:
            address = make_url(f"postgresql:{where}")
        except (ArgumentError, ValueError):
            raise Invalid(f"the store is postgresql:{where}, expected postgresql://user@host/database") from None
        self._address: URL = address.set(drivername="postgresql+psycopg")
        try:
            engine = create_engine(self._address, poolclass=NullPool, connect_args=_PATIENCE)
        except ImportError:
            raise Invalid("a PostgreSQL store needs psycopg: pip install 'undertone-ldp[postgres]'") from None

        @event.listens_for(engine, "connect")
        def prepare(raw: Any, _: Any) -> None:
            raw.autocommit = True
            # If a process is suspended within a transaction, the database ends the transaction, so that the process
            # that replaces it need not wait for locked rows.
            raw.execute(f"SET idle_in_transaction_session_timeout = {round(1000 * IDLE_SECONDS)}")
            if read_only:
                raw.execute("SET default_transaction_read_only = on")

        name = address.render_as_string(hide_password=True)
        super().__init__(engine, name, campaign, read_only=read_only, create=create, choose=choose)

    @property
    def url(self) -> str:
        return self._address.set(drivername="postgresql").render_as_string(hide_password=False)

    @property
    def leases(self) -> Leases:
        return SqlLeases(self)

    def backup(self, path: Path) -> None:
        raise Invalid(f"{self._name} is a PostgreSQL database: back it up with pg_dump")

    def damage(self) -> str:
        return ""

    def __enter__(self) -> "PostgresStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._control("BEGIN")

    def _is_full(self, cause: BaseException) -> bool:
        return getattr(cause, "sqlstate", None) == _DISK_FULL

    def _lock_setup(self) -> None:
        self.execute(select(func.pg_advisory_xact_lock(_LOCKS, _SETUP)))

    @contextlib.contextmanager
    def _hold(self, seconds: float, *, shared: bool, server: bool = False) -> Iterator[None]:
        kind = _SERVERS if server else _LOCKS
        lock, unlock = (
            (func.pg_try_advisory_lock_shared, func.pg_advisory_unlock_shared)
            if shared
            else (func.pg_try_advisory_lock, func.pg_advisory_unlock)
        )
        with self.typed(), self._engine.connect() as held:
            deadline = time.monotonic() + seconds
            while not held.execute(select(lock(kind, self._campaign))).scalar_one():
                if time.monotonic() > deadline:
                    raise Invalid(self._in_use(alone=not (shared or server)))
                time.sleep(_RETRY_SECONDS)
            try:
                yield
            finally:
                # Release the lock at once. The database would also release it when the connection ends, but a little
                # later.
                with contextlib.suppress(SQLAlchemyError):
                    held.execute(select(unlock(kind, self._campaign)))

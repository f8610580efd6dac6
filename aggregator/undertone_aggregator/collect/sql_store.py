"""The store in SQLite (WAL, synchronous FULL) or PostgreSQL, by SQLAlchemy Core: one code for both.

See `undertone_aggregator.collect.store.Store`. A file holds one campaign; several may share a PostgreSQL database.
"""

import contextlib
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, and_, create_engine, delete, event, func, inspect, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from undertone_aggregator.collect import tables
from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.partial import Counts, Key, Partial, add_counts, pack_counts, unpack_counts
from undertone_aggregator.collect.seen import COUNTED
from undertone_aggregator.collect.store import RECEIVED, Batch, StoreError
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

_BUSY_SECONDS = 60
_RETRY_SECONDS = 0.05
# Advisory locks of PostgreSQL have two numbers: ours, and the campaign's.
_LOCKS = tables.APPLICATION
_MIGRATION = 0


class SqlStore:
    """One campaign's `Store` in a database."""

    _several = False

    def __init__(self, engine: Engine, name: str, campaign: str | None, read_only: bool) -> None:
        self._engine = engine
        self._name = name
        self._open_connection: Connection | None = None
        self._inside = False
        self._campaign = 0
        try:
            with _typed():
                if not read_only:
                    self._migrate()
                _check_version(self._connection, name)
                self._campaign = self._choose(campaign, read_only)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def _connection(self) -> Connection:
        """The one connection, made anew after the server was gone."""
        if self._open_connection is not None and self._open_connection.invalidated:
            self.close()
        if self._open_connection is None:
            self._open_connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._open_connection

    def _begin(self) -> None:
        raise NotImplementedError

    def _lock_migration(self) -> None:
        """Wait until no other process migrates this database."""

    def _migrate(self) -> None:
        if _version(self._connection) == tables.HEAD:
            return
        from undertone_aggregator.collect.migrations import upgrade

        with self.transaction():
            self._lock_migration()
            _check_version(self._connection, self._name, newest=False)
            upgrade(self._connection)

    def _choose(self, campaign: str | None, read_only: bool) -> int:
        """The campaign's number; without a name the only one's. Raises Invalid where it is not there, or not clear."""
        numbers = {name: number for number, name in self._rows(select(tables.campaigns))}
        if campaign is None:
            if len(numbers) > 1:
                raise Invalid(f"{self._name} holds the campaigns {', '.join(sorted(numbers))}: name one of them")
            if numbers:
                return int(next(iter(numbers.values())))
        elif campaign in numbers or "" in numbers:
            return int(numbers[campaign if campaign in numbers else ""])
        elif numbers and not self._several:
            raise Invalid(f"{self._name} holds the campaign {next(iter(numbers))}, not {campaign}: use another store")
        if read_only:
            raise Invalid(f"{self._name} holds no campaign {campaign or ''}".rstrip())
        row = tables.campaigns.insert().values(name=campaign or "").returning(tables.campaigns.c.id)
        return int(self._execute(row).scalar_one())

    def close(self) -> None:
        if self._open_connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._open_connection.close()
        self._open_connection = None

    def exclusive(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(seconds, shared=False)

    def shared(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(seconds, shared=True)

    def _hold(self, seconds: float, *, shared: bool) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with _typed():
            self._begin()
            self._inside = True
            try:
                yield
                self._connection.exec_driver_sql("COMMIT")
            except BaseException:
                with contextlib.suppress(SQLAlchemyError):
                    if self._open_connection is not None and not self._open_connection.invalidated:
                        self._open_connection.exec_driver_sql("ROLLBACK")
                raise
            finally:
                self._inside = False

    def _execute(self, statement: Any, rows: Sequence[Mapping[str, Any]] | None = None) -> Any:
        with _typed():
            return self._connection.execute(statement, rows)

    def _rows(self, statement: Any) -> Iterator[Any]:
        with _typed():
            yield from self._connection.execute(statement)

    def _mine(self, table: Table) -> Any:
        return table.c.campaign == self._campaign

    def _upsert(self, table: Table, rows: list[dict[str, Any]], values: Any, where: Any = None) -> None:
        """Insert the rows, or set ``values(excluded)`` where their keys are there (and ``where(excluded)`` holds)."""
        if not rows:
            return
        insert = postgresql.insert(table) if self._engine.dialect.name == "postgresql" else sqlite.insert(table)
        statement = insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_=values(insert.excluded),
            where=None if where is None else where(insert.excluded),
        )
        self._execute(statement, [{"campaign": self._campaign, **row} for row in rows])

    # --- what the campaign is

    def meta(self) -> dict[str, str]:
        table = tables.meta
        return {row.name: row.value for row in self._rows(select(table).where(self._mine(table)))}

    def set_meta(self, values: Mapping[str, str]) -> None:
        rows = [{"name": name, "value": value} for name, value in values.items()]
        self._upsert(tables.meta, rows, lambda new: {"value": new.value})
        if "campaign" in values:
            own = tables.campaigns.c.id == self._campaign
            self._execute(tables.campaigns.update().where(own).values(name=values["campaign"]))

    def epochs(self) -> list[Epoch]:
        table = tables.epochs
        rows = self._rows(select(table).where(self._mine(table)).order_by(table.c.epoch))
        return [
            Epoch(
                Campaign(bytes(r.body)),
                r.issued_at,
                r.threshold,
                _decoded(r.decoded),
                None if r.epsilon is None else Fraction(r.epsilon),
                r.delta,
            )
            for r in rows
        ]

    def epoch_count(self) -> int:
        table = tables.epochs
        return int(self._execute(select(func.count()).select_from(table).where(self._mine(table))).scalar_one())

    def add_epoch(self, epoch: Epoch) -> None:
        self._execute(
            tables.epochs.insert().values(
                campaign=self._campaign,
                epoch=epoch.campaign.epoch,
                fingerprint=epoch.campaign.fingerprint,
                body=bytes(epoch.campaign.body),
                issued_at=epoch.issued_at,
                threshold=epoch.chosen,
                decoded=None if epoch.decoded is None else json.dumps(epoch.decoded),
                epsilon=None if epoch.epsilon is None else str(epoch.epsilon),
                delta=epoch.delta,
            )
        )

    # --- what was counted

    def commit(self, worker: str, batch: Batch) -> None:
        with self.transaction():
            self._add_partial(worker, batch.partial)
            if batch.seen:
                self._append(tables.seen, worker, bytes(batch.seen), is_snapshot=False)
            if batch.chains:
                self._append(tables.chains, worker, bytes(batch.chains))
            self._upsert(
                tables.counters,
                [{"worker": worker, "outcome": outcome, "n": n} for outcome, n in batch.outcomes.items()],
                lambda new: {"n": tables.counters.c.n + new.n},
            )
            # The first outcome of a report stands, unless a later delivery of it was counted.
            self._upsert(
                tables.audit,
                [{"device": device, "digest": digest, "outcome": outcome} for device, digest, outcome in batch.audit],
                lambda new: {"outcome": new.outcome},
                lambda new: new.outcome == COUNTED,
            )

    def _add_partial(self, worker: str, partial: Partial) -> None:
        """One select for all histograms of a batch, one upsert."""
        table = tables.partials
        keys = [(key.slot, key.fingerprint, key.kind, key.group) for key in partial]
        if not keys:
            return
        columns = tuple_(table.c.slot, table.c.fingerprint, table.c.kind, table.c.grp)
        there = select(table).where(and_(self._mine(table), table.c.worker == worker, columns.in_(keys)))
        kept = {(r.slot, bytes(r.fingerprint), r.kind, r.grp): bytes(r.counts) for r in self._rows(there)}

        def merged(place: tuple[int, bytes, int, str], counts: Counts) -> Counts:
            return add_counts(unpack_counts(kept[place]), counts) if place in kept else counts

        rows = [
            {
                "slot": place[0],
                "fingerprint": place[1],
                "kind": place[2],
                "grp": place[3],
                "worker": worker,
                "counts": pack_counts(merged(place, counts)),
            }
            for place, counts in zip(keys, partial.values(), strict=True)
        ]
        self._upsert(table, rows, lambda new: {"counts": new.counts})

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None) -> Partial:
        table = tables.partials
        wanted = [self._mine(table), table.c.slot.between(first, last)]
        if kind is not None:
            wanted.append(table.c.kind == kind)
        campaign = self.meta().get("campaign", "")
        return Partial.gather(
            (Key(campaign, bytes(r.fingerprint), r.kind, r.grp, r.slot), unpack_counts(bytes(r.counts)))
            for r in self._rows(select(table).where(and_(*wanted)))
        )

    def newest_slot(self) -> int | None:
        table = tables.partials
        newest: int | None = self._execute(select(func.max(table.c.slot)).where(self._mine(table))).scalar_one()
        return newest

    def outcomes(self) -> Counter[str]:
        table = tables.counters
        total = select(table.c.outcome, func.sum(table.c.n)).where(self._mine(table)).group_by(table.c.outcome)
        counters = Counter({outcome: int(n) for outcome, n in self._rows(total)})
        counters[RECEIVED] = sum(counters.values())
        return counters

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        table = tables.audit
        for row in self._rows(select(table).where(self._mine(table))):
            yield row.device, bytes(row.digest), row.outcome

    # --- deduplication

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        for row in self._segments(tables.seen):
            yield row.is_snapshot, bytes(row.data)

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        with self.transaction():
            self._forget(tables.seen, worker, everyone)
            self._append(tables.seen, worker, snapshot, is_snapshot=True)

    def chains(self) -> Iterator[bytes]:
        for row in self._segments(tables.chains):
            yield bytes(row.data)

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        with self.transaction():
            self._forget(tables.chains, worker, everyone)
            self._append(tables.chains, worker, records)

    def _segments(self, table: Table) -> Iterator[Any]:
        return self._rows(select(table).where(self._mine(table)).order_by(table.c.id))

    def _append(self, table: Table, worker: str, data: bytes, **columns: bool) -> None:
        self._execute(table.insert().values(campaign=self._campaign, worker=worker, data=data, **columns))

    def _forget(self, table: Table, worker: str, everyone: bool) -> None:
        whose = self._mine(table) if everyone else and_(self._mine(table), table.c.worker == worker)
        self._execute(delete(table).where(whose))


class SqliteStore(SqlStore):
    """A store in a file; processes hold it by a lock file beside it."""

    def __init__(self, where: str, *, campaign: str | None = None, read_only: bool = False) -> None:
        self._path = Path(where)
        if read_only and not self._path.is_file():
            raise Invalid(f"there is no store at {where}")
        if not read_only:
            _make_private(self._path)
        file = f"{self._path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}&uri=true"
        engine = create_engine(
            f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}
        )

        @event.listens_for(engine, "connect")
        def prepare(raw: Any, _: Any) -> None:
            # Transactions begin where we say.
            raw.isolation_level = None
            application = raw.execute("PRAGMA application_id").fetchone()[0]
            empty = not raw.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application != tables.APPLICATION and (read_only or not empty):
                raise Invalid(f"{where} is a database, but not an Undertone store")
            if not read_only:
                raw.execute("PRAGMA journal_mode = WAL")
                raw.execute("PRAGMA synchronous = FULL")
                raw.execute(f"PRAGMA application_id = {tables.APPLICATION}")

        try:
            super().__init__(engine, where, campaign, read_only)
        except StoreError as wrong:
            raise Invalid(f"{where} cannot be used as a store: {wrong}") from None

    @property
    def url(self) -> str:
        return f"sqlite:{self._path}"

    def __enter__(self) -> "SqliteStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._connection.exec_driver_sql("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def _hold(self, seconds: float, *, shared: bool) -> Iterator[None]:
        handle = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(handle, how | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Invalid(f"another aggregator uses the store {self._path}") from None
                    time.sleep(_RETRY_SECONDS)
            yield
        finally:
            os.close(handle)


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database, ``postgresql://user@host/database``; held by an advisory lock."""

    _several = True

    def __init__(self, where: str, *, campaign: str | None = None, read_only: bool = False) -> None:
        try:
            address = make_url(f"postgresql:{where}")
        except (ArgumentError, ValueError):
            raise Invalid(f"the store is postgresql:{where}, expected postgresql://user@host/database") from None
        self._address: URL = address.set(drivername="postgresql+psycopg")
        try:
            engine = create_engine(self._address, poolclass=NullPool, connect_args={"connect_timeout": 10})
        except ImportError:
            raise Invalid("a PostgreSQL store needs psycopg: pip install 'undertone-ldp[postgres]'") from None

        @event.listens_for(engine, "connect")
        def prepare(raw: Any, _: Any) -> None:
            raw.autocommit = True
            if read_only:
                raw.execute("SET default_transaction_read_only = on")

        super().__init__(engine, address.render_as_string(hide_password=True), campaign, read_only)

    @property
    def url(self) -> str:
        return self._address.set(drivername="postgresql").render_as_string(hide_password=False)

    def __enter__(self) -> "PostgresStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._connection.exec_driver_sql("BEGIN")

    def _lock_migration(self) -> None:
        self._execute(select(func.pg_advisory_xact_lock(_LOCKS, _MIGRATION)))

    @contextlib.contextmanager
    def _hold(self, seconds: float, *, shared: bool) -> Iterator[None]:
        lock, unlock = (
            (func.pg_try_advisory_lock_shared, func.pg_advisory_unlock_shared)
            if shared
            else (func.pg_try_advisory_lock, func.pg_advisory_unlock)
        )
        with _typed(), self._engine.connect() as held:
            deadline = time.monotonic() + seconds
            while not held.execute(select(lock(_LOCKS, self._campaign))).scalar_one():
                if time.monotonic() > deadline:
                    raise Invalid(f"another aggregator uses the store {self._name}")
                time.sleep(_RETRY_SECONDS)
            try:
                yield
            finally:
                # It would end with the connection, but a little later.
                with contextlib.suppress(SQLAlchemyError):
                    held.execute(select(unlock(_LOCKS, self._campaign)))


def _make_private(path: Path) -> None:
    """Who reported when is nobody's else: mode 0600, before SQLite makes the file and gives its mode to the log's."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as wrong:
        raise Invalid(f"{path} cannot be used as a store: {wrong.strerror}") from None
    try:
        # A store that an earlier version left readable; its owner alone may change that.
        if os.fstat(handle).st_mode & 0o077 and os.fstat(handle).st_uid == os.geteuid():
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _version(connection: Connection) -> str | None:
    """The database's revision, None for a new one or a file from before revisions."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return version


def _check_version(connection: Connection, name: str, *, newest: bool = True) -> None:
    """Raises Invalid for a revision that this Undertone does not know, or, if ``newest``, for one before its own."""
    version = _version(connection)
    if version is not None and version > tables.HEAD:
        raise Invalid(f"{name} has schema version {version}, this Undertone knows up to {tables.HEAD}: upgrade it")
    if newest and version != tables.HEAD:
        raise Invalid(f"{name} is a store from before {tables.HEAD}: let an aggregator open it once")


def _decoded(text: str | None) -> tuple[tuple[int, ...], int] | None:
    if text is None:
        return None
    numerators, denominator = json.loads(text)
    return tuple(numerators), denominator


@contextlib.contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as wrong:
        cause = getattr(wrong, "orig", None) or wrong
        raise StoreError(str(cause).strip().partition("\n")[0]) from wrong

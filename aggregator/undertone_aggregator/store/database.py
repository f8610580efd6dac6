"""One campaign's part of a SQL database: connection, transactions, revision. Both kinds of store are built on it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Engine, Table, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from undertone_aggregator.base.interpreter import INGEST_THREADS
from undertone_aggregator.store import tables
from undertone_aggregator.store.migrations import FIRST, revision_of, upgrade
from undertone_aggregator.store.store import DiskFull, NoStore, OtherStore, StoreError
from undertone_shared.errors import Invalid

# Number of rows that are fetched from the driver at a time.
_FETCHED = 1000


class Database:
    """One campaign's part of a database. Each of its methods turns the driver's errors into StoreError."""

    _several = False

    def __init__(
        self, engine: Engine, name: str, campaign: str | None, *, read_only: bool, create: bool, choose: bool
    ) -> None:
        self._engine = engine
        self._name = name
        self._open_connection: Connection | None = None
        # SQLAlchemy takes longer to build a statement than to run it, so statements that every batch needs are built
        # once.
        self._statements: dict[str, Any] = {}
        # Name of a statement that `run` has compiled -> its text, its constants, and the order of its parameters, or
        # None for a driver that takes them by name.
        self._compiled: dict[str, tuple[str, Mapping[str, Any], Sequence[str] | None]] = {}
        self._campaign = 0
        self._inside = False
        self._fence: Callable[[], None] | None = None
        try:
            with self.typed():
                if not read_only:
                    self._migrate()
                elif _is_empty(self._connection):
                    raise NoStore(f"{name} holds no store yet")
                _check_version(self._connection, name)
                if choose:
                    self._campaign = self._choose(campaign, create=create and not read_only)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return self._name

    def campaigns(self) -> list[str]:
        return sorted(name for _, name in self.rows(select(tables.campaigns)) if name)

    @property
    def _connection(self) -> Connection:
        """The only connection. It is opened again if the database server was away meanwhile."""
        if self._open_connection is not None and self._open_connection.invalidated:
            self.close()
        if self._open_connection is None:
            self._open_connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._open_connection

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the SQL dialect."""
        return self._engine.dialect.name

    def _begin(self) -> None:
        raise NotImplementedError

    def _is_full(self, cause: BaseException) -> bool:
        """Return True if the driver's error means a full disk."""
        raise NotImplementedError

    @contextlib.contextmanager
    def typed(self) -> Iterator[None]:
        """Raise SQLAlchemy's errors as StoreError, with the first line of their cause."""
        try:
            yield
        except SQLAlchemyError as wrong:
            raise self._error(getattr(wrong, "orig", None) or wrong) from wrong

    def _error(self, cause: BaseException) -> StoreError:
        kind = DiskFull if self._is_full(cause) else StoreError
        return kind(str(cause).strip().partition("\n")[0])

    def _lock_setup(self) -> None:
        """Wait until no other process migrates this database or creates a campaign in it.

        Other processes must then wait until the transaction ends. This method does nothing where beginning a
        transaction already has this effect, as in SQLite.
        """

    def _keep_copy(self) -> None:
        """Keep a copy of a store that is about to be migrated, if this kind of store can make one."""

    def _migrate(self) -> None:
        if revision_of(self._connection) == tables.HEAD:
            return
        _check_version(self._connection, self._name, newest=False)
        self._keep_copy()
        with self.transaction():
            self._lock_setup()
            _check_version(self._connection, self._name, newest=False)
            upgrade(self._connection)

    def _choose(self, campaign: str | None, *, create: bool) -> int:
        """Return the number of the campaign that `_find` finds. With ``create``, create a campaign that does not exist.

        Raises Invalid as `_find` does, and NoStore if there is no such campaign and none is to be created.
        """
        found = self._find(campaign)
        if found is not None:
            return found
        if not create:
            raise NoStore(f"{self._name} holds no campaign {campaign or ''}".rstrip())
        with self.transaction():
            self._lock_setup()
            # Another process may have created the campaign meanwhile, because a server and its first commands begin
            # together.
            found = self._find(campaign)
            if found is not None:
                return found
            row = tables.campaigns.insert().values(name=campaign or "").returning(tables.campaigns.c.id)
            return int(self.execute(row).scalar_one())

    def _find(self, campaign: str | None) -> int | None:
        """Return the number of the campaign of this name; without a name, that of the only campaign; else None.

        A campaign whose own name is not stored yet is found by every name. Raises Invalid for several campaigns without
        a name, and for the file of another campaign.
        """
        numbers = {name: int(number) for number, name in self.rows(select(tables.campaigns))}
        if campaign is None:
            if len(numbers) > 1:
                raise Invalid(f"{self._name} holds the campaigns {', '.join(sorted(numbers))}: name one of them")
            return next(iter(numbers.values()), None)
        if numbers and not self._several and not {campaign, ""} & numbers.keys():
            raise OtherStore(
                f"{self._name} holds the campaign {next(iter(numbers))}, expected {campaign}: use another store"
            )
        return numbers.get(campaign, numbers.get(""))

    def close(self) -> None:
        if self._open_connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._open_connection.close()
        self._open_connection = None

    def exclusive(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(seconds, shared=False)

    def shared(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(seconds, shared=True)

    def serving(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(seconds, shared=False, server=True)

    def _hold(self, seconds: float, *, shared: bool, server: bool = False) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def _in_use(self, *, alone: bool) -> str:
        """Return the error for a lock that others hold. ``alone``: the lock also excludes workers without a server."""
        if alone:
            return f"another server or its workers use the store {self._name}: stop them first"
        return f"another server uses the store {self._name}: stop it first"

    def fence(self, check: Callable[[], None] | None) -> None:
        self._fence = check

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if self._inside:
            yield
            return
        with self.typed():
            self._begin()
            self._inside = True
            try:
                if self._fence is not None:
                    self._fence()
                yield
                # From here on this thread only waits for the disk, so another thread may use the interpreter.
                INGEST_THREADS.leave()
                self._control("COMMIT")
            except BaseException:
                with contextlib.suppress(SQLAlchemyError):
                    if self._open_connection is not None and not self._open_connection.invalidated:
                        self._open_connection.exec_driver_sql("ROLLBACK")
                raise
            finally:
                self._inside = False

    def _control(self, command: str) -> None:
        """Run a command that begins or ends a transaction."""
        self.run(command, lambda: text(command), [{}])

    def execute(self, statement: Any, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None) -> Any:
        """Run a statement in the open transaction or, if there is none, in a transaction of its own."""
        with self.typed():
            return self._connection.execute(statement, rows)

    def run(self, name: str, build: Callable[[], Any], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Run a statement for each of ``rows``; return the rows of its result. All ``rows`` must have the same keys.

        SQLAlchemy compiles the statement at its first use. After that only the driver runs it, which takes less
        processor time than `execute`. Use this method for statements that run often, such as those of every batch.
        """
        with self.typed():
            connection = self._connection
            dialect: Any = connection.dialect
            if name not in self._compiled:
                compiled: Any = build().compile(dialect=dialect, column_keys=list(rows[0]))
                order = compiled.positiontup if compiled.positional else None
                self._compiled[name] = str(compiled), compiled.params, order
            statement, constants, order = self._compiled[name]
            named = [{**constants, **row} for row in rows]
            values: list[Any] = named if order is None else [[row[key] for key in order] for row in named]
            driver: Any = connection.connection.driver_connection
            cursor = driver.cursor()
            try:
                if len(values) == 1:
                    cursor.execute(statement, values[0])
                else:
                    cursor.executemany(statement, values)
                return list(cursor.fetchall()) if cursor.description else []
            except dialect.loaded_dbapi.Error as wrong:
                if dialect.is_disconnect(wrong, driver, cursor):
                    connection.invalidate(wrong)
                raise self._error(wrong) from wrong
            finally:
                cursor.close()

    def rows(self, statement: Any, values: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield the rows of a query."""
        with self.typed():
            # Fetching the rows one at a time takes longer.
            for several in self._connection.execute(statement, values).partitions(_FETCHED):
                yield from several

    def own_rows(self, table: Table) -> Any:
        """Return the condition that selects this campaign's rows."""
        return table.c.campaign == self._campaign

    def prepared(self, name: str, build: Callable[[], Any]) -> Any:
        """Return the statement of this name, which ``build`` makes at its first use."""
        if name not in self._statements:
            self._statements[name] = build()
        return self._statements[name]

    def upsert(self, table: Table, rows: list[dict[str, Any]], values: Any, where: Any = None) -> None:
        """Insert rows. If a row's key exists already, set ``values(excluded)`` if ``where(excluded)`` holds.

        ``excluded``: the columns of the row that could not be inserted. The statement is compiled once per table, so
        every call for a table must pass the same functions.
        """

        def build() -> Any:
            # Only the dialect of this store is imported, because the import is slow.
            insert = import_module(f"sqlalchemy.dialects.{self.dialect}").insert(table)
            return insert.on_conflict_do_update(
                index_elements=list(table.primary_key),
                set_=values(insert.excluded),
                where=None if where is None else where(insert.excluded),
            )

        if rows:
            self.run(f"upsert {table.name}", build, [{"campaign": self._campaign, **row} for row in rows])


def _is_empty(connection: Connection) -> bool:
    """Return True for a database in which no server has made a store yet."""
    return revision_of(connection) is None and not _is_before_first(connection, None)


def _is_before_first(connection: Connection, version: str | None) -> bool:
    """Return True for a database of a version before the first release. A new database does not count as one."""
    return version < FIRST if version is not None else inspect(connection).has_table(tables.partials.name)


def _check_version(connection: Connection, name: str, *, newest: bool = True) -> None:
    """Raise OtherStore for a newer revision than this Undertone's. If ``newest``, also raise it for an older one."""
    version = revision_of(connection)
    if _is_before_first(connection, version):
        raise OtherStore(
            f"{name} was made by a version before 0.3.0, and no later version can read it: make a new store"
        )
    if version is not None and version > tables.HEAD:
        raise OtherStore(
            f"{name} has schema version {version}, this Undertone knows up to {tables.HEAD}: upgrade Undertone"
        )
    if newest and version != tables.HEAD:
        raise OtherStore(
            f"{name} has tables older than revision {tables.HEAD}: undertone upgrade {name} brings it up to date"
        )

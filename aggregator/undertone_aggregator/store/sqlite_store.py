"""The store in a SQLite file (WAL, synchronous FULL)."""

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, inspect, text
from sqlalchemy.pool import NullPool

from undertone_aggregator.base.files import sync
from undertone_aggregator.base.lock import locked
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.store import tables
from undertone_aggregator.store.digests import mask_beside
from undertone_aggregator.store.disk_space import is_full
from undertone_aggregator.store.sql_store import SqlStore
from undertone_aggregator.store.store import DiskFull, NoStore, StoreError
from undertone_shared.errors import Invalid

_BUSY_SECONDS = 60
# SQLite's error codes if there is no room: FULL for a full disk, and both IOERR codes for a full quota or a file that
# may not grow.
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


class SqliteStore(SqlStore):
    """A store in a SQLite file. Processes lock the store by a lock on another file beside it."""

    def __init__(
        self,
        where: str,
        *,
        campaign: str | None = None,
        read_only: bool = False,
        create: bool = True,
        choose: bool = True,
    ) -> None:
        self._path = Path(where)
        if read_only and not self._path.is_file():
            hint = (
                f", which is a folder: name a file, such as {where}/stores/NAME.sqlite" if self._path.is_dir() else ""
            )
            raise NoStore(f"there is no store at {where}{hint}")
        if not read_only:
            _make_private(self._path)
        file = f"{self._path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}&uri=true"
        engine = create_engine(
            f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}
        )

        @event.listens_for(engine, "connect")
        def prepare(raw: Any, _: Any) -> None:
            # Transactions begin explicitly, not by the driver.
            raw.isolation_level = None
            application = raw.execute("PRAGMA application_id").fetchone()[0]
            empty = not raw.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application != tables.APPLICATION and (read_only or not empty):
                raise Invalid(f"{where} is not an Undertone store")
            if not read_only:
                # This comes after the check above, so that a file of another program keeps its mode.
                _close_to_others(self._path)
                raw.execute("PRAGMA journal_mode = WAL")
                raw.execute("PRAGMA synchronous = FULL")
                # What is deleted is overwritten, such as the digests of older reports when a snapshot replaces them.
                raw.execute("PRAGMA secure_delete = ON")
                if application != tables.APPLICATION:
                    raw.execute(f"PRAGMA application_id = {tables.APPLICATION}")

        try:
            super().__init__(engine, where, campaign, read_only=read_only, create=create, choose=choose)
        except DiskFull as wrong:
            raise DiskFull(f"{where}: {wrong}") from wrong
        except StoreError as wrong:
            raise Invalid(f"{where} cannot be used as a store: {wrong}") from None
        try:
            self._mask = mask_beside(self._path, create=not read_only)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"sqlite:{self._path}"

    @property
    def leases(self) -> None:
        """None, because only processes of one machine share a file, and they use locks instead of leases."""

    def backup(self, path: Path) -> None:
        if path.exists():
            raise Invalid(f"{path} exists already, and a backup replaces no file: name a new one")
        # SQLite can write its copy into an empty file. The file is created here, so that only its owner may read it.
        _make_private(path)
        try:
            self.execute(text("VACUUM INTO :path").bindparams(path=str(path)))
            # SQLite does not wait until the copy is on the disk, so this is done here.
            sync(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _keep_copy(self) -> None:
        if not self._path.stat().st_size or not inspect(self._connection).get_table_names():
            # A new store has nothing to keep.
            return
        copy = copy_before(self._path)
        whole = copy.with_name(f".{copy.name}.{secrets.token_hex(8)}")
        try:
            self.backup(whole)
            # Another process that migrated at the same time may have kept the same copy.
            with contextlib.suppress(FileExistsError):
                os.link(whole, copy)
        finally:
            whole.unlink(missing_ok=True)

    def damage(self) -> str:
        findings = [str(row[0]) for row in self.rows(text("PRAGMA quick_check(3)"))]
        return "" if findings == ["ok"] else "; ".join(findings)

    def __enter__(self) -> "SqliteStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._control("BEGIN IMMEDIATE")

    def _is_full(self, cause: BaseException) -> bool:
        return getattr(cause, "sqlite_errorcode", None) in _FULL

    def _hold(self, seconds: float, *, shared: bool, server: bool = False) -> contextlib.AbstractContextManager[None]:
        path = Path(f"{self._path}.{'server' if server else 'lock'}")
        refusal = self._in_use(alone=not (shared or server))
        return locked(path, self._path, seconds, refusal, shared=shared)


def copy_before(path: Path) -> Path:
    """Return the path of the copy of this store that is kept when it is migrated to the newest tables."""
    return path.with_name(f"{path.name}.before-{tables.HEAD}")


def revision_in(path: Path) -> str | None:
    """Return the revision of the tables in a store's file; None if it has none. Raises Invalid for another file.

    SQLite must leave no further file beside the store. So if there is no log, which means that nobody writes to the
    store, the file is opened as unchangeable.
    """
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as database:
            (application,) = database.execute("PRAGMA application_id").fetchone()
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if application != tables.APPLICATION:
                raise Invalid(f"{path} is not an Undertone store")
            if tables.revision.name not in names:
                return None
            found = database.execute(f"SELECT version_num FROM {tables.revision.name}").fetchone()
    except sqlite3.Error as wrong:
        raise Invalid(f"{path} cannot be used as a store: {wrong}") from None
    return str(found[0]) if found else None


def _make_private(path: Path) -> None:
    """Create the store's file if there is none. Others may not read it, because it tells when each device reported.

    SQLite gives the mode of this file to its logs as well.

    An existing file is never opened here. Closing it would release the locks that SQLite holds on it in this process
    (POSIX demands this). Another process would then consider itself the only user, and delete the log that is still in
    use.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        give_to_owner(path, path.parent)
    except FileExistsError:
        pass
    except OSError as wrong:
        if is_full(wrong):
            raise
        raise Invalid(f"{path} cannot be used as a store: {wrong.strerror}") from None


def _close_to_others(path: Path) -> None:
    """Make a store's file readable by its owner only. A copied file, for example, may be readable by others."""
    status = path.stat()
    # Only the owner of a file can change its mode.
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        path.chmod(0o600)

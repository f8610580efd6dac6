"""The store in one SQLite file (WAL, synchronous FULL). See `undertone_aggregator.collect.store.Store`."""

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.partial import Counts, Key, Partial, add_counts, pack_counts, unpack_counts
from undertone_aggregator.collect.schema import APPLICATION, STEPS
from undertone_aggregator.collect.seen import COUNTED
from undertone_aggregator.collect.store import RECEIVED, Batch, StoreError
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

_BUSY_SECONDS = 60.0


class SqliteStore:
    """A `Store` in the file ``path``."""

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self._path = Path(path)
        if read_only and not self._path.is_file():
            raise Invalid(f"there is no store at {path}")
        uri = self._path.resolve().as_uri() + ("?mode=ro" if read_only else "?mode=rwc")
        if not read_only:
            _make_private(self._path)
        try:
            self._db = sqlite3.connect(
                uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            if read_only:
                if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                    raise Invalid(f"{path} is not an Undertone store")
                _check_version(self._db, path)
            else:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                _migrate(self._db, path)
        except sqlite3.DatabaseError as wrong:
            raise Invalid(f"{path} cannot be used as a store: {wrong}") from None

    @property
    def url(self) -> str:
        return f"sqlite:{self._path}"

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "SqliteStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exclusive(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(fcntl.LOCK_EX, seconds)

    def shared(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._hold(fcntl.LOCK_SH, seconds)

    @contextlib.contextmanager
    def _hold(self, how: int, seconds: float) -> Iterator[None]:
        handle = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(handle, how | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Invalid(f"another aggregator uses the store {self._path}") from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._execute("ROLLBACK")
            raise

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        with _typed():
            return self._db.execute(statement, values)

    def _executemany(self, statement: str, rows: Any) -> None:
        with _typed():
            self._db.executemany(statement, rows)

    def _rows(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with _typed():
            yield from self._db.execute(statement, values)

    # --- what the campaign is

    def meta(self) -> dict[str, str]:
        return dict(self._rows("SELECT name, value FROM meta"))

    def set_meta(self, values: Mapping[str, str]) -> None:
        self._executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def epochs(self) -> list[Epoch]:
        rows = self._rows("SELECT body, issued_at, threshold, decoded FROM epochs ORDER BY epoch")
        return [
            Epoch(
                Campaign(body),
                issued_at,
                chosen,
                None if decoded is None else (tuple(json.loads(decoded)[0]), json.loads(decoded)[1]),
            )
            for body, issued_at, chosen, decoded in rows
        ]

    def epoch_count(self) -> int:
        return int(self._execute("SELECT count(*) FROM epochs").fetchone()[0])

    def add_epoch(self, epoch: Epoch) -> None:
        self._execute(
            "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?)",
            (
                epoch.campaign.epoch,
                epoch.campaign.fingerprint,
                epoch.campaign.body,
                epoch.issued_at,
                epoch.chosen,
                None if epoch.decoded is None else json.dumps(epoch.decoded),
            ),
        )

    # --- what was counted

    def commit(self, worker: str, batch: Batch) -> None:
        with self.transaction():
            for key, counts in batch.partial.items():
                self._add_counts(worker, key, counts)
            if batch.seen:
                self._execute(
                    "INSERT INTO seen (worker, is_snapshot, data) VALUES (?, 0, ?)", (worker, bytes(batch.seen))
                )
            if batch.chains:
                self._execute("INSERT INTO chains (worker, data) VALUES (?, ?)", (worker, bytes(batch.chains)))
            self._executemany(
                "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
                [(worker, outcome, n) for outcome, n in batch.outcomes.items()],
            )
            # The first outcome of a report stands, unless a later delivery of it was counted.
            self._executemany(
                "INSERT INTO audit VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET outcome = excluded.outcome"
                f" WHERE excluded.outcome = '{COUNTED}'",
                batch.audit,
            )

    def _add_counts(self, worker: str, key: Key, counts: Counts) -> None:
        where = (key.slot, key.fingerprint, key.kind, key.group, worker)
        row = self._execute(
            "SELECT rowid, counts FROM partials"
            " WHERE slot = ? AND fingerprint = ? AND kind = ? AND grp = ? AND worker = ?",
            where,
        ).fetchone()
        if row is None:
            self._execute("INSERT INTO partials VALUES (?, ?, ?, ?, ?, ?)", (*where, pack_counts(counts)))
        else:
            merged = add_counts(unpack_counts(row[1]), counts)
            self._execute("UPDATE partials SET counts = ? WHERE rowid = ?", (pack_counts(merged), row[0]))

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None) -> Partial:
        campaign = self.meta().get("campaign", "")
        rows = self._rows(
            "SELECT slot, fingerprint, kind, grp, counts FROM partials WHERE slot BETWEEN ? AND ?"
            " AND (? IS NULL OR kind = ?)",
            (first, last, kind, kind),
        )
        return Partial.gather(
            (Key(campaign, fingerprint, of_kind, group, slot), unpack_counts(data))
            for slot, fingerprint, of_kind, group, data in rows
        )

    def newest_slot(self) -> int | None:
        return self._execute("SELECT max(slot) FROM partials").fetchone()[0]  # type: ignore[no-any-return]

    def outcomes(self) -> Counter[str]:
        counters = Counter(dict(self._rows("SELECT outcome, sum(n) FROM counters GROUP BY outcome")))
        counters[RECEIVED] = sum(counters.values())
        return counters

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        yield from self._rows("SELECT device, digest, outcome FROM audit")

    # --- deduplication

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        for is_snapshot, data in self._rows("SELECT is_snapshot, data FROM seen ORDER BY id"):
            yield bool(is_snapshot), data

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        with self.transaction():
            self._execute("DELETE FROM seen WHERE worker = ? OR ?", (worker, everyone))
            self._execute("INSERT INTO seen (worker, is_snapshot, data) VALUES (?, 1, ?)", (worker, snapshot))

    def chains(self) -> Iterator[bytes]:
        for (data,) in self._rows("SELECT data FROM chains ORDER BY id"):
            yield data

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        with self.transaction():
            self._execute("DELETE FROM chains WHERE worker = ? OR ?", (worker, everyone))
            self._execute("INSERT INTO chains (worker, data) VALUES (?, ?)", (worker, records))


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


@contextlib.contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as wrong:
        raise StoreError(str(wrong)) from wrong


def _migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring a file to this version's schema, a new one included. Raises Invalid for a foreign or newer file."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and tables:
        raise Invalid(f"{name} is a database, but not an Undertone store")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)"
        )
        version = _check_version(connection, name)
        for number in range(version + 1, len(STEPS) + 1):
            for statement in STEPS[number - 1].split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, int(time.time())))
        if application != APPLICATION:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _check_version(connection: sqlite3.Connection, name: str) -> int:
    """The file's schema version. Raises Invalid when a newer Undertone wrote it."""
    version = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0]
    if version > len(STEPS):
        raise Invalid(f"{name} has schema version {version}, this Undertone knows up to {len(STEPS)}: upgrade it")
    return int(version)

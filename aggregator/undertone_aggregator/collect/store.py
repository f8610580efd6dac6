"""The store: one SQLite file per campaign (WAL, synchronous FULL) that a restart resumes from exactly.

A batch is one transaction: its Partial, its deduplication records, its counters, its audit rows. A report is
acknowledged to the broker only after that.
"""

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.partial import Counts, Key, Partial, add_counts, pack_counts, unpack_counts
from undertone_aggregator.collect.schema import APPLICATION, check_version, migrate
from undertone_aggregator.collect.seen import COUNTED
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

RECEIVED = "received"
_BUSY_SECONDS = 60.0


@dataclass
class Batch:
    """What one transaction adds. ``seen``: records of the counted reports, see `undertone_aggregator.collect.seen`.

    ``chains``: records of the counted stream reports, see `undertone_aggregator.collect.chains`.
    ``audit``: (device, digest of the payload, outcome) of every delivery.
    """

    partial: Partial = field(default_factory=Partial)
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: bytearray = field(default_factory=bytearray)
    chains: bytearray = field(default_factory=bytearray)
    audit: list[tuple[str, bytes, str]] = field(default_factory=list)


class Store:
    """One connection to the file. Use each in one thread; any number of them, in any process, may be open.

    ``read_only`` opens an existing store without changing it. Raises Invalid for a file that is no store.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.is_file():
            raise Invalid(f"there is no store at {path}")
        uri = path.resolve().as_uri() + ("?mode=ro" if read_only else "?mode=rwc")
        try:
            self._db = sqlite3.connect(
                uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            if read_only:
                if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                    raise Invalid(f"{path} is not an Undertone store")
                check_version(self._db, str(path))
            else:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                migrate(self._db, str(path))
        except sqlite3.DatabaseError as wrong:
            raise Invalid(f"{path} cannot be used as a store: {wrong}") from None

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; waits for other writers. On return it is on the disk."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # --- what the campaign is

    def meta(self) -> dict[str, str]:
        """The facts that were fixed when the store was made."""
        return dict(self._db.execute("SELECT name, value FROM meta"))

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write facts, in the caller's transaction or their own."""
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def epochs(self) -> list[Epoch]:
        """All epochs, oldest first."""
        rows = self._db.execute("SELECT body, issued_at, threshold, decoded FROM epochs ORDER BY epoch")
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
        """Number of epochs: they are only ever added."""
        return int(self._db.execute("SELECT count(*) FROM epochs").fetchone()[0])

    def add_epoch(self, epoch: Epoch) -> None:
        """Keep a new epoch, before it is broadcast."""
        self._db.execute(
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
        """Add a batch under the worker's own key, in one transaction."""
        with self.transaction():
            for key, counts in batch.partial.items():
                self._add_counts(worker, key, counts)
            if batch.seen:
                self._db.execute(
                    "INSERT INTO seen (worker, is_snapshot, data) VALUES (?, 0, ?)", (worker, bytes(batch.seen))
                )
            if batch.chains:
                self._db.execute("INSERT INTO chains (worker, data) VALUES (?, ?)", (worker, bytes(batch.chains)))
            self._db.executemany(
                "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
                [(worker, outcome, n) for outcome, n in batch.outcomes.items()],
            )
            # The first outcome of a report stands, unless a later delivery of it was counted.
            self._db.executemany(
                "INSERT INTO audit VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET outcome = excluded.outcome"
                f" WHERE excluded.outcome = '{COUNTED}'",
                batch.audit,
            )

    def _add_counts(self, worker: str, key: Key, counts: Counts) -> None:
        where = (key.slot, key.fingerprint, key.kind, key.group, worker)
        row = self._db.execute(
            "SELECT rowid, counts FROM partials"
            " WHERE slot = ? AND fingerprint = ? AND kind = ? AND grp = ? AND worker = ?",
            where,
        ).fetchone()
        if row is None:
            self._db.execute("INSERT INTO partials VALUES (?, ?, ?, ?, ?, ?)", (*where, pack_counts(counts)))
        else:
            merged = add_counts(unpack_counts(row[1]), counts)
            self._db.execute("UPDATE partials SET counts = ? WHERE rowid = ?", (pack_counts(merged), row[0]))

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None) -> Partial:
        """The Partial of all workers for first <= slot <= last, of one kind of report or all."""
        campaign = self.meta().get("campaign", "")
        rows = self._db.execute(
            "SELECT slot, fingerprint, kind, grp, counts FROM partials WHERE slot BETWEEN ? AND ?"
            " AND (? IS NULL OR kind = ?)",
            (first, last, kind, kind),
        )
        merged: dict[Key, Counts] = {}
        for slot, fingerprint, of_kind, group, data in rows:
            key = Key(campaign, fingerprint, of_kind, group, slot)
            counts = unpack_counts(data)
            merged[key] = add_counts(merged[key], counts) if key in merged else counts
        return Partial(merged)

    def newest_slot(self) -> int | None:
        """The newest slot of which a report was counted."""
        return self._db.execute("SELECT max(slot) FROM partials").fetchone()[0]  # type: ignore[no-any-return]

    def outcomes(self) -> Counter[str]:
        """Deliveries by outcome, over all workers: ``received`` is the sum of all others."""
        counters = Counter(dict(self._db.execute("SELECT outcome, sum(n) FROM counters GROUP BY outcome")))
        counters[RECEIVED] = sum(counters.values())
        return counters

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        """(device, first 8 bytes of sha256(payload), outcome) of each distinct report, when auditing is on."""
        yield from self._db.execute("SELECT device, digest, outcome FROM audit")

    # --- deduplication

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        """The segments that `Seen.load` takes, oldest first."""
        for is_snapshot, data in self._db.execute("SELECT is_snapshot, data FROM seen ORDER BY id"):
            yield bool(is_snapshot), data

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one snapshot; ``everyone``: all segments, when no worker runs."""
        with self.transaction():
            self._db.execute("DELETE FROM seen WHERE worker = ? OR ?", (worker, everyone))
            self._db.execute("INSERT INTO seen (worker, is_snapshot, data) VALUES (?, 1, ?)", (worker, snapshot))

    def chains(self) -> Iterator[bytes]:
        """The segments that `undertone_aggregator.collect.chains.Chains.load` takes, oldest first."""
        for (data,) in self._db.execute("SELECT data FROM chains ORDER BY id"):
            yield data

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one; ``everyone``: all segments, when no worker runs."""
        with self.transaction():
            self._db.execute("DELETE FROM chains WHERE worker = ? OR ?", (worker, everyone))
            self._db.execute("INSERT INTO chains (worker, data) VALUES (?, ?)", (worker, records))

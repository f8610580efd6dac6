"""The ledger of Spark's batches in a store: each batch is noted in the transaction that adds its counts.

Spark repeats a batch that it did not finish, with the same number and the same rows. Two commits end a batch: first
that of the store, which adds the counts and notes the number, then Spark's own. If Spark is killed between the two, it
repeats the batch, and the ledger shows that the store holds it already.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from undertone_aggregator.base.plural import many
from undertone_aggregator.ingest.landing_batches import waiting_files
from undertone_aggregator.store.store import Batch, CampaignEntries, Store
from undertone_shared.errors import Invalid

# The worker's name under which a store keeps Spark's counts.
WORKER = "spark"
_LEDGER = "spark_ledger"
_LOCK = "spark_lock"
_WAY_ON = "undertone spark recount, with a new folder as --checkpoint, counts the landed files that the store lacks"


@dataclass(frozen=True)
class BatchLedger:
    """The newest ``batch`` in the store.

    ``query``: the name of Spark's query. ``checkpoint``: Spark's id of the checkpoint. ``buckets``: number of parts
    into which the devices are divided; the checkpoint's state depends on it.
    """

    query: str
    checkpoint: str
    buckets: int
    batch: int


def read_ledger(store: CampaignEntries) -> BatchLedger | None:
    """Return the ledger of a campaign; None before its first batch, and after `forget`."""
    text = store.meta().get(_LEDGER)
    return BatchLedger(**json.loads(text)) if text else None


def apply(store: Store, entry: BatchLedger, batch: Batch) -> bool:
    """Add a batch and note it, in one transaction. Return False if the store held the batch already.

    Raises Invalid if ``entry`` does not continue the store's ledger.
    """
    with store.transaction():
        # Writing locks the row. Another Spark driver of this campaign waits here, and then reads the ledger that this
        # one wrote.
        store.set_meta({_LOCK: entry.checkpoint})
        before = read_ledger(store)
        if before is not None:
            _check_same(entry, before)
            if entry.batch <= before.batch:
                return False
        expected = 0 if before is None else before.batch + 1
        if entry.batch != expected:
            raise Invalid(
                f"the checkpoint's batch is {entry.batch}, expected {expected}: the store lacks the batches between."
                f" {_WAY_ON}"
            )
        store.commit(WORKER, batch)
        store.set_meta({_LEDGER: json.dumps(asdict(entry))})
    return True


def adopt(store: CampaignEntries, entry: BatchLedger) -> None:
    """Make ``entry`` the newest batch, whichever checkpoint it names; see `undertone_aggregator.spark.recovery`."""
    with store.transaction():
        store.set_meta({_LEDGER: json.dumps(asdict(entry))})


def forget(store: CampaignEntries) -> None:
    """Note in the store that no checkpoint has a memory of the reports that the store holds."""
    store.set_meta({_LEDGER: ""})


def check(store: CampaignEntries, query: str, folder: Path, buckets: int) -> None:
    """Raise Invalid if checkpoint and store do not match, because reports would be lost or counted twice."""
    ledger = read_ledger(store)
    checkpoint, newest = _checkpoint(folder)
    if ledger is None:
        if newest >= 0:
            raise Invalid(
                f"the checkpoint {folder} has counted {many(newest + 1, 'batch', 'batches')}, and the store"
                f" {store.name} holds none: the checkpoint belongs to another store, or the store was lost. {_WAY_ON}"
            )
        return
    if checkpoint is None:
        raise Invalid(
            f"the store {store.name} holds {many(ledger.batch + 1, 'batch', 'batches')} of the checkpoint"
            f" {ledger.checkpoint}, but {folder} is new: find the folder of that checkpoint, in which Spark"
            f" keeps what it remembers of each device. {_WAY_ON}"
        )
    _check_same(BatchLedger(query, checkpoint, buckets, 0), ledger)
    if ledger.batch not in (newest, newest + 1):
        raise Invalid(
            f"the store {store.name} ends with batch {ledger.batch}, the checkpoint {folder} with {newest}: one of them"
            f" is an older copy. {_WAY_ON}"
        )


def _check_same(running: BatchLedger, stored: BatchLedger) -> None:
    for name in ("query", "checkpoint", "buckets"):
        value, expected = getattr(running, name), getattr(stored, name)
        if value != expected:
            what = "number of buckets" if name == "buckets" else name
            raise Invalid(
                f"the {what} is {value}, expected {expected}, which the reports in the store were counted with"
            )


def _checkpoint(folder: Path) -> tuple[str | None, int]:
    """Return (Spark's id of a checkpoint, or None for a new one; the checkpoint's newest committed batch, or -1)."""
    metadata = folder / "metadata"
    if not metadata.exists():
        return None, -1
    batches = [int(file.name) for file in (folder / "commits").glob("*") if file.name.isdigit()]
    return json.loads(metadata.read_text(encoding="utf-8"))["id"], max(batches, default=-1)


def checkpoint_id(folder: Path) -> str:
    """Return the id that Spark has given to a checkpoint, which Spark must have begun to use."""
    name = _checkpoint(folder)[0]
    assert name is not None
    return name


def files_of_batch(folder: Path, number: int) -> list[str]:
    """Return the names of the files in a checkpoint's batch, from the log of Spark's file source."""
    last, first = _log_offset(folder, number), _log_offset(folder, number - 1) + 1
    names = []
    for offset in range(first, last + 1):
        plain = folder / "sources" / "0" / str(offset)
        # Every tenth file of Spark's log is a compact one, which repeats the entries of the files before it.
        log = plain if plain.exists() else plain.with_name(f"{offset}.compact")
        entries = map(json.loads, log.read_text(encoding="utf-8").splitlines()[1:])
        names += [entry["path"].rpartition("/")[2] for entry in entries if entry["batchId"] == offset]
    return names


def partitions_of(folder: Path) -> int | None:
    """Return the number of tasks of a checkpoint's batches; None for a new checkpoint."""
    newest = max((int(file.name) for file in (folder / "offsets").glob("*") if file.name.isdigit()), default=-1)
    if newest < 0:
        return None
    conf = json.loads((folder / "offsets" / str(newest)).read_text(encoding="utf-8").splitlines()[1])["conf"]
    return int(conf["spark.sql.shuffle.partitions"])


def _log_offset(folder: Path, number: int) -> int:
    file = folder / "offsets" / str(number)
    # The file of offsets is missing before the first batch. Spark also removes the files of old batches.
    if number < 0 or not file.exists():
        return -1
    line = file.read_text(encoding="utf-8").splitlines()[2]
    return -1 if line == "-" else int(json.loads(line)["logOffset"])


@dataclass(frozen=True)
class Backlog:
    """The number of merged files that wait for Spark, and the Unix second at which the oldest was written, if any."""

    files: int
    oldest: float | None

    def age(self, now: float) -> float:
        """Return the seconds for which the oldest file has waited; 0 if none waits."""
        return 0.0 if self.oldest is None else max(now - self.oldest, 0.0)


def backlog(store: CampaignEntries, folder: Path) -> Backlog:
    """Return the files in a landing folder that the store has not counted."""
    held = read_ledger(store)
    checkpoint, newest = (None, -1) if held is None else (held.checkpoint, held.batch)
    files = waiting_files(folder, checkpoint, newest)
    return Backlog(len(files), min(files.values(), default=None))

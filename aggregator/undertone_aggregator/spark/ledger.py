"""Which batches of a query a store holds: written with the cells in one transaction, compared with Spark's checkpoint.

Spark repeats a batch that it did not finish, with the same number and the same rows. Two commits end a batch: ours,
which adds the cells and notes the number, and Spark's. Killed between them, the batch is repeated and found noted.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from undertone_aggregator.collect.store import Batch, Store
from undertone_shared.errors import Invalid

# The worker under which a store keeps what Spark counted.
WORKER = "spark"
_LEDGER = "spark_ledger"
_LOCK = "spark_lock"


@dataclass(frozen=True)
class Ledger:
    """The newest ``batch`` that is in the store; ``checkpoint``: Spark's name of it.

    ``buckets``: into how many parts the devices are divided, which a checkpoint's state depends on.
    """

    query: str
    checkpoint: str
    buckets: int
    batch: int


def read_ledger(store: Store) -> Ledger | None:
    """The ledger of a campaign; None before its first batch."""
    text = store.meta().get(_LEDGER)
    return None if text is None else Ledger(**json.loads(text))


def apply(store: Store, entry: Ledger, batch: Batch) -> bool:
    """Add a batch and note it, in one transaction; False when it was there. Raises Invalid for one out of order."""
    with store.transaction():
        # Another driver of this campaign waits here, and then reads what we wrote.
        store.set_meta({_LOCK: entry.checkpoint})
        before = read_ledger(store)
        if before is not None:
            _check_same(entry, before)
            if entry.batch <= before.batch:
                return False
        expected = 0 if before is None else before.batch + 1
        if entry.batch != expected:
            raise Invalid(
                f"the checkpoint's batch is {entry.batch}, expected {expected}: the store lacks what is between"
            )
        store.commit(WORKER, batch)
        store.set_meta({_LEDGER: json.dumps(asdict(entry))})
    return True


def check(store: Store, query: str, folder: Path, buckets: int) -> None:
    """Raises Invalid when a checkpoint and a store do not fit each other: reports would be lost, or counted twice."""
    ledger = read_ledger(store)
    checkpoint, newest = _checkpoint(folder)
    if ledger is None:
        if newest >= 0:
            raise Invalid(
                f"the checkpoint {folder} has counted {newest + 1} batches, of which the store {store.name} knows none:"
                " it belongs to another store, or the store was lost"
            )
        return
    if checkpoint is None:
        raise Invalid(
            f"the store {store.name} holds {ledger.batch + 1} batches of the checkpoint {ledger.checkpoint}, but"
            f" {folder} is new: what it remembers of devices is lost. Find it, or count into a new store"
        )
    _check_same(Ledger(query, checkpoint, buckets, 0), ledger)
    if ledger.batch not in (newest, newest + 1):
        raise Invalid(
            f"the store {store.name} ends with batch {ledger.batch}, the checkpoint {folder} with {newest}: one of them"
            " is an older copy"
        )


def _check_same(mine: Ledger, kept: Ledger) -> None:
    for name in ("query", "checkpoint", "buckets"):
        value, there = getattr(mine, name), getattr(kept, name)
        if value != there:
            raise Invalid(f"the {name} is {value}, expected {there}, with which the store was counted")


def _checkpoint(folder: Path) -> tuple[str | None, int]:
    """(Spark's name of a checkpoint or None for a new one, its newest committed batch or -1)."""
    metadata = folder / "metadata"
    if not metadata.exists():
        return None, -1
    batches = [int(file.name) for file in (folder / "commits").glob("*") if file.name.isdigit()]
    return json.loads(metadata.read_text())["id"], max(batches, default=-1)


def checkpoint_id(folder: Path) -> str:
    """Spark's name of a checkpoint that has begun."""
    name = _checkpoint(folder)[0]
    assert name is not None
    return name

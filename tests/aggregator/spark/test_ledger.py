"""The ledger counts each batch once, and refuses a checkpoint and a store that do not fit each other."""

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support.memory_store import MemoryStore
from support.refusal import refused
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.ingest.landing import LANDED
from undertone_aggregator.ingest.landing_batches import note_batch
from undertone_aggregator.ingest.ledger import Backlog, BatchLedger, apply, backlog, check, read_ledger
from undertone_aggregator.settings.landing_plan import SERVER, SPARK, LandingPlan
from undertone_aggregator.store.store import Batch
from undertone_shared.errors import Invalid

FIRST = BatchLedger("undertone", "c1", 64, 0)


def batch(n: int = 1) -> Batch:
    return Batch(outcomes=Counter(counted=n))


def checkpoint(folder: Path, committed: int, name: str = "c1") -> Path:
    """Make the folder of a checkpoint with this number of committed batches, as Spark keeps it."""
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": name}), encoding="utf-8")
    for number in range(committed):
        (folder / "commits" / str(number)).touch()
        (folder / "commits" / f".{number}.crc").touch()
    return folder


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_repeated_batch_is_counted_once(store: MemoryStore) -> None:
    for number in range(3):
        assert apply(store, replace(FIRST, batch=number), batch())
        assert not apply(store, replace(FIRST, batch=number), batch())
    assert not apply(store, FIRST, batch())
    assert store.outcomes()["counted"] == 3
    assert read_ledger(store) == replace(FIRST, batch=2)


def test_a_batch_out_of_order_is_refused(store: MemoryStore) -> None:
    with refused("batch", 1, 0):
        apply(store, replace(FIRST, batch=1), batch())
    apply(store, FIRST, batch())
    with refused("batch", 2, 1):
        apply(store, replace(FIRST, batch=2), batch())
    assert store.outcomes()["counted"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [({"checkpoint": "c2"}, "checkpoint is c2, expected c1"), ({"buckets": 8}, "buckets is 8, expected 64"),
     ({"query": "q"}, "query is q, expected undertone")],
)  # fmt: skip
def test_another_query_is_refused(store: MemoryStore, tmp_path: Path, change: dict[str, str], said: str) -> None:
    apply(store, FIRST, batch())
    other = replace(FIRST, batch=1, **change)
    with pytest.raises(Invalid, match=said):
        apply(store, other, batch())
    folder = checkpoint(tmp_path, 1, other.checkpoint)
    with pytest.raises(Invalid, match=said):
        check(store, other.query, folder, other.buckets)
    assert store.outcomes()["counted"] == 1


def test_what_fits_is_taken_up(store: MemoryStore, tmp_path: Path) -> None:
    check(store, "undertone", tmp_path / "new", 64)
    # The job began, and was killed before its first batch was in the store.
    check(store, "undertone", checkpoint(tmp_path, 0), 64)
    apply(store, FIRST, batch())
    # The job was killed between the two commits, and then after both.
    check(store, "undertone", tmp_path, 64)
    check(store, "undertone", checkpoint(tmp_path, 1), 64)


def test_a_lost_checkpoint_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    apply(store, FIRST, batch())
    with pytest.raises(Invalid, match=r"holds 1 batch of the checkpoint c1, but .* is new"):
        check(store, "undertone", tmp_path, 64)


def test_a_lost_store_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"has counted 2 batches, and the store memory: holds none"):
        check(store, "undertone", checkpoint(tmp_path, 2), 64)


@pytest.mark.parametrize(("stored", "committed"), [(1, 3), (4, 2)])
def test_an_older_copy_of_either_is_refused(store: MemoryStore, tmp_path: Path, stored: int, committed: int) -> None:
    for number in range(stored):
        apply(store, replace(FIRST, batch=number), batch())
    with refused(stored - 1, committed - 1):
        check(store, "undertone", checkpoint(tmp_path, committed), 64)


def test_what_waits_is_what_no_batch_of_the_store_holds(store: MemoryStore, tmp_path: Path) -> None:
    """A slot settles only when all files that may hold its reports are counted."""
    plan = LandingPlan(str(tmp_path), 10.0, 7, SPARK)
    names = [f"0of1-{place:020d}-{place:020d}.parquet" for place in (1, 2)]
    (tmp_path / LANDED).mkdir()
    for name, moment in zip(names, (1000, 2000), strict=True):
        (tmp_path / LANDED / name).touch()
        os.utime(tmp_path / LANDED / name, (moment, moment))
    assert backlog(store, tmp_path) == Backlog(2, 1000.0)
    assert Backlog(2, 1000.0).age(1600) == 600
    assert Lag(plan).counted_until(store, 5000) == 990
    note_batch(tmp_path, "c1", 0, names[:1])
    assert backlog(store, tmp_path) == Backlog(2, 1000.0)
    apply(store, FIRST, batch())
    assert Lag(plan).counted_until(store, 5000) == 1990
    note_batch(tmp_path, "c1", 1, names[1:])
    apply(store, replace(FIRST, batch=1), batch())
    assert backlog(store, tmp_path) == Backlog(0, None)
    assert Lag(plan).counted_until(store, 5000) == 4990
    # Where the server counts, a report is in the store as soon as it is landed.
    assert Lag(plan._replace(counts=SERVER)).counted_until(store, 5000) == 5000
    assert Lag(None).counted_until(store, 5000) == 5000

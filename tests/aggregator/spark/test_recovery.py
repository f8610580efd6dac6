"""Counting with Spark goes on after a restored store, a lost checkpoint, a damaged file and an unknown epoch."""

import importlib.util
import shutil
import threading
from pathlib import Path

import pytest

from support import landed
from support.ci import unavailable
from undertone_aggregator.ingest.landing import LANDED, gathered_files
from undertone_aggregator.ingest.landing_batches import waiting_files
from undertone_aggregator.ingest.ledger import read_ledger
from undertone_aggregator.spark.job import CountingJob
from undertone_aggregator.spark.quarantine import CORRUPT
from undertone_aggregator.spark.recovery import recover
from undertone_aggregator.store.store import open_store
from undertone_operate.examine.recount import compare, recount
from undertone_shared.errors import Invalid

pytestmark = [pytest.mark.services, pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def spark() -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        unavailable("PySpark and Java are not installed: make services")


class Place:
    """A landing folder, a store into which Spark counts, and a store into which the server counted."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.store, self.server = folder / "store", folder / "server"
        self.landing = folder / "landing"
        self.said: list[str] = []
        with open_store(self.store, campaign="meters") as store:
            landed.bind(store)
        with open_store(self.server, campaign="meters") as server:
            landed.bind(server)
        self.land(range(slots))

    def land(self, slots: range, devices: int = 60) -> None:
        with open_store(self.server, campaign="meters") as server:
            for slot in slots:
                landed.land_slot(self.landing, server, landed.EPOCHS[1], landed.START + slot, devices)

    def job(self, checkpoint: Path) -> CountingJob:
        return CountingJob(
            str(self.store), "meters", self.landing, checkpoint, "local[2]", once=True, partitions=2, buckets=4
        )

    def check(self) -> None:
        """Check that every landed report is in the store once."""
        with open_store(self.store, read_only=True) as store, open_store(self.server, read_only=True) as server:
            assert compare(recount(self.landing, store.epochs()), store) == []
            assert store.partial() == server.partial()
            entry = read_ledger(store)
        assert entry is not None
        assert waiting_files(self.landing, entry.checkpoint, entry.batch) == {}


@pytest.mark.slow
def test_after_a_restore_and_after_a_lost_checkpoint_there_is_a_way_on(tmp_path: Path) -> None:
    place = Place(tmp_path, 3)
    first = tmp_path / "first"
    place.job(first).run(threading.Event(), place.said.append)
    assert first.stat().st_mode & 0o777 == 0o700
    with open_store(place.store, read_only=True) as store:
        store.backup(tmp_path / "backup")
    place.land(range(3, 5))
    place.job(first).run(threading.Event(), place.said.append)
    place.check()

    # The store is now an older one, to which no checkpoint belongs. The recount adds what the store lacks.
    (tmp_path / "backup").replace(place.store)
    with pytest.raises(Invalid, match="undertone spark recount"):
        place.job(first).run(threading.Event(), place.said.append)
    recover(place.job(tmp_path / "second"), threading.Event(), place.said.append)
    place.check()

    # The job goes on with the new checkpoint. A file that was counted before the checkpoint began is not counted again.
    for file in gathered_files(place.landing)[:1]:
        shutil.copy(file, place.landing / LANDED / f"again-{file.name}")
    place.land(range(5, 6))
    place.job(tmp_path / "second").run(threading.Event(), place.said.append)
    place.check()

    # A recount also helps if the checkpoint is lost.
    shutil.rmtree(tmp_path / "second")
    place.land(range(6, 7))
    with pytest.raises(Invalid, match="undertone spark recount"):
        place.job(tmp_path / "second").run(threading.Event(), place.said.append)
    recover(place.job(tmp_path / "second"), threading.Event(), place.said.append)
    place.check()


@pytest.mark.slow
def test_a_damaged_file_is_set_aside_and_counted_once_it_is_mended(tmp_path: Path) -> None:
    place = Place(tmp_path, 3)
    checkpoint = tmp_path / "checkpoint"
    file = gathered_files(place.landing)[1]
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    place.job(checkpoint).run(threading.Event(), place.said.append)
    (aside,) = (place.landing / CORRUPT).iterdir()
    assert aside.name == file.name
    assert any(str(file) in sentence and str(aside) in sentence for sentence in place.said)
    with open_store(place.store, read_only=True) as store:
        assert store.outcomes()["counted"] == 120
    # The mended file is put back under its own name, in the folder where it had landed.
    file.write_bytes(good)
    place.job(checkpoint).run(threading.Event(), place.said.append)
    assert list((place.landing / CORRUPT).iterdir()) == []
    place.check()


def test_an_epoch_that_the_store_does_not_know_is_refused_and_said(tmp_path: Path) -> None:
    place = Place(tmp_path, 2)
    place.store.unlink()
    with open_store(place.store, campaign="meters") as store:
        landed.bind(store, landed.EPOCHS[:1])
    place.job(tmp_path / "checkpoint").run(threading.Event(), place.said.append)
    with open_store(place.store, read_only=True) as store:
        assert store.outcomes() == {"other_campaign": 120, "received": 120}
    assert any(landed.EPOCHS[1].campaign.fingerprint.hex() in sentence for sentence in place.said)

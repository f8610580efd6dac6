"""Where Spark counts, a slot settles once the files that may hold its reports are in the store."""

import io
import math
import os
from dataclasses import replace
from pathlib import Path

from support import server
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.estimate.publication import publication_of
from undertone_aggregator.ingest.landing import LANDED
from undertone_aggregator.ingest.landing_batches import note_batch
from undertone_aggregator.ingest.ledger import BatchLedger, apply
from undertone_aggregator.store.store import Batch, open_store
from undertone_shared.report import COHORT

NOW = server.FIRST
LANDING = '[landing]\nfolder = "landing"\ncounts = "spark"\nseconds = 1\n'


class Nowhere:
    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        pass


def test_a_slot_whose_file_waits_is_not_published_half_counted(tmp_path: Path) -> None:
    config = server.config(tmp_path, LANDING, rounds=[1000], cells=16)
    landed = tmp_path / "landing" / LANDED
    landed.mkdir(parents=True)
    name = f"0of1-{1:020d}-{2:020d}.parquet"
    entry = BatchLedger("undertone", "c1", 4, 0)
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        coordinator = Coordinator(config, server.SEED, store, Nowhere(), Journal(io.StringIO()))
        coordinator.tick(NOW)
        campaign = store.epochs()[0].campaign
        first = campaign.first_slot
        # Spark has counted 10 of 40 reports of each slot when it is stopped. The other 30 are in the file that waits.
        (landed / name).touch()
        os.utime(landed / name, (first + 1, first + 1))
        apply(store, entry, counted(campaign, range(first, first + 20), 10))
        for second in range(first, first + 20):
            again(coordinator).tick(second)
        assert publication_of(store, config.campaign.min_reports).settled < first
        note_batch(tmp_path / "landing", "c1", 1, [name])
        os.utime(tmp_path / "landing/batches/c1/1", (first + 20, first + 20))
        again(coordinator).tick(first + 20)
        assert publication_of(store, config.campaign.min_reports).settled < first
        # The reports are counted late, but all are there when the slot is first published.
        apply(store, replace(entry, batch=1), counted(campaign, range(first, first + 20), 30))
        again(coordinator).tick(first + 21)
        assert publication_of(store, config.campaign.min_reports).settled >= first + 15
        assert store.partial(first, first, late=False).reports == 40


def counted(campaign: object, slots: range, devices: int) -> Batch:
    batch = Batch()
    symbols = campaign.cohort.mechanism.symbols  # type: ignore[attr-defined]
    for slot in slots:
        for number in range(devices):
            key = Key("meters", campaign.fingerprint, COHORT, "all", slot)  # type: ignore[attr-defined]
            batch.partial.add(key, number % symbols, symbols)
    return batch


def again(coordinator: Coordinator) -> Coordinator:
    """Let the coordinator look at the folder now. It usually does so every few seconds of a real clock."""
    coordinator._lag._looked = -math.inf
    return coordinator

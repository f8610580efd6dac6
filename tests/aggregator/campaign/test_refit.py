"""The filter is refitted in the coordinator's thread, while another thread commits reports."""

import threading
import time

import numpy as np
import pytest
from sqlalchemy import text

from support.list_intake import ListIntake
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.estimate.calendar import Days
from undertone_aggregator.estimate.estimates import MEASURED, Estimate, Estimates, Series
from undertone_aggregator.estimate.series_filter import LiveFilter, SeriesFilter
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.store.sqlite_store import SqliteStore
from undertone_aggregator.store.store import open_store

DAY, DAYS, BATCH = 48, 28, 50
SLOT = 1_798_416_000 // 1800


def settled() -> Estimates:
    """Four weeks of half-hours of one series."""
    slots = np.arange(SLOT, SLOT + DAY * DAYS)
    values = 200 + 60 * np.sin(2 * np.pi * slots / DAY) + 25 * np.random.default_rng(1).standard_normal(len(slots))
    rows = [
        Estimate(slot, slot * 1800, Series(), MEASURED, 500, 0, value, 25.0, 0.0, 0.0, 700)
        for slot, value in zip(slots.tolist(), values.tolist(), strict=True)
    ]
    return Estimates.of(rows)


@pytest.mark.slow
def test_a_refit_does_not_block_ingest(tmp_path):
    old, _ = two_epochs()
    live = LiveFilter(SeriesFilter(1800, DAY, Days()))
    committed: list[float] = []
    stop = threading.Event()

    def take_in() -> None:
        with open_store(tmp_path / "reports.db") as store:
            assert isinstance(store, SqliteStore)
            # The test does not wait for the disk, which other programs may keep busy.
            store.execute(text("PRAGMA synchronous = OFF"))
            store.set_meta({"campaign": "meters"})
            store.add_epoch(old)
            ingest = Ingest(
                IngestPlan(PREFIX, "meters", 1, cells_of), store, ListIntake([]), say=print, clock=lambda: FIRST + 9.5
            )
            for batch in range(2_000):
                names = [f"d{batch * BATCH + place}" for place in range(BATCH)]
                assert ingest.commit([Delivery(*delivery(old.campaign, name, FIRST + 1), False) for name in names])
                committed.append(time.process_time())
                if stop.is_set():
                    return

    thread = threading.Thread(target=take_in)
    thread.start()
    while not committed:
        assert thread.is_alive()
        time.sleep(0.01)
    begun = time.process_time()
    filtered = live.take(settled())
    ended = time.process_time()
    stop.set()
    thread.join()
    assert len(filtered) == DAY * DAYS
    assert live.take(settled()[-1:])[0].standard_error < 25.0, "it was refitted"
    during = [moment for moment in committed if begun < moment < ended]
    # No batch would be committed during the refit if both ran in one thread or under one lock. Times are this process's
    # CPU time, which stands still while other programs use the processor.
    assert len(during) > 5
    assert np.diff([begun, *during, ended]).max() < 0.5 * (ended - begun)

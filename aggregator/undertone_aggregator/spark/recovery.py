"""Recovery after a restored store or a lost checkpoint: counts the landed files that are not in the store.

A new checkpoint has no memory of the devices. So Spark first counts the files again that are already in the store; it
keeps the resulting memory and drops the counts. Then all other files are landed again and counted as if they were new.
"""

import threading
from dataclasses import replace
from pathlib import Path

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import bind_counting
from undertone_aggregator.ingest import ledger
from undertone_aggregator.ingest.ingest import Say
from undertone_aggregator.ingest.landing import COUNTED, LANDED, day_of, gathered_files
from undertone_aggregator.ingest.landing_batches import counted_names
from undertone_aggregator.settings.landing_plan import SPARK
from undertone_aggregator.spark.job import CountingJob
from undertone_aggregator.store.store import Batch, Store, open_store
from undertone_shared.errors import Invalid

_BEHIND = ".recount"


def recover(job: CountingJob, stop: threading.Event, say: Say) -> None:
    """Count the landed files that the store lacks, with a new checkpoint. Afterwards ``job`` continues with this
    checkpoint.

    The recovery may be stopped or killed at any moment, and started again with another new checkpoint. Raises Invalid
    for a checkpoint that is not new, and for a folder without records of the files that the store has counted.
    """
    if job.checkpoint.exists() and any(job.checkpoint.iterdir()):
        raise Invalid(f"the checkpoint {job.checkpoint} is there already, expected a new folder")
    with open_store(job.store, campaign=job.campaign) as store:
        bind_counting(store, SPARK)
        held = ledger.read_ledger(store)
        counted = set() if held is None else counted_names(job.folder, held.checkpoint, held.batch)
        if held is not None and not counted:
            raise Invalid(
                f"it is unknown which files the store {store.name} has counted: {job.folder} has no record of the"
                f" batches of its checkpoint {held.checkpoint}; check that this is the store's landing folder"
            )
        files = _bring_back(job.folder)
        inside = [file for file in files if file.name in counted]
        behind = [file for file in files if file.name not in counted]
        batch = 0 if held is None else held.batch + 1
        say(
            f"the store has counted {many(batch, 'batch', 'batches')}; files of counted batches that still exist:"
            f" {len(inside)}; files that are not counted yet: {len(behind)}"
        )
        _put_aside(job.folder, behind)
        try:
            if inside:
                _remember(replace(job, once=True), store, stop, say)
            elif held is not None:
                ledger.forget(store)
        finally:
            _bring_back(job.folder)
    if not stop.is_set():
        replace(job, once=True).run(stop, say)


def _remember(job: CountingJob, store: Store, stop: threading.Event, say: Say) -> None:
    """Count the files in the folder into Spark's memory only. Record the new checkpoint's last batch in the store."""
    last: list[ledger.BatchLedger] = []

    def keep_the_memory(_: Store, entry: ledger.BatchLedger, batch: Batch) -> bool:
        last[:] = [entry]
        return True

    say("Spark reads the counted reports once more, to remember which reports each device has sent")
    job.count(store, keep_the_memory, stop, say)
    if last and not stop.is_set():
        ledger.adopt(store, last[0])


def _bring_back(folder: Path) -> list[Path]:
    """Move every gathered file back to the landing folder; return all of them."""
    for part in (COUNTED, _BEHIND):
        for file in gathered_files(folder / part):
            _move(file, folder / LANDED / str(day_of(file)))
    return gathered_files(folder / LANDED)


def _put_aside(folder: Path, files: list[Path]) -> None:
    for file in files:
        _move(file, folder / _BEHIND)


def _move(file: Path, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.replace(folder / file.name)

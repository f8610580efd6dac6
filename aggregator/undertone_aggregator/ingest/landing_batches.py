"""Records of which landed files Spark has counted: one for each of its batches, beside the files.

``batches/CHECKPOINT/NUMBER`` in the landing folder holds the names of a batch's files, one a line. A record is durable
before its batch is in the store. The store's ledger names the newest batch that the store holds. So the records of that
checkpoint up to that batch name every file that the store has counted; all other files wait.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from undertone_aggregator.base.files import write_private
from undertone_aggregator.ingest.landing import COUNTED, LANDED, gathered_files

_BATCHES = "batches"
_CLOCKS_SECONDS = 3600.0


def note_batch(folder: Path, checkpoint: str, number: int, names: Iterable[str]) -> None:
    """Record the names of a batch's files; durable on return."""
    place = folder / _BATCHES / checkpoint
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(place / str(number), "".join(f"{name}\n" for name in names))


def counted_names(folder: Path, checkpoint: str, newest: int, since: float = 0.0) -> set[str]:
    """Return the names of the files in the batches up to ``newest``.

    ``since``: read only records that were written at or after this Unix second.
    """
    names: set[str] = set()
    for record in _records(folder, checkpoint):
        # A record that was written before ``since`` cannot name the files that the caller looks for, so skip it.
        with contextlib.suppress(FileNotFoundError):
            if int(record.name) <= newest and record.stat().st_mtime >= since:
                names.update(record.read_text(encoding="utf-8").splitlines())
    return names


def waiting_files(folder: Path, checkpoint: str | None, newest: int) -> dict[Path, float]:
    """Return the merged files that no batch up to ``newest`` holds, as a map: file -> Unix second of its writing."""
    waiting: dict[Path, float] = {}
    for file in gathered_files(folder / LANDED):
        with contextlib.suppress(FileNotFoundError):
            waiting[file] = file.stat().st_mtime
    if checkpoint is None or not waiting:
        return waiting
    # A file is written before the record of its batch, so records older than all files can be skipped. A margin allows
    # for a different clock on the machine that writes the files.
    counted = counted_names(folder, checkpoint, newest, min(waiting.values()) - _CLOCKS_SECONDS)
    return {file: moment for file, moment in waiting.items() if file.name not in counted}


def forget_batches(folder: Path) -> None:
    """Remove the records whose files have all been removed."""
    names = {file.name for part in (LANDED, COUNTED) for file in gathered_files(folder / part)}
    for place in (folder / _BATCHES).glob("*"):
        for record in _records(folder, place.name):
            with contextlib.suppress(FileNotFoundError):
                if names.isdisjoint(record.read_text(encoding="utf-8").splitlines()):
                    record.unlink()


def _records(folder: Path, checkpoint: str) -> Iterator[Path]:
    for record in (folder / _BATCHES / checkpoint).glob("*"):
        if record.name.isdigit():
            yield record

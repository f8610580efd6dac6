"""Quarantine for landed files that cannot be read: they are set aside with a message, and counted once repaired."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from undertone_aggregator.ingest.landing import COLUMNS, LANDED, day_of, gathered_files

CORRUPT = "corrupt"


def damage_of(file: Path) -> str:
    """Return the damage of a landed file in a line; empty if every row can be read, or if the file is gone.

    Raises OSError for an error of the disk or the network.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except FileNotFoundError:
        return ""
    except (pa.ArrowException, OSError) as wrong:
        if isinstance(wrong, OSError) and wrong.errno is not None:
            # An OSError with a number is an error of the disk or the network, not of the file's content.
            raise
        return str(wrong).strip().partition("\n")[0]
    absent = [name for name in COLUMNS if name not in table.column_names]
    return f"it has no column {absent[0]}" if absent else ""


def quarantine(folder: Path, files: Iterable[Path]) -> list[str]:
    """Move damaged files to the folder ``corrupt``; return a sentence for each. Raises OSError."""
    sentences = []
    for file in files:
        wrong = damage_of(file)
        if wrong:
            aside = folder / CORRUPT / file.name
            aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.replace(aside)
            sentences.append(
                f"alarm: {file} is damaged and was moved to {aside}: {wrong}. Put a good copy at either path, and its"
                " reports are counted"
            )
    return sentences


def take_back(folder: Path) -> list[str]:
    """Land repaired files of ``corrupt`` again, under new names; return a sentence for each.

    A good copy that was put back in the file's old place also gets a new name, because Spark reads no name twice.
    """
    sentences = []
    for file in sorted((folder / CORRUPT).glob("*.parquet")):
        copies = [landed for landed in gathered_files(folder / LANDED) if landed.name == file.name]
        good = next((each for each in (*copies, file) if not damage_of(each)), None)
        if good is None:
            continue
        day = copies[0].parent if copies else folder / LANDED / str(day_of(file))
        day.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = day / f"mended{secrets.token_hex(4)}-{file.name}"
        good.replace(new)
        if good is not file:
            file.unlink()
        sentences.append(f"{file.name} is whole again and is counted as {new.name}")
    return sentences

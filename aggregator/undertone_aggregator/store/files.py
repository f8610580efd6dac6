"""Files that are replaced as a whole, and that only their owner may read."""

import contextlib
import os
import tempfile
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.store.disk_space import naming


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically; only its owner may read it (mode 0600). Raises OSError, naming it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with naming(path), os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        give_to_owner(Path(temporary), path if path.exists() else path.parent)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise

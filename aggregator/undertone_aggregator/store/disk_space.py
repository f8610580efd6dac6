"""Full disks: recognise the errors, name the file, and wait until there is space."""

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from undertone_aggregator.store.store import NoRoom

# Errors of a full disk, an exhausted quota, and a process's limit on file sizes.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 16.0

Result = TypeVar("Result")


def is_full(error: OSError) -> bool:
    """Return True if the error goes away once there is space."""
    return isinstance(error, NoRoom) or error.errno in _FULL


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError of a read or write; the system names only files that it could not open."""
    try:
        yield
    except OSError as wrong:
        if wrong.filename is None:
            wrong.filename = str(path)
        raise


def until_room(act: Callable[[], Result], say: Callable[[str], None], stop: threading.Event) -> Result | None:
    """Return ``act()``. While it fails for lack of space, log that and try again after 1 s, 2 s, ... 16 s.

    ``act`` must be safe to repeat after a failure. Returns None once ``stop`` is set. Raises every other error of
    ``act``.
    """
    pause = _FIRST_SECONDS
    while not stop.is_set():
        try:
            return act()
        except OSError as wrong:
            if not is_full(wrong):
                raise
            what = str(wrong) if wrong.filename is None else f"{wrong.filename}: {wrong.strerror}"
            say(f"alarm: no room: a file cannot be written, trying again: {what}")
        stop.wait(pause)
        pause = min(2 * pause, _MOST_SECONDS)
    return None

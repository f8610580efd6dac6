"""A disk without room: which errors say so, which file it was, and waiting until there is some."""

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from undertone_aggregator.store.store import NoRoom

# The disk, the quota, the largest file that a process may write.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 16.0

Result = TypeVar("Result")


def is_full(error: OSError) -> bool:
    """Whether it goes away once there is room."""
    return isinstance(error, NoRoom) or error.errno in _FULL


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a read or write names the file; the system's names only what it could not open."""
    try:
        yield
    except OSError as wrong:
        if wrong.filename is None:
            wrong.filename = str(path)
        raise


def until_room(act: Callable[[], Result], say: Callable[[str], None], stop: threading.Event) -> Result | None:
    """What ``act`` gives. While it fails for want of room this is said, and it is tried again after 1 s, 2 s, ... 16 s.

    ``act`` must leave nothing half done that it cannot begin again. None once ``stop`` is set. Raises all else that
    ``act`` raises.
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

"""A full disk: which errors mean it, and waiting until there is space again."""

import errno
import threading
from collections.abc import Callable
from typing import TypeVar

from undertone_aggregator.store.store import DiskFull

# Error numbers for: the disk is full, the quota is used up, the file is as large as this process may write.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 16.0

Result = TypeVar("Result")


def is_full(error: OSError) -> bool:
    """Return True if the error means a full disk, so that the same write succeeds once there is space."""
    return isinstance(error, DiskFull) or error.errno in _FULL


def retry_while_full(act: Callable[[], Result], say: Callable[[str], None], stop: threading.Event) -> Result | None:
    """Return what ``act`` returns; while the disk is full, log this with ``say`` and try again.

    The pauses are 1, 2, 4, 8 s, and then 16 s each. It must be possible to call ``act`` again after it failed. Returns
    None once ``stop`` is set. Raises every other error of ``act``.
    """
    pause = _FIRST_SECONDS
    while not stop.is_set():
        try:
            return act()
        except OSError as wrong:
            if not is_full(wrong):
                raise
            what = str(wrong) if wrong.filename is None else f"{wrong.filename}: {wrong.strerror}"
            say(f"alarm: a file cannot be written, trying again: {what}")
        stop.wait(pause)
        pause = min(2 * pause, _MOST_SECONDS)
    return None

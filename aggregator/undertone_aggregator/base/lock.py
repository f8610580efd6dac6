"""Locks on files, by which processes of one machine exclude each other.

A lock ends with its process, even if killed.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_shared.errors import Invalid

_RETRY_SECONDS = 0.05


@contextlib.contextmanager
def held(path: Path, like: Path, seconds: float, refusal: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on the file, exclusive or ``shared``; create the file if needed, with the owner of ``like``.

    Waits up to ``seconds`` for other holders. Raises Invalid with ``refusal`` if they keep the lock, OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_to_owner(path, like)
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Invalid(refusal) from None
                time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)

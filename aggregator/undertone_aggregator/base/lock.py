"""Locks on files. The system releases such a lock when the process that holds it ends, however it ends."""

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
def locked(path: Path, like: Path, seconds: float, refusal: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on the file ``path``, exclusive or ``shared``.

    A missing file is created, and given to the owner of the file or folder ``like``. Waits up to ``seconds`` for other
    holders of the lock. If others still hold it then, raises Invalid with the sentence ``refusal``. Raises OSError.
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


def held(path: Path) -> bool:
    """Return whether a process holds the lock on the file ``path`` exclusively. A missing file counts as not locked.

    A shared lock is not noticed. Raises OSError.
    """
    if not path.exists():
        return False
    try:
        with locked(path, path, 0.0, "held", shared=True):
            return False
    except Invalid:
        return True

"""Operations of the soak test on other processes. They have no effect on a process that has ended meanwhile."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path


def pause(pids: Sequence[int], seconds: float) -> None:
    """Stop the processes, and continue them ``seconds`` later."""
    for sign in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        time.sleep(seconds if sign is signal.SIGSTOP else 0.0)


def limit_files(pids: Iterable[int], limits: tuple[int, int]) -> None:
    """Set the soft and hard limits on the size of files that these processes write."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    pids = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += [int(word) for word in task.read_text(encoding="utf-8").split()]
    return pids


def command_of(pid: int) -> bytes:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""

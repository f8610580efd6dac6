"""What a soak does to processes of others and asks of them; one that has ended meanwhile is no error."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path


def pause(pids: Sequence[int], seconds: float) -> None:
    """STOP, and CONT so long after."""
    for sign in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        time.sleep(seconds if sign is signal.SIGSTOP else 0.0)


def limit_files(pids: Iterable[int], limits: tuple[int, int]) -> None:
    """How large their files may become from now on: soft and hard."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def children_of(pid: int) -> list[int]:
    """Process ids."""
    pids = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += [int(word) for word in task.read_text().split()]
    return pids


def command_of(pid: int) -> bytes:
    """What it was started as."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""

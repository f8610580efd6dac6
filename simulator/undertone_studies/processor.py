"""Processor time of other processes, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

from undertone_shared.errors import Invalid

_TICKS = os.sysconf("SC_CLK_TCK")


def check_proc() -> None:
    """Raises Invalid where there is no /proc."""
    if not Path("/proc/self/stat").exists():
        raise Invalid("processor time of other processes is read from /proc, which is not here")


def processor_seconds(pids: Iterable[int]) -> float:
    """Seconds of processor time that these processes have used."""
    return sum(_used(pid, 11, 13) for pid in pids)


def family_seconds(parent: int) -> float:
    """Of a process and all its children, those that have ended included."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return _used(parent, 11, 15) + sum(_used(int(child), 11, 15) for child in children)


def _used(pid: int, first: int, end: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        # It has ended, and its parent counts it.
        return 0.0
    return sum(map(int, fields[first:end])) / _TICKS

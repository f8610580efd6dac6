"""Processor time and memory of other processes, from /proc."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from undertone_shared.errors import Invalid

_TICKS = os.sysconf("SC_CLK_TCK")


def check_proc() -> None:
    """Check that /proc exists. Raises Invalid."""
    if not Path("/proc/self/stat").exists():
        raise Invalid("this benchmark reads processor time from /proc, which does not exist: run it on Linux")


def processor_seconds(pids: Iterable[int]) -> float:
    """Return the seconds of processor time that these processes have used."""
    return sum(map(_seconds, pids))


def family_seconds(parent: int) -> float:
    """Return the processor time of a process and all its children, including those that have ended."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split()
    return _used(parent, 11, 15) + sum(_used(int(child), 11, 15) for child in children)


def resident(pid: int) -> float:
    """Return the resident memory of a process in KB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return float(line.split()[1])


def _seconds(pid: int) -> float:
    try:
        # The number that Linux gives to a process's clock (clock_getcpuclockid).
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        # The process has ended.
        return 0.0


def _used(pid: int, first: int, end: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        # The process has ended. The operating system has added its processor time to that of its parent.
        return 0.0
    return sum(map(int, fields[first:end])) / _TICKS

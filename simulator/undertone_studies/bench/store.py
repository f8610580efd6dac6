"""Benchmark: every reader's processor time and memory, by the number of slots and groups in a store."""

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undertone_aggregator.campaign.results import open_public
from undertone_studies.large_store import NAME, SLOTS_OF_A_YEAR, write_large_store
from undertone_studies.processor import check_proc, processor_seconds
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration, rate

TITLE = "Readers of a large store"

_WEEK, _DAY, _HALF_HOUR = 336, 48, 1800
_WAIT_SECONDS = 600.0
# Name of a reader, its options of `undertone query`, and the largest number of seconds that it may take.
_QUERIES = (
    ("query --newest 3", ("--newest", "3"), 0.8),
    ("query --since 7d", ("--since", "7d"), None),
    ("query --since 7d --filtered", ("--since", "7d", "--filtered"), 1.0),
    ("query --since 7d --groups", ("--since", "7d", "--groups"), None),
    ("query --every 48", ("--every", "48"), None),
)
_FIRST, _AGAIN = 1.0, 0.1
# Runs a command of undertone, and writes its peak memory in kB at the end of stderr. (The kernel's figure for a child
# process would include the memory of its parent at the start.)
_MEASURED = """
import sys
from undertone.__main__ import main
code = main()
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
sys.stderr.write(f" {peak}")
sys.exit(code)
"""


def run(options: StudyOptions) -> list[Measured]:
    """Measure the readers of stores of a month and of a year, with one group and with fifty.

    The time is processor time; that of a command includes the start of the interpreter. In a row whose baseline is
    named "goal", the baseline's value is the goal, so a ratio below 1 misses it. Raises Invalid without /proc.
    """
    check_proc()
    sizes = [(4 * _WEEK, 3)] if options.quick else [(SLOTS_OF_A_YEAR, 1), (4 * _WEEK, 50), (SLOTS_OF_A_YEAR, 50)]
    rows = []
    for slots, groups in sizes:
        with tempfile.TemporaryDirectory(prefix="undertone-bench-") as folder:
            path = Path(folder) / "large.store"
            write_large_store(path, slots, groups)
            rows += measure(path, f"{slots} slots x {groups} groups", groups * slots)
    return rows


def measure(path: Path, what: str, cells: int) -> list[Measured]:
    """Measure the readers of one store. ``cells``: number of its slots times groups."""
    rows = []
    for name, arguments, most in _QUERIES:
        seconds, megabytes, _ = _run("query", str(path), *arguments)
        rows += _rows(f"{name}, {what}", seconds, megabytes, most)
    with tempfile.TemporaryDirectory(prefix="undertone-bench-") as folder:
        seconds, megabytes, output = _run("export", str(path), str(Path(folder) / "out"), "--json")
        written = json.loads(output)["rows"]
    rows += _rows(f"export, {what}", seconds, megabytes, None)
    rows.append(rate(f"export, {what}", written / seconds, "rows/s", "goal", 20_000.0, 1.0))
    return rows + _page(path, what)


def _rows(name: str, seconds: float, megabytes: float, most: float | None) -> list[Measured]:
    timed = Measured(name, seconds, "CPU s") if most is None else duration(name, seconds, "CPU s", "goal", most, 1.0)
    return [timed, duration(name, megabytes, "MB", "goal", 300.0, 1.0)]


def _run(*arguments: str) -> tuple[float, float, str]:
    """Run a command of undertone; return (its processor seconds, its peak memory in MB, its output)."""
    before = _seconds_of_children()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise RuntimeError(f"undertone {' '.join(arguments)} ended with code {done.returncode}: {done.stderr}")
    return _seconds_of_children() - before, int(done.stderr.split()[-1]) / 1024, done.stdout


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _page(path: Path, what: str) -> list[Measured]:
    rows = []
    with open_public(path) as results:
        week = (results.settled - _WEEK) * _HALF_HOUR
    with _served(path) as (pid, address):
        campaign = f"{address}/api/v1/campaigns/{NAME}"
        for name, url in (
            # The first answer of the page takes longest, because the page computes it.
            ("list of campaigns", f"{address}/api/v1/campaigns"),
            ("campaign", campaign),
            ("a week", f"{campaign}/estimates?from={week}"),
            ("a week, filtered", f"{campaign}/estimates?from={week}&filtered=true"),
            ("a week of a group", f"{campaign}/estimates?from={week}&group=group-00"),
            ("all slots", f"{campaign}/estimates"),
            ("all slots of a group", f"{campaign}/estimates?group=group-00"),
        ):
            for turn, most in (("first", _FIRST), ("again", _AGAIN)):
                before, began = processor_seconds([pid]), time.perf_counter()
                _get(url)
                wall, seconds = time.perf_counter() - began, processor_seconds([pid]) - before
                # A request of up to 10 ms counts with its wall time, a longer one with its processor time, at least
                # 10 ms.
                seconds = max(seconds, 0.01) if wall > 0.01 else wall
                rows.append(duration(f"page: {name}, {turn}, {what}", seconds, "CPU s", "goal", most, 1.0))
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    return [*rows, duration(f"page, {what}", peak, "MB", "goal", 300.0, 1.0)]


@contextlib.contextmanager
def _served(path: Path) -> Iterator[tuple[int, str]]:
    """Run `undertone web` on a store; yield (process, address of the page)."""
    command = [sys.executable, "-m", "undertone", "web", str(path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as child:
        assert child.stdout is not None
        try:
            yield child.pid, child.stdout.readline().strip().rpartition(" ")[2]
        finally:
            child.terminate()


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=_WAIT_SECONDS) as answer:
        return dict(json.load(answer))

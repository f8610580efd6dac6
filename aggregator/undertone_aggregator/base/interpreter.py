"""Sharing of the interpreter by a process's ingest threads: two run at a time, and garbage is collected rarely."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Batches that are judged and stored at the same time; with more, threads compete for the interpreter.
CONCURRENT_BATCHES = 2
# Seconds that a thread waits for a place before it runs without one: a thread whose store hangs keeps its place.
LONGEST_WAIT_SECONDS = 1.0
# Thresholds of Python's garbage collector: allocations before it looks at young objects, and such collections before it
# looks at older ones. Python's default of 700 allocations would search the thousands of deliveries of a batch again and
# again, although none of them is part of a cycle.
_THRESHOLDS = (50_000, 20, 50)


class ThreadLimit:
    """Lets ``most`` threads run at a time; it is no lock, for after ``seconds`` of waiting a thread runs anyway."""

    def __init__(self, most: int = CONCURRENT_BATCHES, seconds: float = LONGEST_WAIT_SECONDS) -> None:
        self._free = threading.Semaphore(most)
        self._seconds = seconds

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Wait until fewer than ``most`` threads run, and count this thread as running until the block ends."""
        acquired = self._free.acquire(timeout=self._seconds)
        try:
            yield
        finally:
            if acquired:
                self._free.release()


# The limit on this process's ingest threads.
INGEST_THREADS = ThreadLimit()


def collect_rarely() -> None:
    """Have Python's garbage collector run as rarely as suits ingest, in the whole process."""
    gc.set_threshold(*_THRESHOLDS)

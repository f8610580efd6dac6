"""Sharing of the interpreter by a process's ingest threads: one runs at a time, and garbage is collected rarely."""

import gc
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# How many ingest threads (which read connections, judge and store batches, or acknowledge them) run at the same time.
# If two of them compete for the interpreter, each system call of one wakes the other. That costs more than the work
# itself.
CONCURRENT_THREADS = 1
# A thread counts as running for at most this many seconds. Judging and storing a batch takes some milliseconds.
LONGEST_RUN_SECONDS = 0.05
# Thresholds for `gc.set_threshold`. With Python's default, the collector would run after 700 allocations (2,000 from
# Python 3.13 on) and search the thousands of deliveries of a batch again and again, although none of them is part of a
# cycle.
_THRESHOLDS = (50_000, 20, 50)


class ThreadLimit:
    """Lets ``most`` threads run at a time, in the order in which they came.

    A thread counts as running for at most ``seconds``. One that takes longer is assumed to be waiting for its store,
    which may hang or be locked, and so not to compete for the interpreter. ``clock`` gives monotonic seconds.
    """

    def __init__(
        self,
        most: int = CONCURRENT_THREADS,
        seconds: float = LONGEST_RUN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        # Identifier of each thread that counts -> the time from which it no longer counts.
        self._until: dict[int, float] = {}
        # The threads that wait, in order of arrival, each with a condition of its own: a wake-up wakes only one.
        self._line: deque[threading.Condition] = deque()

    @contextmanager
    def limited(self, *, first: bool = False) -> Iterator[None]:
        """Wait until fewer than ``most`` threads run, and count this thread as running until the block ends.

        ``first``: this thread goes before all threads that wait. A thread that counts as running already does not wait.
        """
        self.enter(first=first)
        try:
            yield
        finally:
            self.leave()

    def enter(self, *, first: bool = False) -> None:
        """Do what `limited` does at the start of its block. The caller calls `leave` at the end."""
        with self._lock:
            if self._until.get(threading.get_ident(), -math.inf) > self._clock():
                return
            turn = threading.Condition(self._lock)
            self._line.insert(0 if first else len(self._line), turn)
            try:
                while (seconds := self._wait(turn)) is None or seconds > 0:
                    turn.wait(seconds)
                self._until[threading.get_ident()] = self._clock() + self._seconds
            finally:
                self._line.remove(turn)
                self._wake()

    def leave(self) -> None:
        """Stop counting this thread as running: it has ended its work, or only waits for its disk or database."""
        with self._lock:
            if self._until.pop(threading.get_ident(), None) is not None:
                self._wake()

    @property
    def waiting(self) -> int:
        """Number of threads that wait."""
        return len(self._line)

    def _wake(self) -> None:
        if self._line:
            self._line[0].notify()

    def _wait(self, turn: threading.Condition) -> float | None:
        """Return the seconds until fewer than ``most`` threads count as running, if none of them ends earlier.

        Return None if another thread stands before this one in the line: that thread will wake this one.
        """
        if self._line[0] is not turn:
            return None
        now = self._clock()
        running = sorted(until for until in self._until.values() if until > now)
        return running[len(running) - self._most] - now if len(running) >= self._most else 0.0


# The limit on this process's ingest threads.
INGEST_THREADS = ThreadLimit()


def collect_rarely() -> None:
    """Have Python's garbage collector run as rarely as suits ingest, in the whole process."""
    gc.set_threshold(*_THRESHOLDS)

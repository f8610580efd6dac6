"""Sharing of the interpreter by a process's ingest threads: two run at a time, and garbage is collected rarely."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Batches that are judged and stored at the same time; with more, threads compete for the interpreter.
CONCURRENT_BATCHES = 2
# Seconds after which a thread no longer counts. Judging and storing a batch takes some milliseconds.
LONGEST_RUN_SECONDS = 0.05
# Thresholds of Python's garbage collector: allocations before it looks at young objects, and such collections before it
# looks at older ones. Python's default of 700 allocations would search the thousands of deliveries of a batch again and
# again, although none of them is part of a cycle.
_THRESHOLDS = (50_000, 20, 50)


class ThreadLimit:
    """Lets ``most`` threads run at a time. A thread stops counting ``seconds`` after it began.

    A thread that takes longer waits for its store, which may hang or be locked, and so does not compete for the
    interpreter. ``clock`` gives monotonic seconds.
    """

    def __init__(
        self,
        most: int = CONCURRENT_BATCHES,
        seconds: float = LONGEST_RUN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._changed = threading.Condition()
        # Identifier of each thread that counts -> the time from which it no longer counts.
        self._until: dict[int, float] = {}

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Wait until fewer than ``most`` threads run, and count this thread as running until the block ends."""
        with self._changed:
            while (seconds := self._wait()) > 0:
                self._changed.wait(seconds)
            self._until[threading.get_ident()] = self._clock() + self._seconds
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Stop counting this thread, if it counts: from now on it only waits for its disk or its database."""
        with self._changed:
            if self._until.pop(threading.get_ident(), None) is not None:
                self._changed.notify()

    def _wait(self) -> float:
        """Return the seconds until fewer than ``most`` threads count, if none of them ends before."""
        now = self._clock()
        running = sorted(until for until in self._until.values() if until > now)
        return running[len(running) - self._most] - now if len(running) >= self._most else 0.0


# The limit on this process's ingest threads.
INGEST_THREADS = ThreadLimit()


def collect_rarely() -> None:
    """Have Python's garbage collector run as rarely as suits ingest, in the whole process."""
    gc.set_threshold(*_THRESHOLDS)

"""Settings that let a process's ingest threads share one interpreter: few run at a time, and garbage collection is
rare.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Number of batches judged and stored at a time; with more, the threads compete for the interpreter and all are slower.
ABREAST = 2
# A campaign whose store hangs keeps its turn; another campaign waits for a turn at most this many seconds.
PATIENCE_SECONDS = 1.0
# Thresholds of the garbage collector. With Python's default of 700 it would scan the thousands of deliveries that wait
# in a batch again and again, although none of them is ever part of a cycle.
_THRESHOLDS = (50_000, 20, 50)


class Turns:
    """Limits the number of busy threads to ``abreast``. It is no lock: a thread waits at most ``patience`` seconds."""

    def __init__(self, abreast: int = ABREAST, patience: float = PATIENCE_SECONDS) -> None:
        self._free = threading.Semaphore(abreast)
        self._patience = patience

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a free turn, and give it back afterwards."""
        mine = self._free.acquire(timeout=self._patience)
        try:
            yield
        finally:
            if mine:
                self._free.release()


# The ingest threads of this process run in turns, which this object assigns.
TURNS = Turns()


def collect_rarely() -> None:
    """Make this process collect garbage rarely, as suits ingest."""
    gc.set_threshold(*_THRESHOLDS)

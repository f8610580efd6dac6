"""How the ingest threads of a process share its interpreter: few at a time, and garbage is looked for rarely."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Batches judged and stored at a time: more threads fight over the interpreter, and all are slower.
ABREAST = 2
# A campaign whose store hangs keeps its turn; the others wait for it so long at most, each time.
PATIENCE_SECONDS = 1.0
# New objects before young garbage is looked for, and such looks before older garbage is. Python's 700 goes through
# the thousands of deliveries that wait in a batch again and again; none of them is ever in a cycle.
_THRESHOLDS = (50_000, 20, 50)


class Turns:
    """A courtesy, no lock: it keeps ``abreast`` threads busy, and nobody waits longer than ``patience`` seconds."""

    def __init__(self, abreast: int = ABREAST, patience: float = PATIENCE_SECONDS) -> None:
        self._free = threading.Semaphore(abreast)
        self._patience = patience

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one of the turns, and give it back afterwards."""
        mine = self._free.acquire(timeout=self._patience)
        try:
            yield
        finally:
            if mine:
                self._free.release()


# The turns of this process.
TURNS = Turns()


def collect_rarely() -> None:
    """From now on this process looks for garbage as suits ingest."""
    gc.set_threshold(*_THRESHOLDS)

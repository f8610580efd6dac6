"""Run times of commits and of choices of θ, and failures of the fast path, in this process, by campaign."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Spent:
    """Number of measurements, their sum in seconds, and the last measurement."""

    times: int = 0
    seconds: float = 0.0
    last: float = 0.0


class Stopwatch:
    """Measurements by campaign. Only one thread at a time may measure for a campaign; any thread may read."""

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}

    def of(self, campaign: str) -> Spent:
        """Return the run times measured for a campaign."""
        return self._spent.setdefault(campaign, Spent())

    @contextmanager
    def timed(self, campaign: str) -> Iterator[None]:
        """Measure the time that the block takes, also when it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = self.of(campaign)
            spent.last = time.perf_counter() - began
            spent.times += 1
            spent.seconds += spent.last


# COMMITS measures the transactions of this process's ingest threads. CHOICES measures the choices of θ, including the
# time to design the mechanism.
COMMITS, CHOICES = Stopwatch(), Stopwatch()
# Number of batches, by campaign, on which the fast path (`ingest/fast_path.py`) of this process failed.
FAILURES: Counter[str] = Counter()

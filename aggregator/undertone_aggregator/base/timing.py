"""How long things took in this process, by campaign: for metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Spent:
    """How often, how many seconds in all, and the last time."""

    times: int = 0
    seconds: float = 0.0
    last: float = 0.0


class Stopwatch:
    """One thread at a time measures for a campaign; anybody reads."""

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}

    def of(self, campaign: str) -> Spent:
        """What was measured for it."""
        return self._spent.setdefault(campaign, Spent())

    @contextmanager
    def timed(self, campaign: str) -> Iterator[None]:
        """Measure what happens within, also when it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = self.of(campaign)
            spent.last = time.perf_counter() - began
            spent.times += 1
            spent.seconds += spent.last


# Transactions of the ingest threads of this process; choices of theta, with the mechanisms designed for it.
COMMITS, CHOICES = Stopwatch(), Stopwatch()

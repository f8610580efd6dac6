"""The queue between the connections' thread, which puts, and the committing thread, which takes."""

import threading
import time
from collections import deque

from undertone_aggregator.collect.intake import Delivery


class Queue:
    """Batches of at most ``batch`` deliveries, or of what came within ``batch_seconds`` after the first one."""

    def __init__(self, batch: int, batch_seconds: float) -> None:
        self._batch = batch
        self._batch_seconds = batch_seconds
        # What nobody has taken; its length is asked for with each report.
        self.waiting: deque[Delivery] = deque()
        self._first = threading.Event()
        self._full = threading.Event()
        # When the oldest waiting delivery came, and the oldest one taken; 0 for none.
        self._queued_at = self._taken_at = 0.0
        self._taken = 0

    @property
    def uncommitted(self) -> int:
        """Deliveries that wait, and those that were taken and are not done."""
        return len(self.waiting) + self._taken

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of them has been here."""
        since = self._taken_at or self._queued_at
        return time.monotonic() - since if since and self.uncommitted else 0.0

    def put(self, delivery: Delivery) -> None:
        """Add one at the end."""
        self.waiting.append(delivery)
        if not self._first.is_set():
            self._queued_at = time.monotonic()
            self._first.set()
        if len(self.waiting) >= self._batch:
            self._full.set()

    def take(self, seconds: float) -> list[Delivery]:
        """The next batch, waiting up to ``seconds`` for its first delivery."""
        if not self._first.wait(seconds):
            return []
        self._full.wait(max(0.0, self._queued_at + self._batch_seconds - time.monotonic()))
        # Cleared before the queue is looked at: what comes from here on is seen below, or sets them again.
        self._first.clear()
        self._full.clear()
        came, self._queued_at = self._queued_at, time.monotonic()
        waiting = self.waiting
        taken = [waiting.popleft() for _ in range(min(len(waiting), self._batch))]
        if waiting:
            self._first.set()
        if len(waiting) >= self._batch:
            self._full.set()
        self._taken = len(taken)
        self._taken_at = came if taken else 0.0
        return taken

    def done(self, number: int) -> None:
        """So many of those taken are committed."""
        self._taken -= number
        if not self._taken:
            self._taken_at = 0.0

"""What devices have sent and nobody has committed."""

import time
from collections import deque

from undertone_aggregator.ingest.intake import Delivery


class Queue:
    """In the order of arrival. ``since``: when the oldest delivery of those that nobody has taken came."""

    def __init__(self) -> None:
        # Its length is asked for with each report.
        self.waiting: deque[Delivery] = deque()
        self.since = 0.0
        # When the oldest of those taken came, and how many these are.
        self._taken_at = 0.0
        self._taken = 0

    @property
    def uncommitted(self) -> int:
        """Deliveries that wait, and those that were taken and are not done."""
        return len(self.waiting) + self._taken

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of them has been here."""
        if not self.uncommitted:
            return 0.0
        return time.monotonic() - (self._taken_at if self._taken else self.since)

    def put(self, delivery: Delivery) -> None:
        """Add one at the end."""
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting.append(delivery)

    def take(self, most: int) -> list[Delivery]:
        """The oldest of them, ``most`` at most."""
        waiting = self.waiting
        if len(waiting) <= most:
            taken = list(waiting)
            waiting.clear()
        else:
            taken = [waiting.popleft() for _ in range(most)]
        if taken:
            self._taken_at, self.since = self.since, time.monotonic()
        self._taken += len(taken)
        return taken

    def done(self, number: int) -> None:
        """So many of those taken are committed."""
        self._taken -= number

"""One campaign's reports that devices have sent and the campaign has not committed."""

import threading
import time
from collections import deque

from undertone_aggregator.ingest.intake import Delivery


class Queue:
    """Reports in the order of arrival. One thread at a time puts, another one takes; neither waits for a lock.

    ``since``: when the oldest report that nobody has taken came.
    """

    def __init__(self, campaign: str) -> None:
        self.campaign = campaign
        self.waiting: deque[Delivery] = deque()
        self.since = 0.0
        self._arrived = threading.Event()
        # What was taken and is not committed, and when the oldest of it came.
        self._taken: deque[Delivery] = deque()
        self._taken_since = 0.0

    @property
    def uncommitted(self) -> int:
        """How many reports wait, or were taken and are not committed."""
        return len(self.waiting) + len(self._taken)

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of them has been here."""
        if not self.uncommitted:
            return 0.0
        return time.monotonic() - (self._taken_since if self._taken else self.since)

    def put(self, delivery: Delivery) -> None:
        """Add a report at the end."""
        self.waiting.append(delivery)
        # Asked after the report is in: the taker may have been at it.
        if len(self.waiting) == 1:
            self.since = time.monotonic()
            self._arrived.set()

    def wait(self, seconds: float) -> None:
        """Return once a report waits, or after so many seconds."""
        self._arrived.clear()
        if not self.waiting:
            self._arrived.wait(seconds)

    def take(self, most: int) -> list[Delivery]:
        """Return the oldest reports, ``most`` at most."""
        waiting = self.waiting
        taken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        if taken:
            if not self._taken:
                self._taken_since = self.since
            self._taken += taken
            self.since = time.monotonic()
        return taken

    def done(self, number: int) -> None:
        """Note that the oldest ``number`` reports of those taken are committed."""
        taken = self._taken
        for _ in range(number):
            taken.popleft()

    def put_back(self) -> None:
        """Put what was taken and not committed back to the front, for whoever takes next."""
        if self._taken:
            self.waiting.extendleft(reversed(self._taken))
            self._taken.clear()
            self.since = self._taken_since

"""Queue of the reports that devices have sent to one campaign and that the campaign has not committed."""

import threading
import time
from collections import deque
from collections.abc import Sequence

from undertone_aggregator.ingest.intake import Delivery


class Queue:
    """Reports in order of arrival. One thread at a time puts, another takes them; neither waits for a lock.

    ``newest``: time of arrival of the newest report, in seconds of a monotonic clock. ``since``: time from which the
    reports in ``waiting`` have waited: the arrival of the first, or the last call of ``take`` if reports remained.
    ``due``: an event that is set when a batch should be taken; the thread that takes it clears the event.
    """

    def __init__(self, campaign: str) -> None:
        self.campaign = campaign
        self.waiting: deque[Delivery] = deque()
        self.since = 0.0
        self.newest = 0.0
        self.due = threading.Event()
        # Reports that a campaign has taken and not yet committed, and the value of `since` for the first of them.
        self._taken: deque[Delivery] = deque()
        self._taken_since = 0.0

    @property
    def uncommitted(self) -> int:
        """Number of reports that are not committed: they wait, or were taken."""
        return len(self.waiting) + len(self._taken)

    @property
    def oldest_seconds(self) -> float:
        """Seconds for which the oldest uncommitted report has waited, by ``since``; 0 without such a report."""
        if not self.uncommitted:
            return 0.0
        return time.monotonic() - (self._taken_since if self._taken else self.since)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Append reports."""
        # The time is set first. So whoever sees a report, the campaign's thread or a reader of the metrics, sees its
        # time as well.
        self.newest = time.monotonic()
        if not self.waiting:
            self.since = self.newest
        self.waiting.extend(deliveries)

    def take(self, most: int) -> list[Delivery]:
        """Remove and return the oldest reports, at most ``most``."""
        waiting = self.waiting
        taken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        if taken:
            if not self._taken:
                self._taken_since = self.since
            self._taken += taken
            self.since = time.monotonic()
        return taken

    def done(self, number: int) -> None:
        """Note that the oldest ``number`` of the taken reports are committed."""
        taken = self._taken
        for _ in range(number):
            taken.popleft()

    def put_back(self) -> None:
        """Put reports that were taken and not committed back to the front, for the next taker."""
        if self._taken:
            self.waiting.extendleft(reversed(self._taken))
            self._taken.clear()
            self.since = self._taken_since

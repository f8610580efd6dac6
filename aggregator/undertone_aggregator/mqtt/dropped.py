"""The count of messages that the broker dropped, such as when a queue was full."""

import json
from dataclasses import dataclass

# Name under which the store keeps the count of dropped messages.
DROPPED = "broker_dropped"


@dataclass
class Dropped:
    """Count of the messages that the broker dropped.

    ``last``: the broker's own counter, which begins anew when the broker restarts. ``total``: the count over all
    restarts.
    """

    last: int = 0
    total: int = 0

    def more(self, now: int | None) -> int:
        """Return how many messages were dropped since the last call, or since a later restart of the broker.

        ``now``: the broker's own counter. None if it is unknown; the result is then 0.
        """
        if now is None:
            return 0
        more = now - self.last if now >= self.last else now
        self.last, self.total = now, self.total + more
        return more

    def to_json(self) -> str:
        """Return the counts as text for the store."""
        return json.dumps([self.last, self.total])

    @staticmethod
    def from_json(text: str | None) -> "Dropped":
        """Return the counts that ``to_json`` wrote; zeros for None."""
        return Dropped(*json.loads(text)) if text else Dropped()

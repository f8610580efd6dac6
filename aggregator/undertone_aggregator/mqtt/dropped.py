"""Messages that the broker says it threw away, as when a queue is full."""

import json
from dataclasses import dataclass

# The store's fact.
DROPPED = "broker_dropped"


@dataclass
class Dropped:
    """Messages that the broker threw away: its counter starts again with it, ``total`` goes on."""

    last: int = 0
    total: int = 0

    def more(self, now: int | None) -> int:
        """How many were dropped since the last time; of those before a restart the broker remembers nothing."""
        if now is None:
            return 0
        more = now - self.last if now >= self.last else now
        self.last, self.total = now, self.total + more
        return more

    def to_json(self) -> str:
        """For the store."""
        return json.dumps([self.last, self.total])

    @staticmethod
    def from_json(text: str | None) -> "Dropped":
        """What ``to_json`` wrote, or the beginning."""
        return Dropped(*json.loads(text)) if text else Dropped()

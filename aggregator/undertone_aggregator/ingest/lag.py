"""The delay of Spark's counting: the server that lands reports for Spark needs it to settle slots and to raise
alarms.
"""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from undertone_aggregator.ingest.ledger import Backlog, backlog
from undertone_aggregator.settings.landing_plan import SPARK, LandingPlan
from undertone_aggregator.store.store import Store

# Seconds between two reads of the folder.
_LOOK_SECONDS = 5.0


@dataclass
class Lag:
    """Delay of one campaign. ``plan``: how its deliveries are landed, None if they are not."""

    plan: LandingPlan | None
    _backlog: Backlog = field(default_factory=lambda: Backlog(0, None))
    _looked: float = field(default=-math.inf)

    @property
    def counts_elsewhere(self) -> bool:
        """True if an engine counts the reports, and not the server."""
        return self.plan is not None and self.plan.counts == SPARK

    def backlog(self, store: Store) -> Backlog:
        """Return the files that wait for Spark; none if the server counts."""
        if self.plan is not None and self.counts_elsewhere and time.monotonic() > self._looked + _LOOK_SECONDS:
            self._backlog = backlog(store, Path(self.plan.folder))
            self._looked = time.monotonic()
        return self._backlog

    def counted_until(self, store: Store, now: int) -> int:
        """Return the Unix second up to which every report is in the store: ``now`` if the server counts.

        A file contains reports from up to ``plan.seconds`` before it was written, and a new report waits as long.
        """
        if self.plan is None or not self.counts_elsewhere:
            return now
        oldest = self.backlog(store).oldest
        return math.floor(min(now, math.inf if oldest is None else oldest) - self.plan.seconds)

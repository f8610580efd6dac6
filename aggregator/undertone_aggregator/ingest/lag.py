"""How far Spark is behind in counting a server's files: slots settle that much later, and a long delay is an alarm."""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from undertone_aggregator.ingest.ledger import Backlog, backlog
from undertone_aggregator.settings.landing_plan import SPARK, LandingPlan
from undertone_aggregator.store.store import CampaignEntries

# Seconds between two reads of the list of files that wait for Spark.
_LOOK_SECONDS = 5.0


@dataclass
class Lag:
    """Watches landed files that wait for Spark.

    ``plan``: how deliveries are written to files; None: no files are written.
    """

    plan: LandingPlan | None
    _backlog: Backlog = field(default_factory=lambda: Backlog(0, None))
    _looked: float = field(default=-math.inf)

    @property
    def counts_elsewhere(self) -> bool:
        """True if Spark counts the reports instead of the server."""
        return self.plan is not None and self.plan.counts == SPARK

    def backlog(self, store: CampaignEntries) -> Backlog:
        """Return the files that wait for Spark; none if the server counts."""
        if self.plan is not None and self.counts_elsewhere and time.monotonic() > self._looked + _LOOK_SECONDS:
            self._backlog = backlog(store, Path(self.plan.folder))
            self._looked = time.monotonic()
        return self._backlog

    def counted_until(self, store: CampaignEntries, now: int) -> int:
        """Return the Unix second up to which the store holds all reports that arrived; ``now`` if the server counts.

        A file holds reports that arrived up to ``plan.seconds`` before it was written. Reports that arrive now may wait
        equally long for their file.
        """
        if self.plan is None or not self.counts_elsewhere:
            return now
        oldest = self.backlog(store).oldest
        return math.floor(min(now, math.inf if oldest is None else oldest) - self.plan.seconds)

"""`undertone worker`: a process that joins the workers of a campaign. It needs the store's URL and a password."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.ingest.ingest import Failpoint, IngestPlan, Say, no_failpoint
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.ingest.shared_plan import read_brokers
from undertone_aggregator.ingest.shared_workers import WorkerContext, work_on_partitions
from undertone_aggregator.mqtt.addresses import addresses_from_json
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_aggregator.store.store import open_store
from undertone_aggregator.store.store_address import shared_examples, store_address
from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS


@dataclass(frozen=True)
class SharedWorkerOptions:
    """The command's options. ``shards``: largest number of partitions to take, None for a fair share."""

    store: str
    campaign: str | None
    password_file: Path
    ca_file: Path | None = None
    shards: int | None = None

    def run(
        self,
        stop: threading.Event,
        say: Say,
        *,
        clock: Callable[[], float] = time.time,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        """Run until ``stop`` is set; then commit and acknowledge everything that was read. Raises Invalid."""
        if not store_address(self.store).shared:
            raise Invalid(f"--store is {self.store}, expected {shared_examples()}")
        most = SHARDS if self.shards is None else self.shards
        context = WorkerContext(self.store, cells_of, self._open_intake, say, clock, failpoint, most)

        def note(ready: bool) -> None:
            if ready:
                say("every partition has its session at the broker: from now on the broker keeps the reports")

        work_on_partitions(self.campaign or "", context, stop, note)

    def _open_intake(self, plan: IngestPlan, say: Say) -> Intake:
        with open_store(self.store, campaign=plan.campaign, read_only=True) as store:
            brokers = read_brokers(store)
        return open_intake(addresses_from_json(brokers, self.password_file, self.ca_file), plan, say)

"""Ingest workers: one is a thread of the server, several are processes on disjoint shards of one store."""

import threading
from collections.abc import Callable
from pathlib import Path

from undertone_aggregator.ingest import Ingest, IngestPlan
from undertone_aggregator.link import Address
from undertone_aggregator.store import Store


class ThreadWorker:
    """The lone worker, in a thread with its own connection to the store.

    ``ready`` is set once the broker keeps reports for it. ``failure`` is what ended it, if anything did.
    """

    def __init__(
        self,
        plan: IngestPlan,
        store: Path,
        address: Address,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
        failpoint: Callable[[str], None],
    ) -> None:
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self._stop = threading.Event()

        def work() -> None:
            try:
                with Store(store) as own:
                    ingest = Ingest(plan, own, address, say=say, clock=clock, failpoint=failpoint)
                    ingest.run(self._stop, self.ready)
            except BaseException as failure:
                self.failure = failure

        self._thread = threading.Thread(target=work, name="ingest", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what ended the worker, if anything did."""
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Let it commit and acknowledge what it has read, then end it."""
        self._stop.set()
        self._thread.join()

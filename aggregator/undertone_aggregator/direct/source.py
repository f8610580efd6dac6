"""The endpoint as the server's source of reports, and the way of its campaign to the devices."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from undertone_aggregator.collect.ingest import IngestPlan, Say
from undertone_aggregator.collect.intake import Intake
from undertone_aggregator.collect.sessions import take_over_direct
from undertone_aggregator.collect.store import Store
from undertone_aggregator.direct.endpoint import Endpoint
from undertone_aggregator.direct.gate import Gate
from undertone_aggregator.direct.limits import Limits
from undertone_aggregator.direct.listener import Listener


class Board:
    """In the place of a broker's outlet: the campaign goes to the devices, estimates to nobody."""

    dropped: int | None = None
    settled = True
    heard: dict[str, bytes]

    def __init__(self, endpoint: Endpoint) -> None:
        self.publish = endpoint.publish
        self.heard = {}

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """None: nobody else publishes here."""
        return None

    def start(self) -> None:
        """Nothing: the endpoint runs."""

    def stop(self) -> None:
        """Nothing: the endpoint ends later."""


class DirectSource:
    """``endpoint`` runs as long as its context; it listens from the first intake on. Raises Invalid or OSError."""

    outlives = False

    def __init__(
        self, listener: Listener, gate: Gate, limits: Limits, prefix: str, campaign: str, batch: int, say: Say
    ) -> None:
        self.files = gate.files
        self.endpoint = Endpoint(listener, gate, limits, prefix, campaign, batch=batch, say=say)

    def open_intake(self, plan: IngestPlan, say: Say) -> Intake:
        """The endpoint itself: there is one worker."""
        self.endpoint.listen()
        return self.endpoint

    def take_over(
        self,
        store: Store,
        plan: IngestPlan,
        say: Say,
        clock: Callable[[], float],
        stop: threading.Event,
        taken: Collection[int] = (),
    ) -> IngestPlan:
        """The store is this worker's alone."""
        return take_over_direct(store, plan, say)

    def outlet(self, prefix: str, say: Say) -> Board:
        """The devices that subscribed."""
        return Board(self.endpoint)

    def reload(self) -> None:
        """Passwords, certificate and key."""
        self.endpoint.reload()

    def facts(self) -> Mapping[str, Any]:
        """The endpoint's counters."""
        return self.endpoint.facts()

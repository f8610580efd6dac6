"""The endpoint as the server's source of reports, and as the outlet that sends campaigns to the devices."""

import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from undertone_aggregator.base.room import Room
from undertone_aggregator.ingest.ingest import IngestPlan, Say
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.filters import campaign_of
from undertone_aggregator.mqtt.link import Address, Outlet, always
from undertone_aggregator.mqtt.sessions import take_over_direct
from undertone_aggregator.store.store import Store


class EndpointOutlet:
    """Outlet of mode direct. Sends campaigns to the endpoint's devices, and estimates to its readers.

    ``outlet``: a broker that gets the estimates as well; None: no broker.
    """

    dropped: int | None = None
    stored: int | None = None
    settled = connected = True
    heard: dict[str, bytes]

    def __init__(self, endpoint: Endpoint, prefix: str, outlet: Outlet | None = None) -> None:
        self.heard = {}
        self._endpoint = endpoint
        self._prefix = prefix
        self._outlet = outlet

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish at the endpoint and, except for campaigns, also at the broker."""
        self._endpoint.publish(topic, payload)
        if self._outlet is not None and campaign_of(self._prefix, topic) is None:
            self._outlet.publish(topic, payload, again=again, permitted=permitted)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """Return None: nobody else publishes campaigns here."""
        return None

    def start(self) -> None:
        """Connect to the broker that gets the estimates, in the background; the endpoint already runs."""
        if self._outlet is not None:
            self._outlet.start()

    def stop(self) -> None:
        """Disconnect from the broker that gets the estimates; the endpoint ends later."""
        if self._outlet is not None:
            self._outlet.stop()


class DirectSource:
    """The source of mode direct.

    Its ``endpoint`` is a context manager: it runs until that context ends, and listens once the first intake is opened.

    ``room``: how many devices may be connected. ``outlet``: address of the broker for estimates. ``starved``: see
    `Endpoint`. Raises Invalid or OSError.
    """

    outlives = False

    def __init__(
        self,
        listener: Listener,
        gate: Gate,
        prefix: str,
        batch: int,
        say: Say,
        room: Room,
        outlet: Address | None = None,
        starved: Callable[[], None] = lambda: None,
    ) -> None:
        self.files = (*gate.files, *(path for path in (listener.certificate, listener.key) if path is not None))
        self.room = room
        self._outlet = outlet
        limits = Limits(room.connections)
        self.endpoint = Endpoint(listener, gate, limits, prefix, batch=batch, say=say, starved=starved)

    def serve(self, campaigns: Collection[str]) -> None:
        """Queue reports for these campaigns, even while one of them fails. Reports for others are not acknowledged."""
        self.endpoint.serve(campaigns)

    def open_intake(self, plan: IngestPlan, say: Say) -> Intake:
        """Return the intake from which the campaign's only worker takes its reports."""
        self.endpoint.listen()
        return self.endpoint.open(plan.campaign, plan.slot_seconds)

    def take_over(
        self,
        store: Store,
        plan: IngestPlan,
        say: Say,
        clock: Callable[[], float],
        stop: threading.Event,
        taken: Collection[int] = (),
    ) -> IngestPlan:
        """Return the plan of the only worker. The store is locked meanwhile."""
        return take_over_direct(store, plan, say)

    def outlet(self, prefix: str, say: Say) -> EndpointOutlet:
        """Return the outlet: it sends campaigns and estimates to the endpoint's subscribers.

        It sends the estimates also to the broker of [outlet], if there is one.
        """
        if self._outlet is None:
            return EndpointOutlet(self.endpoint, prefix)
        outlet = Outlet(self._outlet, f"undertone-{secrets.token_hex(16)}-outlet", say)
        return EndpointOutlet(self.endpoint, prefix, outlet)

    def reload(self) -> None:
        """Read passwords, access rules, certificate and key again."""
        self.endpoint.reload()

    def facts(self) -> Mapping[str, Any]:
        """Return the endpoint's counters, and its ``room``."""
        return {**self.endpoint.facts(), "room": self.room}

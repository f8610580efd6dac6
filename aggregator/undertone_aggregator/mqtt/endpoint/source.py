"""The endpoint as the server's source of reports, and the way of its campaigns to the devices."""

import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

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
    """The way out: campaigns go to the endpoint's devices, estimates to the broker of ``outlet`` or to nobody."""

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
        """The campaign reaches no broker, and estimates no device."""
        if campaign_of(self._prefix, topic) is not None:
            self._endpoint.publish(topic, payload)
        elif self._outlet is not None:
            self._outlet.publish(topic, payload, again=again, permitted=permitted)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """None: nobody else publishes here."""
        return None

    def start(self) -> None:
        """The endpoint runs; the outlet connects in the background, again and again."""
        if self._outlet is not None:
            self._outlet.start()

    def stop(self) -> None:
        """Disconnect the outlet; the endpoint ends later."""
        if self._outlet is not None:
            self._outlet.stop()


class DirectSource:
    """``endpoint`` runs as long as its context; it listens from the first intake on. Raises Invalid or OSError.

    ``outlet``: the broker for estimates.
    """

    outlives = False

    def __init__(
        self,
        listener: Listener,
        gate: Gate,
        prefix: str,
        batch: int,
        say: Say,
        outlet: Address | None = None,
    ) -> None:
        self.files = gate.files
        self._outlet = outlet
        self.endpoint = Endpoint(listener, gate, Limits(), prefix, batch=batch, say=say)

    def serve(self, campaigns: Collection[str]) -> None:
        """Keep reports for these campaigns, also while one of them fails, and acknowledge no others'."""
        self.endpoint.serve(campaigns)

    def open_intake(self, plan: IngestPlan, say: Say) -> Intake:
        """What the campaign's one worker takes its reports from."""
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
        """The store is this worker's alone."""
        return take_over_direct(store, plan, say)

    def outlet(self, prefix: str, say: Say) -> EndpointOutlet:
        """The devices that subscribed; for estimates the broker of [outlet], if there is one."""
        if self._outlet is None:
            return EndpointOutlet(self.endpoint, prefix)
        outlet = Outlet(self._outlet, f"undertone-{secrets.token_hex(16)}-outlet", say)
        return EndpointOutlet(self.endpoint, prefix, outlet)

    def reload(self) -> None:
        """Passwords, access rules, certificate and key."""
        self.endpoint.reload()

    def facts(self) -> Mapping[str, Any]:
        """The endpoint's counters."""
        return self.endpoint.facts()

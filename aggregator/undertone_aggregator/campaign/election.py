"""Election of a campaign's coordinator: only the server that holds the lease issues epochs and publishes."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from undertone_aggregator.base.background import Background
from undertone_aggregator.ingest.shared_workers import RENEW_AFTER
from undertone_aggregator.mqtt.link import always
from undertone_aggregator.mqtt.source import Outgoing
from undertone_aggregator.store.leases import COORDINATOR, Fenced, Lease, Leases
from undertone_aggregator.store.store import StoreError, open_store

# A coordinator that shows no activity for this many seconds is taken to hang, and its lease is not renewed. Choosing a
# threshold takes minutes at most.
_LONGEST_SECONDS = 300.0


class Election(Protocol):
    """The election of a campaign's coordinator, as the thread that runs the coordinator uses it."""

    def lease(self) -> Lease | None:
        """Return this server's lease, or None while another server has it.

        The lease is renewed only while there are such calls, because they show that the calling thread works.
        """

    def held(self) -> bool:
        """Return True if the lease is certainly this server's now, by its own clock, without asking the database."""

    def close(self) -> None:
        """Release this server's lease."""


class Unopposed:
    """Election for the only server of a store."""

    def lease(self) -> Lease:
        return Lease(COORDINATOR, 0, 0.0)

    def held(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Candidate:
    """Election among several servers: a thread takes the lease when it is free, and renews it in time."""

    def __init__(self, url: str, campaign: str, seconds: float, say: Callable[[str], None]) -> None:
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._url, self._campaign, self._seconds, self._say = url, campaign, seconds, say
        # The lease of this process, and the monotonic time before which it cannot expire. None: this process has no
        # lease.
        self._hold: tuple[Lease, float] | None = None
        self._asked = time.monotonic()
        self._thread = Background("election", lambda stop, _: self._stand(stop))

    def lease(self) -> Lease | None:
        self._asked = time.monotonic()
        self._thread.check()
        hold = self._hold
        return hold[0] if hold is not None and time.monotonic() < hold[1] else None

    def held(self) -> bool:
        hold = self._hold
        return hold is not None and time.monotonic() < hold[1]

    def close(self) -> None:
        self._thread.stop()

    def _stand(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with open_store(self._url, campaign=self._campaign) as store:
                    leases = store.leases
                    assert leases is not None
                    while not stop.is_set():
                        self._step(leases)
                        stop.wait(self._seconds * RENEW_AFTER)
                    if self._hold is not None:
                        leases.release(self._hold[0])
            except StoreError as wrong:
                self._say(f"the store cannot be used, trying again: {wrong}")
                stop.wait(1.0)

    def _step(self, leases: Leases) -> None:
        began = time.monotonic()
        if began > self._asked + _LONGEST_SECONDS:
            return
        lease = None if self._hold is None else self._hold[0]
        try:
            if lease is not None:
                leases.renew(lease)
            else:
                lease = leases.take(COORDINATOR, self._name, self._seconds)
                if lease is not None:
                    self._say(f"{self._name} coordinates the campaign")
        except Fenced:
            lease = None
            self._say(f"{self._name} no longer coordinates the campaign: another server took over")
        self._hold = None if lease is None else (lease, began + self._seconds)


@dataclass(frozen=True)
class Elected:
    """Publisher of a coordinator: it publishes nothing, now or at a later connect, while another server is elected."""

    outlet: Outgoing
    election: Election

    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        """Publish a retained message; ``again``: publish it also each time the connection is made again."""
        if self.election.held():
            self.outlet.publish(topic, payload, again=again, permitted=self.election.held)


class Held:
    """A server's connection to the broker if several servers share a store: up while it coordinates a campaign.

    All servers log in to the broker as the same user. A broker with the configuration of `undertone init` allows this
    user one connection. If two servers connected at once, each would end the other's connection again and again.
    ``make``: makes an outlet that is not started.
    """

    def __init__(self, make: Callable[[], Outgoing]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._holders: set[str] = set()
        self._outlet: Outgoing | None = None

    def hold(self, campaign: str) -> None:
        """Connect for a campaign that this server coordinates from now on."""
        with self._lock:
            self._holders.add(campaign)
            if self._outlet is None:
                self._outlet = self._make()
                self._outlet.start()

    def release(self, campaign: str) -> None:
        """Disconnect unless this server coordinates another campaign."""
        with self._lock:
            self._holders.discard(campaign)
            if not self._holders:
                self._end()

    def _end(self) -> None:
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.stop()

    @property
    def dropped(self) -> int | None:
        outlet = self._outlet
        return None if outlet is None else outlet.dropped

    @property
    def stored(self) -> int | None:
        outlet = self._outlet
        return None if outlet is None else outlet.stored

    @property
    def heard(self) -> dict[str, bytes]:
        outlet = self._outlet
        return {} if outlet is None else outlet.heard

    @property
    def connected(self) -> bool:
        """True if this server is connected, or needs no connection."""
        outlet = self._outlet
        return outlet is None or outlet.connected

    @property
    def settled(self) -> bool:
        outlet = self._outlet
        return outlet is None or outlet.settled

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        outlet = self._outlet
        return None if outlet is None else outlet.retained(topic, stop)

    def start(self) -> None:
        """Do nothing. `hold` connects when this server begins to coordinate a campaign."""

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        outlet = self._outlet
        if outlet is not None:
            outlet.publish(topic, payload, again=again, permitted=permitted)

    def stop(self) -> None:
        """Disconnect."""
        with self._lock:
            self._end()

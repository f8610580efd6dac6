"""Who is connected: strangers and devices, what they may take, and why others were sent away."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import replace

from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.connection import Bucket, Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits, packets_per_second
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.shares import Shares, network_of
from undertone_aggregator.mqtt.filters import campaign_of
from undertone_shared.topics import report_topic

_TELL_SECONDS = 60.0


class Roster:
    """The connections of a server's devices, all used by one thread at a time; their reports go to ``queues``.

    ``queues``: by campaign. ``refused`` counts refusals by reason, ``throttled`` how often a connection was not read
    because of its limits, ``unknown`` reports to topics of no campaign, which are never acknowledged.
    """

    def __init__(self, gate: Gate, limits: Limits, prefix: str, say: Callable[[str], None]) -> None:
        self.gate = gate
        self.limits = limits
        self.queues: dict[str, Queue] = {}
        self.retained: dict[str, bytes] = {}
        self.subscribers: dict[str, set[Connection]] = {}
        self.refused: Counter[str] = Counter()
        self.throttled = self.unknown = 0
        self.open: set[Connection] = set()
        self.online: dict[str, Connection] = {}
        self.strangers: Shares[Connection] = Shares()
        self.now: Callable[[], float] = time.monotonic
        self._prefix = prefix
        self._start = f"{prefix}/".encode()
        self._say = say
        self._least_per_second = limits.per_second
        # The buckets of devices that went away, until they would be full again.
        self._left: dict[str, Bucket] = {}
        self._tell_at = -math.inf
        self._told = (0, 0, 0)

    # --- what connections call

    def route(self, user: str, topic: bytes) -> tuple[Queue | None, str]:
        """Return the queue of the campaign that ``topic`` names, and the topic if it is this device's own, else "".

        What a broker's access rules would drop is thus counted under no topic, and never as its owner's.
        """
        if not topic.startswith(self._start):
            return None, ""
        campaign = topic[len(self._start) :].partition(b"/")[0].decode("ascii", "replace")
        queue = self.queues.get(campaign)
        if queue is None:
            return None, ""
        own = report_topic(self._prefix, campaign, user)
        return queue, own if own.encode() == topic and self.gate.may_publish(own, user) else ""

    def subscribe(self, connection: Connection, topic: str) -> bytes | None:
        """Subscribe a device to a campaign; what is retained there. None where the topic is not a campaign's."""
        if campaign_of(self._prefix, topic) is None:
            return None
        if topic not in connection.subscriptions:
            if len(connection.subscriptions) >= self.limits.subscriptions:
                return None
            connection.subscriptions.add(topic)
            self.subscribers.setdefault(topic, set()).add(connection)
        return self.retained.get(topic, b"")

    def arrived(self, connection: Connection) -> None:
        """Take in a stranger. One too many ends an older one: those who show at once who they are always get in."""
        self.open.add(connection)
        network = network_of(connection.address)
        self.strangers.add(network, connection)
        if self.strangers.count(network) > self.limits.strangers_of_address:
            self.strangers.oldest(network).abort("strangers")
        elif len(self.strangers) > self.limits.strangers:
            self.make_room()

    def make_room(self) -> bool:
        """End the oldest stranger of the address with the most; whether there was one."""
        if self.strangers:
            self.strangers.most_crowded().abort("strangers")
            return True
        return False

    def full(self, user: str) -> bool:
        """Whether there are as many devices as there may be, and this one is not among them."""
        return len(self.online) >= self.limits.connections and user not in self.online

    def entered(self, connection: Connection) -> None:
        """It is a device: its older connection ends."""
        self._known(connection)
        user = connection.user
        older = self.online.get(user)
        # To come again fills no bucket.
        bucket = self._left.pop(user, None) if older is None else older.bucket
        if bucket is not None:
            connection.bucket = bucket
        self.online[user] = connection
        if older is not None:
            older.abort("taken_over")

    def left(self, connection: Connection) -> None:
        """It is closed."""
        self.open.discard(connection)
        for topic in connection.subscriptions:
            others = self.subscribers[topic]
            others.discard(connection)
            if not others:
                del self.subscribers[topic]
        if not connection.user:
            self._known(connection)
        elif self.online.get(connection.user) is connection:
            del self.online[connection.user]
            self._left[connection.user] = connection.bucket

    # --- what the endpoint calls

    def serve(self, campaigns: Collection[str]) -> None:
        """Keep reports for these campaigns from now on, and for no others."""
        for name in self.queues.keys() - set(campaigns):
            del self.queues[name]
            for connection in self.open:
                connection.forget_route()
        for name in campaigns:
            self.queues.setdefault(name, Queue(name))

    def allow(self, slot_seconds: Collection[int]) -> None:
        """Let a device send as much as it must that takes part in campaigns with slots of all these lengths."""
        wanted = max(self._least_per_second, packets_per_second(slot_seconds))
        if wanted != self.limits.per_second:
            self.limits = replace(self.limits, per_second=wanted)

    def retain(self, topic: str, payload: bytes) -> None:
        """From now on, whoever subscribes to the topic gets this; an empty payload clears it (3.3.1.3)."""
        if payload:
            self.retained[topic] = packets.publish(topic, payload, retained=True)
        else:
            self.retained.pop(topic, None)

    def sweep(self) -> None:
        """End the connections that have overrun a deadline; say from time to time who was refused."""
        now = self.now()
        for connection in list(self.open):
            connection.check(now)
        burst, rate = self.limits.burst, self.limits.per_second
        for user in [user for user, (tokens, at) in self._left.items() if tokens + (now - at) * rate >= burst]:
            del self._left[user]
        if now >= self._tell_at:
            self._tell_at = now + _TELL_SECONDS
            self._tell()

    def expel(self, users: Set[str]) -> None:
        """End these devices' connections."""
        for user in users & self.online.keys():
            self.online[user].abort("removed")

    # --- inside

    def _known(self, connection: Connection) -> None:
        self.strangers.remove(network_of(connection.address), connection)

    def _tell(self) -> None:
        """Say who was refused or not read, when that is more than it was."""
        counted = (self.refused.total(), self.throttled, self.unknown)
        if counted != self._told:
            self._told = counted
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.refused.items())) or "none"
            said = f"{len(self.online)} devices online; connections ended: {reasons}"
            said += f"; reading paused {self.throttled} times"
            if self.unknown:
                said += f"; reports to topics of no campaign here, not acknowledged: {self.unknown}"
            self._say(said)

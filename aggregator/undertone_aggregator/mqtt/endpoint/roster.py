"""The open connections of the endpoint, authenticated or not, their limits, and counts of refused connections."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import replace

from undertone_aggregator.base.plural import many
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.connection import Bucket, Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits, packets_per_second
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.shares import Shares
from undertone_aggregator.mqtt.filters import campaign_of, series_of
from undertone_shared.off_board.issue import aggregate_topic
from undertone_shared.topics import report_topic

_TELL_SECONDS = 60.0
# A device that was turned away and has not tried again for this many seconds counts as gone: no device waits longer
# before it tries again (`undertone_device.mqtt.knocks`).
_GONE_SECONDS = 900.0
# Word under which the end of a connection is counted -> what the log says of the connection.
REASONS = {
    "certificate": "with a certificate that is not the user's",
    "connections": "without room for them",
    "flags": "with flags that the server does not support",
    "handshake": "with a failed TLS handshake",
    "http": "without a valid request to open a WebSocket",
    "idle_frames": "with too many WebSocket frames without data",
    "keepalive": "with the keepalive 0",
    "leaving": "open when the server ended",
    "level": "with another version of MQTT than 3.1.1",
    "malformed": "with malformed data",
    "not_binary": "with text in a WebSocket",
    "not_connect": "without a CONNECT packet first",
    "oversized": "with too large a packet or request",
    "packet": "with a packet of a type that the client may not send",
    "password": "with a wrong user name or password",
    "qos": "with a QoS that the server does not support",
    "removed": "of users that were removed or changed",
    "silent": "silent for longer than their keepalive allows",
    "slow_connect": "without a login in time",
    "slow_packet": "with a packet that did not end in time",
    "strangers": "closed before their login to make room",
    "system": "closed after an error in the server",
    "taken_over": "replaced by a newer connection of the same user",
    "unread": "of clients that did not read what the server sent",
}


class Roster:
    """The connections of a server's devices and readers, used by one thread at a time. Reports go to ``queues``.

    ``queues``: campaign -> queue. ``refused``: number of refusals by reason. ``throttled``: how often a connection was
    not read because of its limits. ``unknown``: number of reports to topics of campaigns that are not served; they are
    never acknowledged. ``turned_away``: device -> monotonic time at which it last logged in and found no room.
    """

    def __init__(self, gate: Gate, limits: Limits, prefix: str, say: Callable[[str], None]) -> None:
        self.gate = gate
        self.limits = limits
        self.queues: dict[str, Queue] = {}
        # The queues of all campaigns that were ever served. A campaign that comes back takes from the same queue.
        self._queue_of: dict[str, Queue] = {}
        self.retained: dict[str, bytes] = {}
        self.subscribers: dict[str, set[Connection]] = {}
        self.refused: Counter[str] = Counter()
        self.throttled = self.unknown = 0
        self.turned_away: dict[str, float] = {}
        self.open: set[Connection] = set()
        # Number of open connections over WebSocket.
        self.websockets = 0
        self.online: dict[str, Connection] = {}
        # (user, client identifier) -> a reader's connection.
        self.readers: dict[tuple[str, str], Connection] = {}
        self.strangers: Shares[Connection] = Shares()
        self.now: Callable[[], float] = time.monotonic
        self._prefix = prefix
        self._start = f"{prefix}/".encode()
        self._say = say
        self._least_per_second = limits.per_second
        # Token buckets of devices that have disconnected, kept until they would be full again.
        self._left: dict[str, Bucket] = {}
        self._tell_at = -math.inf
        self._told = (0, 0, 0)

    # --- Methods that connections call.

    def route(self, user: str, topic: bytes) -> tuple[Queue | None, str]:
        """Return the queue of the campaign named in ``topic``, and the topic if this device may report to it, else "".

        The queue is None if the campaign is not served. A report without a topic is refused when it is counted, so a
        device cannot report under another device's name.
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
        """Subscribe a device to a campaign, or to a published series; return the retained message as a packet.

        Return b"" if no message is retained. Return None, without subscribing, for any other topic, because a device
        may read only what is public, and above the limit of subscriptions.
        """
        if campaign_of(self._prefix, topic) is None and series_of(self._prefix, topic) is None:
            return None
        if topic not in connection.subscriptions:
            if len(connection.subscriptions) >= self.limits.subscriptions:
                return None
            connection.subscriptions.add(topic)
            self.subscribers.setdefault(topic, set()).add(connection)
        payload = self.retained.get(topic)
        return b"" if payload is None else packets.publish(topic, payload, retained=True)

    def arrived(self, connection: Connection) -> None:
        """Register an unauthenticated connection.

        If there are too many, an older one is closed, so that a client that logs in quickly finds room.
        """
        self.open.add(connection)
        self.websockets += connection.websocket
        network = connection.network
        self.strangers.add(network, connection)
        if self.strangers.count(network) > self.limits.strangers_of_address:
            self.strangers.oldest(network).abort("strangers")
        elif len(self.strangers) > self.limits.strangers:
            self.make_room()

    def make_room(self) -> bool:
        """Close an unauthenticated connection; return False if there is none.

        It is the oldest one of the address that has the most of them.
        """
        if self.strangers:
            self.strangers.most_crowded().abort("strangers")
            return True
        return False

    def full(self, connection: Connection, user: str) -> bool:
        """Return True if the limit of readers, or of devices, is reached; a device that is connected still has room."""
        if connection.session is not None:
            return len(self.readers) >= self.limits.readers
        if len(self.online) < self.limits.connections or user in self.online:
            return False
        self.turned_away[user] = self.now()
        return True

    def entered(self, connection: Connection) -> None:
        """Register an authenticated device or reader. An older connection of the same device or reader is closed.

        A device is known by its name, a reader by its name and client identifier.
        """
        self._known(connection)
        user = connection.user
        if connection.session is not None:
            key = (user, connection.client_id)
            before = self.readers.get(key)
            self.readers[key] = connection
            if before is not None:
                before.abort("taken_over")
            return
        self.turned_away.pop(user, None)
        older = self.online.get(user)
        # A device that reconnects keeps the state of its token bucket.
        bucket = self._left.pop(user, None) if older is None else older.bucket
        if bucket is not None:
            connection.bucket = bucket
        self.online[user] = connection
        if older is not None:
            older.abort("taken_over")

    def left(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self.websockets -= connection.websocket
        for topic in connection.subscriptions:
            others = self.subscribers[topic]
            others.discard(connection)
            if not others:
                del self.subscribers[topic]
        if not connection.user:
            self._known(connection)
        elif connection.session is not None:
            key = (connection.user, connection.client_id)
            if self.readers.get(key) is connection:
                del self.readers[key]
        elif self.online.get(connection.user) is connection:
            del self.online[connection.user]
            self._left[connection.user] = connection.bucket

    # --- Methods that the endpoint calls.

    def serve(self, campaigns: Collection[str]) -> None:
        """From now on queue reports for these campaigns, and for no others. Forget the estimates of other campaigns."""
        for name in self.queues.keys() - set(campaigns):
            del self.queues[name]
            start = aggregate_topic(self._prefix, name, "")
            for topic in [each for each in self.retained if each.startswith(start)]:
                del self.retained[topic]
            for connection in self.open:
                connection.forget_route()
        for name in campaigns:
            self.serve_also(name)

    def serve_also(self, campaign: str) -> Queue:
        """Queue reports for this campaign, too, and return its queue. Any thread may call this method."""
        queue = self._queue_of.setdefault(campaign, Queue(campaign))
        return self.queues.setdefault(campaign, queue)

    def allow(self, slot_seconds: Collection[int]) -> None:
        """Set the packet rate to what a device needs in campaigns with all these slot lengths, in seconds.

        The rate is never below the configured one.
        """
        wanted = max(self._least_per_second, packets_per_second(slot_seconds))
        if wanted != self.limits.per_second:
            self.limits = replace(self.limits, per_second=wanted)

    def retain(self, topic: str, payload: bytes) -> None:
        """Retain a message for later subscribers of the topic.

        An empty payload removes the retained message (MQTT 3.1.1, section 3.3.1.3).
        """
        if payload:
            self.retained[topic] = payload
        else:
            self.retained.pop(topic, None)

    def sweep(self) -> None:
        """Close connections that have passed a deadline; log the counts of refusals at most once a minute."""
        now = self.now()
        for connection in list(self.open):
            connection.check(now)
        burst, rate = self.limits.burst, self.limits.per_second
        for user in [user for user, (tokens, at) in self._left.items() if tokens + (now - at) * rate >= burst]:
            del self._left[user]
        for user in [user for user, at in self.turned_away.items() if now >= at + _GONE_SECONDS]:
            del self.turned_away[user]
        if now >= self._tell_at:
            self._tell_at = now + _TELL_SECONDS
            self._tell()

    def expel(self, users: Set[str]) -> None:
        """Close the connections of these devices and readers."""
        for user in users & self.turned_away.keys():
            del self.turned_away[user]
        for user in users & self.online.keys():
            self.online[user].abort("removed")
        for connection in [each for (user, _), each in self.readers.items() if user in users]:
            connection.abort("removed")

    # --- Internal methods.

    def _known(self, connection: Connection) -> None:
        self.strangers.remove(connection.network, connection)

    def _tell(self) -> None:
        """Log how many connections the server ended, how often it throttled devices, and reports of unknown campaigns.

        Log nothing if none of these numbers has changed.
        """
        counted = (self.refused.total(), self.throttled, self.unknown)
        if counted != self._told:
            self._told = counted
            reasons = ", ".join(f"{n} {REASONS.get(reason, reason)}" for reason, n in sorted(self.refused.items()))
            sentence = f"devices online: {len(self.online)}; connections that the server refused or ended: "
            sentence += reasons or "none"
            waited = many(self.throttled, "time")
            sentence += f"; the server waited {waited}, because a device sent too much or the store was slow"
            if self.unknown:
                sentence += f"; {many(self.unknown, 'report')} not acknowledged: no campaign here has their topic"
            self._say(sentence)

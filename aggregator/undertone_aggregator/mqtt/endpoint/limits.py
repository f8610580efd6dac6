"""Limits on what one device, one network address and all clients together may use of the endpoint."""

from collections.abc import Iterable
from dataclasses import dataclass

# Number of reports per slot that a device may send.
_REPORTS_PER_SLOT = 4
# Number of packets per second that every device may send, however long its slots are: its pings are packets, too.
_LEAST_PER_SECOND = 1.0


@dataclass(frozen=True)
class Limits:
    """Limits on connections and packets.

    Before authentication: ``connect_bytes``, ``connect_seconds``, and the number of unauthenticated connections:
    ``strangers_of_address`` per IPv4 address or IPv6 /64, ``strangers`` in all. Above the first number, the oldest of
    that address is closed. Above the second, the oldest of the address that has the most is closed. ``connections``
    limits authenticated devices only, so strangers cannot keep devices out; `undertone_aggregator.base.room` derives
    this limit. ``unread_bytes``: largest number of sent bytes that the other side has not taken.

    ``burst`` and ``per_second`` are a token bucket of packets per device. When it is empty, the endpoint stops reading
    the connection and drops nothing. The same happens at ``unacknowledged`` reports of one connection, and at
    ``backlog`` reports that wait in the queue of one campaign. ``subscriptions``: largest number of topics to which a
    device may subscribe.

    ``readers``: largest number of readers' connections. The limits whose names begin with ``reader_`` replace those of
    devices. ``reader_flying``: largest number of messages at QoS 1 that a reader has not acknowledged. If messages wait
    for a reader, and it takes none for ``reader_seconds``, it is disconnected.

    For MQTT over WebSocket: ``request_bytes`` limits the HTTP request, and also the frames before authentication; all
    of them must come within ``connect_seconds``. ``frame_bytes`` limits a WebSocket message; a reader's largest packet
    fits. ``idle_frames``: how many frames without MQTT's bytes, such as pings, may come at once; on average, one may
    come each second.
    """

    connections: int = 1 << 20
    strangers: int = 4096
    strangers_of_address: int = 256
    connect_bytes: int = 512
    connect_seconds: float = 10.0
    packet_bytes: int = 1024
    packet_seconds: float = 10.0
    unread_bytes: int = 1 << 16
    subscriptions: int = 64
    burst: int = 192
    per_second: float = _LEAST_PER_SECOND
    unacknowledged: int = 200
    backlog: int = 20_000
    readers: int = 1000
    reader_packet_bytes: int = 1 << 16
    reader_subscriptions: int = 1000
    reader_flying: int = 20
    reader_seconds: float = 60.0
    request_bytes: int = 8192
    frame_bytes: int = (1 << 16) + 5
    idle_frames: int = 64


def packets_per_second(slot_seconds: Iterable[int]) -> float:
    """Return how many packets a second a device may send that takes part in campaigns with these slot lengths."""
    return max(_LEAST_PER_SECOND, sum(_REPORTS_PER_SLOT / seconds for seconds in slot_seconds))

"""Limits on what one device, one network address and all clients together may use of the endpoint."""

from collections.abc import Iterable
from dataclasses import dataclass

# A device may send this many reports per slot, but at least one packet per second, because its pings count, too.
_REPORTS_PER_SLOT = 4
_LEAST_PER_SECOND = 1.0


@dataclass(frozen=True)
class Limits:
    """Limits on connections and packets.

    Before authentication: ``connect_bytes``, ``connect_seconds``, and the number of unauthenticated connections:
    ``strangers`` in all, ``strangers_of_address`` per IPv4 address or IPv6 /64. If there are too many, the oldest
    connection of that address is closed, or the oldest of the address that has the most. ``connections`` limits
    authenticated devices only, so strangers cannot keep devices out; `undertone_aggregator.base.room` derives it. The
    other limits hold after authentication.

    ``burst`` and ``per_second`` are a token bucket of packets per device. When it is empty, the endpoint stops reading
    the connection and drops nothing. The same happens at ``unacknowledged`` reports of one connection, and at
    ``backlog`` reports that wait for the commit of one campaign. ``subscriptions``: largest number of topics that one
    connection may subscribe to.

    ``readers``: largest number of readers' connections. The limits whose names begin with ``reader_`` replace those of
    devices. ``reader_flying``: largest number of messages at QoS 1 that a reader has not acknowledged. If messages wait
    for a reader, and it takes none for ``reader_seconds``, it is disconnected.

    For MQTT over WebSocket: ``request_bytes`` limits the HTTP request, and also the frames before authentication; all
    of them must come within ``connect_seconds``. ``frame_bytes`` limits a message; a reader's largest packet fits.
    ``idle_frames``: how many frames without MQTT's bytes, such as pings, may come at once; on average, one may come
    each second.
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
    """Return the packets per second allowed to a device that takes part in campaigns with these slot lengths in
    seconds.
    """
    return max(_LEAST_PER_SECOND, sum(_REPORTS_PER_SLOT / seconds for seconds in slot_seconds))

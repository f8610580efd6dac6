"""What one device, one address and all together may take of the endpoint."""

from collections.abc import Iterable
from dataclasses import dataclass

# A device may send a few reports a slot for ever, and a packet a second: its pings count, too.
_REPORTS_PER_SLOT = 4
_LEAST_PER_SECOND = 1.0


@dataclass(frozen=True)
class Limits:
    """Limits before the password: ``connect_bytes``, ``connect_seconds``, and the connections that have not shown who
    they are: ``strangers`` in all, ``strangers_of_address`` of one IPv4 address or IPv6 /64. One too many ends the
    oldest of the address, or of the address with the most. ``connections`` limits devices alone, which strangers
    therefore cannot keep out. The other limits hold after the password.

    ``burst`` and ``per_second`` are a token bucket of packets per device: an empty one stops reading and drops
    nothing. So do ``unacknowledged`` reports of one connection, and ``backlog`` reports that wait for the commit of one
    campaign.
    ``subscriptions``: topics that one connection may subscribe to.
    """

    connections: int = 20_000
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


def packets_per_second(slot_seconds: Iterable[int]) -> float:
    """Return how many packets a second a device may send that takes part in campaigns with slots of these lengths."""
    return max(_LEAST_PER_SECOND, sum(_REPORTS_PER_SLOT / seconds for seconds in slot_seconds))

"""What one device, one address and all together may take of the endpoint."""

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
    nothing. So do ``unacknowledged`` reports of one connection, and ``backlog`` of all that wait for their commit.
    """

    connections: int = 20_000
    strangers: int = 4096
    strangers_of_address: int = 256
    connect_bytes: int = 512
    connect_seconds: float = 10.0
    packet_bytes: int = 1024
    packet_seconds: float = 10.0
    unread_bytes: int = 1 << 16
    burst: int = 192
    per_second: float = _LEAST_PER_SECOND
    unacknowledged: int = 200
    backlog: int = 20_000


def limits_for(slot_seconds: int) -> Limits:
    """The limits for a campaign with slots of this length."""
    return Limits(per_second=max(_LEAST_PER_SECOND, _REPORTS_PER_SLOT / slot_seconds))

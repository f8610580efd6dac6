"""What the ledger's sums say, for people: never loaded where nobody asks."""

import struct

from undertone_device.ledger import DAYS, MONTH, RING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.ledger import Sums
    from undertone_shared.policy import Policy


def drawn_since(sums: "Sums", start: int) -> int:
    """At most so many draws were of slots that start at ``start`` or later."""
    sums.pack(0, 0)
    buffer = sums.buffer
    groups, newest, size, count = struct.unpack(">HHII", buffer[:12])
    total = 0
    for group in range(groups):
        i = RING + 8 * group
        if struct.unpack(">I", buffer[i : i + 4])[0] >= max(start, 1):
            total += count if group == newest else size
    return total


def month(sums: "Sums", day: int) -> int:
    """Units of epsilon of the 31 days up to ``day``, which hold any thirty times 24 hours up to now."""
    buffer = sums.buffer
    newest = struct.unpack(">I", buffer[20:24])[0]
    total = 0
    for old in range(max(newest, day) - DAYS + 1, newest + 1):
        i = MONTH + 4 * (old % DAYS)
        total += struct.unpack(">I", buffer[i : i + 4])[0]
    return total


def most_reports(policy: "Policy", slot: int, seconds: int, counter: bool) -> int:
    """How many reported intervals a real interval of ``seconds`` can touch, by slots, rest and the sliding cap.

    Their starts lie in an open interval of seconds + reach; rest keeps starts reach + rest apart. A ``counter``'s
    interval reaches from its reading in the slot before to its own, wherever in their slots those are.
    """
    reach = 2 * slot if counter else slot
    span = seconds + reach
    whole, part = divmod(span, policy.period_seconds)
    capped = policy.reports_per_period * whole + min(policy.reports_per_period, -(-part // slot))
    return min(-(-span // (reach + policy.rest_seconds if policy.rest_seconds else slot)), capped)

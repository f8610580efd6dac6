"""Sums of the ledger for status displays; a device without a display never loads this module."""

import struct

from undertone_device.core.ledger import DAYS, MONTH, RING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Sums
    from undertone_shared.policy import Policy


def drawn_since(sums: "Sums", start: int) -> int:
    """Return an upper bound of the number of draws for slots that start at ``start`` or later."""
    sums.pack(0, 0)
    buffer = sums.buffer
    groups, newest, size, count = struct.unpack(">HHII", buffer[:12])
    total = 0
    for group in range(groups):
        i = RING + 8 * group
        if struct.unpack(">I", buffer[i : i + 4])[0] >= max(start, 1):
            total += count if group == newest else size
    return total


def month(sums: "Sums", day: int, ever: int, days: int = DAYS) -> int:
    """Return the units of epsilon of the ``days`` UTC days up to ``day``; 31 days include the last thirty times 24 h.

    ``ever``: the total of all days, which is returned if a day's sum was too large for its 32 bits.
    """
    buffer = sums.buffer
    newest = struct.unpack(">I", buffer[20:24])[0]
    total = 0
    for old in range(max(newest, day) - days + 1, newest + 1):
        i = MONTH + 4 * (old % DAYS)
        units = struct.unpack(">I", buffer[i : i + 4])[0]
        if units == 0xFFFFFFFF:
            return ever
        total += units
    return total


def most_reports(policy: "Policy", seconds: int) -> int:
    """Return the most reported intervals that any T = ``seconds`` in a row can touch, whatever campaigns the policy
    allows.

    No slot is shorter than the policy's slot_seconds, S. With rest_seconds W, at most ceil((T + S)/(W + S)) intervals
    touch T; without a rest, ceil((T + S)/S). The cap of k reports in any P seconds allows k in each whole P, as many as
    fit into the remaining seconds, and one that began before. A counter's interval reaches from its reading in the slot
    before to its own reading, wherever in their slots these are: with a rest, S is therefore replaced by 2 S; without a
    rest, and under the cap, there is one interval more. If the policy allows both a counter and another measure, the
    larger number holds for any mixture, because only the intervals between the first and the last one must fit into T.
    """
    slot = policy.slot_seconds
    counter = "counter" in policy.measures
    reaches = [2 * slot] if counter else []
    if not counter or len(set(policy.measures)) > 1:
        reaches.append(slot)
    apart = max(
        [-(-(seconds + reach) // (reach + policy.rest_seconds if policy.rest_seconds else slot)) for reach in reaches]
    )
    whole, part = divmod(seconds, policy.period_seconds)
    most = policy.reports_per_period
    return min(apart, most * whole + min(most, -(-part // slot)) + (2 if counter else 1))

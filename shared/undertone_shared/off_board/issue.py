"""Messages that the aggregator publishes: campaigns and hand-overs; and the topics of its series.

A board does not carry this module.
"""

import struct

from undertone_shared import handover
from undertone_shared.campaign import (
    LARGEST_BODY,
    LARGEST_TIME,
    MAGIC,
    SIGNATURE_BYTES,
    VERSION,
    Campaign,
    digest_of,
    write_canonical,
)
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ScalarRule
from undertone_shared.schedule import SEED_BYTES, Schedule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_shared.scalar import Cohort, ReportRule
    from undertone_shared.stream import StreamRule


def build(
    *,
    name: str,
    sensor: str,
    unit: str,
    measure: str,
    offset: int,
    bound: int,
    slot_seconds: int,
    cycle: int,
    epoch: int,
    last_slot: int,
    default: int,
    cohort: "Cohort | None" = None,
    report: "ReportRule | None" = None,
    stream: "StreamRule | None" = None,
    schedule: "Schedule | None" = None,
) -> Campaign:
    """Make the campaign with these fields and a canonical body. Raises Invalid.

    Pass either a ``cohort`` with the ``report`` rule, which is None in a threshold epoch, or a ``stream``. Without a
    ``schedule`` every device reports every slot, for the threshold only in a threshold epoch.
    """
    rule: StreamRule | ScalarRule | None = stream
    if rule is None:
        if cohort is None:
            raise Invalid("cohort is None, expected one in a campaign of scalar reports")
        rule = ScalarRule(cohort, report)
    if schedule is None:
        schedule = Schedule(bytes(SEED_BYTES), 1, 0 if stream or report else 1)
    fields = {
        "version": VERSION,
        "campaign": name,
        "sensor": sensor,
        "unit": unit,
        "measure": measure,
        "offset": offset,
        "bound": bound,
        "slot_seconds": slot_seconds,
        "cycle": cycle,
        "epoch": epoch,
        "last_slot": last_slot,
        "default": default,
        "cohort": None if stream or cohort is None else cohort.mechanism.describe(),
        "rule": rule.describe(),
        "schedule": {
            "seed": "".join(["%02x" % byte for byte in schedule.seed]),
            "stride": schedule.stride,
            "cohort_stride": schedule.cohort_stride,
        },
    }
    pieces: list[bytes] = []
    write_canonical(fields, pieces.append)
    return Campaign(b"".join(pieces))


def pack(
    campaign: Campaign, issued_at: int, sign: "Callable[[bytes], bytes] | None" = None, trailer: bytes = b""
) -> bytes:
    """Return the campaign's retained message, as issued at Unix second ``issued_at``.

    ``sign`` returns the 64-byte signature of a 32-byte digest; without it the campaign is not signed. ``trailer``: a
    hand-over, as `pack_handover` makes it. Raises Invalid if ``issued_at`` does not fit 32 bits, and for a hand-over
    for which the message has no room.
    """
    check_integer("issued_at", issued_at, 0, LARGEST_TIME)
    if trailer and len(campaign.body) + len(trailer) > LARGEST_BODY:
        room = LARGEST_BODY - len(campaign.body)
        raise Invalid("the hand-over has %d bytes, expected at most %d beside the campaign" % (len(trailer), room))
    signature = bytes(SIGNATURE_BYTES) if sign is None else sign(digest_of(campaign.body))
    return struct.pack(">4sII", MAGIC, issued_at, len(campaign.body)) + campaign.body + signature + trailer


def pack_handover(fields: "dict[str, Any]", sign: "Callable[[bytes], bytes]") -> bytes:
    """Return a signed hand-over, the last part of a campaign's message. Raises Invalid, naming the field."""
    pieces: list[bytes] = []
    write_canonical(fields, pieces.append)
    body = b"".join(pieces)
    handover.parse(body)
    return body + sign(handover.digest_of(body))


def aggregate_topic(prefix: str, campaign: str, series: str) -> str:
    """Return the topic on which the estimates of a series are published and retained."""
    return "%s/%s/aggregate/%s" % (prefix, campaign, series)

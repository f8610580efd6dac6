"""What the aggregator publishes: campaigns, and the topics of its series. A board does not carry this module."""

import json
import struct

from undertone_shared.campaign import FIELDS, LARGEST_TIME, MAGIC, VERSION, Campaign
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ScalarRule

TYPE_CHECKING = False
if TYPE_CHECKING:
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
) -> Campaign:
    """The campaign with these fields, its body written in one fixed order (under CPython). Raises Invalid.

    Either a ``cohort`` with the ``report`` rule, None in a threshold epoch; or a ``stream``.
    """
    rule: StreamRule | ScalarRule | None = stream
    if rule is None:
        if cohort is None:
            raise Invalid("cohort is None, expected one in a campaign of scalar reports")
        rule = ScalarRule(cohort, report)
    values: tuple[Any, ...] = (
        VERSION,
        name,
        sensor,
        unit,
        measure,
        offset,
        bound,
        slot_seconds,
        cycle,
        epoch,
        last_slot,
        default,
        cohort
        and {
            "seed": "".join("%02x" % byte for byte in cohort.seed),
            "share": cohort.share,
            "mechanism": cohort.mechanism.describe(),
        },
        rule.describe(),
    )
    compact = (",", ":")
    members = [json.dumps(FIELDS[i]) + ":" + json.dumps(values[i], separators=compact) for i in range(len(values))]
    return Campaign(("{" + ",".join(members) + "}").encode())


def pack(campaign: Campaign, issued_at: int) -> bytes:
    """The retained message. Raises Invalid for issued_at outside u32."""
    check_integer("issued_at", issued_at, 0, LARGEST_TIME)
    return struct.pack(">4sII", MAGIC, issued_at, len(campaign.body)) + campaign.body


def aggregate_topic(prefix: str, campaign: str, series: str) -> str:
    """Where the aggregator keeps a retained series for users."""
    return "%s/%s/aggregate/%s" % (prefix, campaign, series)

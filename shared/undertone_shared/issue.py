"""What the aggregator publishes: campaigns, and the topics of its series. A board does not carry this module."""

import binascii
import json
import struct

from undertone_shared.campaign import FIELDS, LARGEST_TIME, MAGIC, VERSION, Campaign
from undertone_shared.checks import check_integer
from undertone_shared.mechanism import Hybrid
from undertone_shared.table import TableMechanism

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_shared.campaign import Cohort, ReportRule
    from undertone_shared.notation import Mechanism
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
    cohort: "Cohort | None",
    report: "ReportRule | None",
    stream: "StreamRule | None" = None,
) -> Campaign:
    """The campaign with these fields, its body written in one fixed order (under CPython). Raises Invalid."""
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
            "mechanism": describe_mechanism(cohort.mechanism),
        },
        report and {"low": report.low, "theta": report.theta, "mechanism": describe_mechanism(report.mechanism)},
    )
    names = FIELDS
    if stream is not None:
        names = FIELDS + ["stream"]
        values += (stream.describe(),)
    compact = (",", ":")
    members = [json.dumps(names[i]) + ":" + json.dumps(values[i], separators=compact) for i in range(len(values))]
    return Campaign(("{" + ",".join(members) + "}").encode())


def pack(campaign: Campaign, issued_at: int) -> bytes:
    """The retained message. Raises Invalid for issued_at outside u32."""
    check_integer("issued_at", issued_at, 0, LARGEST_TIME)
    return struct.pack(">4sII", MAGIC, issued_at, len(campaign.body)) + campaign.body


def describe_mechanism(mechanism: "Mechanism") -> "dict[str, Any]":
    """The JSON value that ``parse_mechanism`` reads back as the same mechanism."""
    if isinstance(mechanism, Hybrid):
        r = mechanism.rounding
        p = mechanism.piecewise
        return {
            "kind": "hybrid",
            "coin": mechanism.coin,
            "rounding": [r.a, r.b],
            "piecewise": [p.a, p.b, p.window, p.stride, p.levels],
        }
    if isinstance(mechanism, TableMechanism):
        return {
            "kind": "table",
            "bits": mechanism.bits,
            "shift": mechanism.shift,
            "values": list(mechanism.values),
            "rows": [binascii.b2a_base64(row).strip().decode() for row in mechanism.rows],
        }
    if mechanism.edges is not None:
        return {
            "kind": "square-wave",
            "a": mechanism.a,
            "b": mechanism.b,
            "window": mechanism.window,
            "edges": list(mechanism.edges),
        }
    return {
        "kind": "window",
        "a": mechanism.a,
        "b": mechanism.b,
        "window": mechanism.window,
        "stride": mechanism.stride,
        "levels": mechanism.levels,
    }


def aggregate_topic(prefix: str, campaign: str, series: str) -> str:
    """Where the aggregator keeps a retained series for users."""
    return "%s/%s/aggregate/%s" % (prefix, campaign, series)

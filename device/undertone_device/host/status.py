"""The status of a running device for its owner, in a small local file, without readings and without noise.

The device sends no part of it to the server.
"""

import json

from undertone_device.core import handover, pauses
from undertone_device.core.guard import BEGUN
from undertone_device.core.spent import drawn_since, month, most_reports
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_device.mqtt.client import Client
    from undertone_shared.stream_policy import StreamPolicy

FILE = "status.json"
DAY = 86400
LARGEST = 16384


def describe(client: "Client", now: int) -> "dict[str, Any]":
    """Return the state of a client as JSON values. Raises OSError or ValueError for files that cannot be read."""
    reporter = client.reporter
    policy = reporter.policy
    ledger = reporter.ledger
    storage = reporter.storage
    losses = max(int(storage.read(BEGUN) or 1) - 1, 0)
    pause = list(pauses.read(storage, now))
    handed = handover.load(storage)
    state: dict[str, Any] = {
        "device": reporter.device,
        "time": now,
        "online": client.online,
        "paused": reporter.paused,
        "trouble": client.trouble,
        "counts": client.counts,
        "spent_until": reporter.ledger.spent_until,
        "most_a_day": most_reports(policy, DAY),
        "recent": month(ledger.sums, now // DAY, ledger.ever, 2),
        "month": month(ledger.sums, now // DAY, ledger.ever),
        "ever": ledger.ever,
        "ever_rho": ledger.ever_rho,
        "began": ledger.began,
        "losses": losses,
        "lifetime": policy.lifetime,
        "sequence": ledger.sequence,
        "rest_seconds": policy.rest_seconds,
        "rest_by": policy.rest_by,
        "pause": pause,
        "period_used": drawn_since(ledger.sums, now - policy.period_seconds + 1),
        "period_seconds": policy.period_seconds,
        "period_limit": policy.reports_per_period,
        "cap": list(policy.cap),
        "streams": None if policy.stream is None else _allowed(policy.stream),
        "outbox": len(reporter.outbox),
        "dropped": reporter.dropped,
        "refusals": reporter.refusals,
        "signers": len(policy.signers),
        "history": handed.get("history", []),
        "outside": handed.get("outside", []),
        "campaign": None,
    }
    campaign = reporter.campaign
    if campaign is not None:
        rule = campaign.rule
        state["campaign"] = {
            "name": campaign.name,
            "epoch": campaign.epoch,
            "fingerprint": "".join("%02x" % byte for byte in campaign.fingerprint),
            "sensor": campaign.sensor,
            "measure": campaign.measure,
            "unit": campaign.unit,
            "slot_seconds": campaign.slot_seconds,
            "smallest": campaign.offset,
            "largest": campaign.offset + campaign.bound,
            "theta": campaign.offset + max([block[2] for block in rule.ranges]) if rule.ranges else None,
            "certificates": {name: list(mechanism.certificate()) for name, mechanism in rule.mechanisms},
            "stream": _COSTS[rule.kind](rule),
            "last_slot": campaign.last_slot,
        }
    return state


def _allowed(stream: "StreamPolicy") -> "dict[str, Any]":
    """Return the policy's limits for streams.

    ``rho`` is the limit per calendar period, or None if only each report is limited.
    """
    return {
        "rho": None if stream.per_report else stream.rho,
        "period_seconds": stream.period_seconds,
        "lifetime": stream.lifetime,
    }


# Kind of rule -> a function that returns the privacy cost of a window of the campaign; None if only single reports have
# a cost.
_COSTS: "dict[str, Callable[[Any], dict[str, Any] | None]]" = {
    "scalar": lambda rule: None,
    "stream": lambda rule: {"law": rule.law, "rho": list(rule.rho()), "renewal": rule.renewal},
}


def parse_status(data: bytes) -> "dict[str, Any]":
    """Parse the status in the file's bytes. Raises Invalid."""
    try:
        state = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RuntimeError):
        state = None
    if not isinstance(state, dict) or "device" not in state:
        raise Invalid("%s is damaged, or is not from a device" % FILE)
    return state

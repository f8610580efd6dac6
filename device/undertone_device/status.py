"""What a running device tells its owner, in a small local file: no reading, no noise, nothing sent by MQTT."""

import json

from undertone_device.spent import drawn_since
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_device.client import Client

FILE = "status.json"
LARGEST = 16384


def describe(client: "Client", now: int) -> "dict[str, Any]":
    """The state of a client as JSON values."""
    reporter = client.reporter
    policy = reporter.policy
    state: dict[str, Any] = {
        "device": reporter.device,
        "time": now,
        "online": client.online,
        "paused": reporter.paused,
        "trouble": client.trouble,
        "counts": client.counts,
        "spent_until": reporter.spent_until,
        "period_used": drawn_since(reporter.ledger.sums, now - policy.period_seconds + 1),
        "period_seconds": policy.period_seconds,
        "period_limit": policy.reports_per_period,
        "cap": list(policy.cap),
        "outbox": len(reporter.outbox),
        "dropped": reporter.dropped,
        "refusals": reporter.refusals,
        "signers": len(policy.signers),
        "campaign": None,
    }
    campaign = reporter.campaign
    if campaign is not None:
        rule = campaign.report
        cohort = campaign.cohort
        state["campaign"] = {
            "name": campaign.name,
            "epoch": campaign.epoch,
            "fingerprint": "".join("%02x" % byte for byte in campaign.fingerprint),
            "sensor": campaign.sensor,
            "measure": campaign.measure,
            "unit": campaign.unit,
            "slot_seconds": campaign.slot_seconds,
            "bound": campaign.bound,
            "theta": None if rule is None else rule.theta,
            "cohort_certificate": None if cohort is None else list(cohort.mechanism.certificate()),
            "report_certificate": None if rule is None else list(rule.mechanism.certificate()),
            "stream": None,
            "last_slot": campaign.last_slot,
        }
        stream = campaign.stream
        if stream is not None:
            state["campaign"]["theta"] = stream.theta
            state["campaign"]["stream"] = {"law": stream.law, "rho": list(stream.rho()), "renewal": stream.renewal}
    return state


def parse_status(data: bytes) -> "dict[str, Any]":
    """What ``describe`` gave, from the file's bytes. Raises Invalid."""
    try:
        state = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RuntimeError):
        state = None
    if not isinstance(state, dict) or "device" not in state:
        raise Invalid("the status file is not the status of a device")
    return state

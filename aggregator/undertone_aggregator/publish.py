"""Publication: campaigns for the devices, estimates and status for users, all retained."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_aggregator.estimate.reconstruct import Estimate
from undertone_shared.campaign import Campaign


def plain(value: Any) -> Any:
    """A value as JSON can carry it: numbers that are not finite become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def to_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False).encode()


def estimate_message(estimate: Estimate, campaign: Campaign) -> bytes:
    """The retained message of ``aggregate/<group>``: the newest slot's estimate."""
    return to_json({"campaign": campaign.name, "unit": campaign.unit, **asdict(estimate)})


def status_message(newest: Epoch, guarantee: Guarantee, now: int, counts: Mapping[str, Any]) -> bytes:
    """The retained message of ``aggregate/status``: epoch, θ, guarantee; ``counts``: deliveries by outcome, losses."""
    campaign, exact = newest.campaign, guarantee.certificate
    return to_json(
        {
            "campaign": campaign.name,
            "time": now,
            "epoch": campaign.epoch,
            "phase": newest.phase,
            "theta": campaign.rule.theta,
            "first_slot": campaign.first_slot,
            "last_slot": campaign.last_slot,
            "slot_seconds": campaign.slot_seconds,
            "epsilon": float(guarantee.epsilon),
            "certificate": None if exact is None else [exact.numerator, exact.denominator],
            "delta": guarantee.delta,
            "guarantee": guarantee.sentence,
            **counts,
        }
    )

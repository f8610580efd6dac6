"""Publication: campaigns for the devices, estimates and status for users, all retained."""

import json
from collections.abc import Mapping
from typing import Any

from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.estimates import Estimate, plain
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_shared.campaign import Campaign


def to_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False).encode()


def estimate_message(estimate: Estimate, campaign: Campaign) -> bytes:
    """The retained message of ``aggregate/<group>``: the newest slot's estimate."""
    return to_json({"campaign": campaign.name, "unit": campaign.unit, **estimate.row()})


def status_message(
    newest: Epoch, guarantee: Guarantee, now: int, counts: Mapping[str, Any], world: Published | None = None
) -> bytes:
    """The retained message of ``aggregate/status``: epoch, θ, guarantee; ``counts``: deliveries by outcome, losses.

    ``world``: what whoever sees only published numbers learns of a household in a cycle.
    """
    campaign, exact = newest.campaign, guarantee.certificate
    told = world and {**world.as_json(), "guarantee": world.sentence("a cycle of slots")}
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
            **guarantee.budget.as_json(),
            "certificate": None if exact is None else [exact.numerator, exact.denominator],
            "guarantee": guarantee.sentence,
            "published": told,
            **counts,
        }
    )

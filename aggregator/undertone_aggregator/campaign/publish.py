"""Messages for people and programs that read a campaign's results, all retained: estimates and the status."""

import json
from collections.abc import Mapping
from typing import Any

from undertone_aggregator.base.plain import plain
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.estimates import Estimate
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_shared.campaign import Campaign


def to_json(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False).encode()


def estimate_message(
    estimate: Estimate, campaign: Campaign, guarantee: Guarantee, world: Published | None = None
) -> bytes:
    """Return the retained message of ``aggregate/<series>``: the newest slot's estimate and the campaign's guarantee.

    ``world``: see `told`.
    """
    facts = {"campaign": campaign.name, "unit": campaign.unit, **estimate.row()}
    return to_json({**facts, "guarantee": guarantee.sentence, "published": told(world)})


def told(world: Published | None) -> dict[str, Any] | None:
    """Return as JSON how much published numbers reveal about one household in one cycle; None if ``world`` is None."""
    return None if world is None else {**world.as_json(), "guarantee": world.sentence("a cycle of slots")}


def status_message(
    newest: Epoch, guarantee: Guarantee, now: int, counts: Mapping[str, Any], world: Published | None = None
) -> bytes:
    """Return the retained message of ``aggregate/status``: epoch, θ, guarantee.

    ``counts``: deliveries by outcome, and losses. ``world``: see `told`.
    """
    campaign, exact = newest.campaign, guarantee.certificate
    return to_json(
        {
            "campaign": campaign.name,
            "time": now,
            "epoch": campaign.epoch,
            "phase": newest.phase,
            "theta": campaign.theta,
            "ranges": campaign.ranges,
            "first_slot": campaign.first_slot,
            "last_slot": campaign.last_slot,
            "slot_seconds": campaign.slot_seconds,
            **guarantee.budget.as_json(),
            "certificate": None if exact is None else [exact.numerator, exact.denominator],
            "guarantee": guarantee.sentence,
            "published": told(world),
            **counts,
        }
    )

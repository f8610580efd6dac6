"""The offer that a person reads before joining: who asks and why, and the policy that the person's device would get.

The server says nothing about privacy. The person's own program computes every number and sentence from that policy, and
stores exactly that policy (`undertone_device.host.consent`).
"""

import json
from datetime import UTC, datetime
from typing import Any

from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_aggregator.store.store import NoStore, open_store
from undertone_operate.fleet.device_files import DAY, agreeing
from undertone_operate.fleet.lifetimes import allowed_reports
from undertone_shared.campaign import Campaign
from undertone_shared.policy import Policy, parse_policy


def offer(config: Config, policy: str, operator: str, about: str) -> dict[str, Any]:
    """Return the offer of a campaign for a device with this policy (JSON)."""
    return {
        "operator": operator,
        "campaign": config.campaign.name,
        "about": about or None,
        "policy": json.loads(policy),
    }


def offered_policy(config: Config, model: str, operator: str, about: str, made: int) -> str:
    """Return the policy of a device that joins: the model, with an end and the agreement.

    ``made``: the Unix second at which the code was made. The policy stays the same as long as the code is valid, so a
    person who redeems the code later gets the policy that the person has read. Raises Invalid for a campaign that
    cannot begin, OSError.
    """
    fields = json.loads(model)
    fields["until"] = _until(config, model, made)
    return json.dumps(agreeing(fields, operator, about), indent=2) + "\n"


def _until(config: Config, model: str, made: int) -> int:
    """Return the Unix second by which a device that reports in each of its turns has used up its lifetime; 0 without a
    lifetime.

    It is counted from the campaign's first slot, and rounded up to the end of a day (UTC). For a campaign that had not
    begun when the code was ``made``, it is counted from the first slot that the campaign would have had then.
    """
    seconds = _life_seconds(config.campaign, parse_policy(model.encode()))
    if not seconds:
        return 0
    first, _ = _epochs(config, made)
    if first.epoch > made:
        first = epochs_of(config).first(made).campaign
    return min(-(-(first.epoch + seconds) // DAY) * DAY, 0xFFFFFFFF)


def _life_seconds(plan: CampaignPlan, policy: Policy) -> int:
    if policy.stream:
        return policy.stream.lifetime // policy.stream.rho * policy.stream.period_seconds
    return allowed_reports(policy) * plan.stride * plan.slot_seconds if policy.lifetime else 0


def iso(seconds: int) -> str:
    """Return a Unix second as people and programs read it, such as 2027-01-01T00:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def campaign_end(config: Config, now: int) -> int:
    """Return the Unix second at which a campaign ends, or would end if it began now. Raises Invalid, OSError."""
    return _epochs(config, now)[1].end


def _epochs(config: Config, now: int) -> tuple[Campaign, Campaign]:
    """Return the campaign's oldest and newest epoch. If it has none, both are the first epoch that would be issued
    now.
    """
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            epochs = store.epochs()
    except NoStore:
        epochs = []
    if not epochs:
        first = epochs_of(config).first(now).campaign
        return first, first
    return epochs[0].campaign, epochs[-1].campaign

"""The next campaign for the same devices: it begins when the old one ends, and devices change to it by themselves.

Both campaigns have one folder of devices, that of the old one. The old campaign's messages carry a signed hand-over
(`undertone_shared.handover`). A device that gets it listens to both campaigns, and changes to the new one when that
begins. A device has one ledger, so what it may spend in its life is counted over both campaigns.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import RETIRED, STATE, known_refusals
from undertone_aggregator.campaign.handover import read_handover, write_handover
from undertone_aggregator.campaign.preview import epochs_of, preview
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.mqtt.signing import Signer, read_key
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import note
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_aggregator.store.inventory import MOVED
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.agreements import Words, agreements, is_inside
from undertone_operate.fleet.device_files import turns_in_a_life
from undertone_operate.fleet.devices import FleetFiles
from undertone_operate.fleet.lifetimes import allowed_reports, policies_in, turns_in
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid, Refused
from undertone_shared.handover import MOST_AGREED
from undertone_shared.policy import Policy


def succeed(
    home: Home,
    old: str,
    new: str,
    options: Mapping[str, Any],
    *,
    about: str | None = None,
    although_refused: bool = False,
    write: bool = True,
) -> list[str]:
    """Make the campaign ``new`` for the devices of ``old``; return sentences about it.

    The new campaign has the old plan with these ``options``. It starts when the old one ends, or now if that has ended.
    ``about``: what the new campaign is for, if that is something else than before; then each household is asked again.
    ``write``: False changes nothing and only returns the sentences. Raises Invalid if ``new`` exists, and if ``old``
    has not begun, is retired or has a successor. Without ``although_refused``, also raises Invalid if policies refuse
    the new campaign. Raises OSError.
    """
    with home.changing():
        return _succeed(home, old, new, options, about, although_refused=although_refused, write=write)


def _succeed(
    home: Home,
    old: str,
    new: str,
    options: Mapping[str, Any],
    about: str | None,
    *,
    although_refused: bool,
    write: bool,
) -> list[str]:
    before, now = home.config(home.only(old)), int(time.time())
    if home.file(new).exists() or new in home.stores():
        raise Invalid(f"the new campaign's name is {new!r}, expected one that no campaign of {home.folder} has had")
    if (successor := home.successor(old)) is not None:
        raise Invalid(f"campaign {successor} succeeds {old} already, and a campaign has at most one successor")
    with open_store(before.store_url, campaign=old) as store:
        timeline, state, devices = Timeline(store.epochs()), store.meta().get(STATE), store.devices()
    if not len(timeline) or state == RETIRED:
        why = "is retired, and nothing broadcasts it" if len(timeline) else "has not begun"
        raise Invalid(
            f"campaign {old} {why}: its devices would not receive {new}; create a campaign, and add devices to it"
        )
    # A campaign that was extended ends later than its newest epoch, until the server has issued the next epoch.
    end = (epochs_of(before).last_slot(timeline) + 1) * before.campaign.slot_seconds
    text = _plan(home, old, new, options, end, now)
    config = home.config(new, text)
    signer = read_key(before.path(before.server.signing_key))
    campaign = epochs_of(config).first(now).campaign
    refusals = known_refusals(home.fleet(old), campaign)
    if refusals.refusing and not although_refused:
        raise Invalid(f"{refusals}. Nothing was written; --although-refused creates the campaign anyway")
    sentences = [*preview(config, now), *([str(refusals)] if refusals.known else [])]
    words = agreements(home, *home.chain(old)) if about is None else [(home.join.asks if about else "", about)]
    agreed = _agreed(home.fleet(old), words, campaign)
    sentences += _policies(home.fleet(old), turns_in(home, home.chain(old)), config, signer, agreed)
    starts = "now" if config.campaign.start is None else f"at {utc(config.campaign.start)}"
    sentences.append(f"{new} starts {starts}; {old} {'ends' if end > now else 'ended'} at {utc(end)}")
    if not write:
        return [*sentences, "nothing was written"]
    with open_store(config.store_url, campaign=new) as store:
        store.set_devices([device for device in devices.values() if device.state != MOVED])
        home.write_plan(new, text)
        FleetFiles.at_home(home, new, store).write_users({})
    for path in sorted((home.fleet(old) / "devices").glob("*/device.json")):
        device = json.loads(path.read_bytes())
        device["campaigns"] = list(dict.fromkeys([*device["campaigns"], new]))
        write_private(path, json.dumps(device, indent=2) + "\n", durable=False)
    # The hand-over comes last, because a device that hears of the new campaign may report to it at once.
    fields = read_handover(home.folder, old)
    fields["all"].pop("agreed", None)
    fields["all"] |= {"campaigns": [new], **({"agreed": agreed} if agreed else {})}
    write_handover(home.folder, fields, now, signer.sign)
    note(home.folder, old, f"succeeded by {new}")
    note(home.folder, new, f"created: succeeds {old}")
    return [*sentences, f"campaign {new}: {home.file(new)}, for the devices of {old}"]


def _plan(home: Home, old: str, new: str, options: Mapping[str, Any], end: int, now: int) -> str:
    """Return the new plan: the old one with another name and start, and the changed options."""
    parsed: Any = tomlkit.parse(home.file(old).read_text(encoding="utf-8"))
    plan = parsed["campaign"]
    for name in ("cohort_seed", "start"):
        plan.pop(name, None)
    plan.update({"name": new, "version": 1, "succeeds": old})
    plan.update(dict(options))
    slot = int(plan.get("slot_seconds", CampaignPlan.slot_seconds))
    if end > now and "start" not in plan:
        plan["start"] = -(-end // slot) * slot
    return tomlkit.dumps(parsed)


def _agreed(fleet: Path, words: Sequence[Words], campaign: Campaign) -> list[str]:
    """Return the fingerprints of policies whose households have agreed to the new campaign, too. Raises Invalid."""
    found = {
        policy.agreed for policy, _ in policies_in(fleet) if is_inside(policy, words) and _allows(policy, campaign)
    }
    if len(found) > MOST_AGREED:
        raise Invalid(f"households have agreed to {len(found)} different policies, expected at most {MOST_AGREED}")
    return sorted(found)


def _allows(policy: Policy, campaign: Campaign) -> bool:
    try:
        policy.check_campaign(campaign)
    except Refused:
        return False
    return True


def _policies(fleet: Path, drawn: int, new: Config, signer: Signer, agreed: Sequence[str]) -> list[str]:
    """Return sentences about policies that allow no hand-over, or less than the new campaign may come to need.

    ``drawn``: number of reports that a device may have drawn in the campaigns before. ``agreed``: see `_agreed`.
    """
    policies = policies_in(fleet)
    devices = sum(number for _, number in policies)
    by_hand = sum(number for policy, number in policies if not _obeys(policy, signer))
    asked = sum(number for policy, number in policies if _obeys(policy, signer) and policy.agreed not in agreed)
    turns = drawn + turns_in_a_life(new.campaign)
    short = [(policy, number) for policy, number in policies if policy.lifetime and allowed_reports(policy) < turns]
    sentences = [f"{devices - by_hand - asked} of {devices} devices move to the new campaign by themselves"]
    if asked:
        sentences.append(
            f"{asked} of {devices} devices do not move: the new campaign is outside what their households have agreed"
            " to. Phones and Home Assistant tell their users; give these users new links. Give the owners of other"
            " devices new policies"
        )
    if by_hand:
        sentences.append(
            f"{by_hand} of {devices} devices cannot move by themselves, because their policies allow no hand-over by"
            f" this server: copy the changed device.json of each from {fleet / 'devices'} to the device"
        )
    if short:
        least = min(allowed_reports(policy) for policy, _ in short)
        sentences.append(
            f"warning: in {new.campaign.name} and the campaigns before it, a device may have to send"
            f" {many(turns, 'report')}, but the policies of"
            f" {many(sum(number for _, number in short), 'device')} allow fewer in a life (the strictest allows"
            f" {least}): such a device stops reporting before the end, unless it gets a policy that allows more"
        )
    bound = new.campaign.bound
    if narrow := [(policy, number) for policy, number in policies if policy.theta[1] < bound]:
        least = min(policy.theta[1] for policy, _ in narrow)
        sentences.append(
            f"warning: the campaign's bound is {bound}, but the policies of"
            f" {many(sum(number for _, number in narrow), 'device')} allow only a smaller theta (the strictest allows"
            f" {least}): such a device refuses an epoch with a larger theta, unless it gets another policy"
        )
    return sentences


def _obeys(policy: Policy, signer: Signer) -> bool:
    return policy.handover and bytes.fromhex(signer.public) in policy.signers

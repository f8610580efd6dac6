"""Binds a store to one campaign: which options of the plan may change later, and what a change would do."""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from undertone_aggregator.base.plain import plain
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.settings.config import CampaignPlan, Config, StreamPlan
from undertone_aggregator.settings.landing_plan import SERVER
from undertone_aggregator.store.store import CampaignEntries, Store
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import Policy, parse_policy
from undertone_shared.schedule import SEED_BYTES

# Options that cannot change after the campaign has begun, because the store's numbers depend on them.
_FIXED = ("name", "succeeds", "sensor", "unit", "measure", "offset", "bound", "slot_seconds", "cycle")
_PLAN = "plan"
_COUNTS = "counts"
# Name of the store's entry that holds the version of the plan that applies now.
_VERSION = "version"
# Name of the store's entry that holds the state which the operator wants, one of `STATES`.
STATE = "state"
RUNNING, PAUSED, RETIRED = "running", "paused", "retired"
STATES = (RUNNING, PAUSED, RETIRED)


@dataclass(frozen=True)
class Change:
    """An option of the plan, as applied and as configured. ``allowed``: whether a running campaign may change it."""

    name: str
    before: Any
    after: Any
    allowed: bool

    def __str__(self) -> str:
        how = "" if self.allowed else " (fixed since the campaign began)"
        option = self.name if self.name.startswith("stream.") else f"campaign.{self.name}"
        return f"{option} {_text(self.before)} -> {_text(self.after)}{how}"


def changes(meta: Mapping[str, str], plan: CampaignPlan, stream: StreamPlan | None) -> list[Change]:
    """Return how the plan differs from the plan applied last, which is in the store's entries ``meta``."""
    if "facts" not in meta:
        # The campaign has not begun, so no plan has been applied yet.
        return []
    new, fixed = _facts(plan, stream), json.loads(meta["facts"])
    applied = json.loads(meta[_PLAN])
    changed = [Change(name, fixed[name], new[name], False) for name in fixed if fixed[name] != new[name]]
    # An option that was never applied is new in this version of Undertone, and no change.
    return changed + [
        Change(name, applied[name], value, True)
        for name, value in new.items()
        if name in applied and name not in fixed and applied[name] != value
    ]


def open_campaign(
    store: CampaignEntries,
    plan: CampaignPlan,
    stream: StreamPlan | None = None,
    *,
    apply: bool = False,
    refusing: Callable[[], str] = lambda: "",
) -> bytes:
    """Bind a new store to the plan, or check that an old store belongs to it; return the seed of its schedule.

    Raises Invalid for a changed plan, with a sentence that names each change. With ``apply``, the changes that a
    running campaign allows are applied instead. ``refusing``: returns a sentence for this error, about devices that
    would refuse the changed campaign.
    """
    with store.transaction():
        meta = store.meta()
        if "facts" not in meta:
            seed = plan.cohort_seed or secrets.token_bytes(SEED_BYTES)
            facts = _facts(plan, stream)
            fixed = {name: facts[name] for name in (*_FIXED, "collect")}
            store.set_meta(
                {"campaign": plan.name, "facts": json.dumps(fixed), "cohort_seed": seed.hex(), STATE: RUNNING}
            )
            _write_plan(store, plan, stream)
            return seed
    changed = changes(meta, plan, stream)
    if any(not change.allowed for change in changed):
        raise Invalid(
            f"the plan of campaign {plan.name} differs from the campaign in the store {store.name}: "
            + "; ".join(map(str, changed))
            + ". Undo the changes of what is fixed, or make a new campaign with a store of its own"
        )
    if changed and not apply:
        refusals = refusing()
        raise Invalid(
            f"campaign {plan.name} would change: "
            + "; ".join(map(str, changed))
            + (f". {refusals}" if refusals else "")
            + ". Nothing was changed: undertone serve --apply makes the change"
        )
    with store.transaction():
        _write_plan(store, plan, stream)
    return bytes.fromhex(meta["cohort_seed"])


def version_of(meta: Mapping[str, str]) -> int:
    """Return the version of the plan that applies now, from the entries ``meta`` of the store."""
    return int(meta.get(_VERSION, "1"))


def apply_plan(store: CampaignEntries, plan: CampaignPlan, stream: StreamPlan | None) -> int:
    """Apply a changed plan if its ``version`` is that of the plan that applies now, and return the new version.

    Raises Invalid for another version, which means that somebody else has changed the plan meanwhile, and for all that
    `open_campaign` refuses.
    """
    with store.transaction():
        version = version_of(store.meta())
        # This comes first, so that a change that is never allowed is refused for that reason, not for the version.
        open_campaign(store, plan, stream, apply=True)
        if plan.version != version:
            raise Invalid(
                f"campaign.version is {plan.version}, expected {version}, the version in use. Begin again from the"
                " plan that undertone campaign show prints"
            )
        store.set_meta({_VERSION: str(version + 1)})
    return version + 1


def counted_by(store: CampaignEntries) -> str:
    """Return the engine that counts a campaign's reports: `SERVER` or `SPARK`."""
    return store.meta().get(_COUNTS) or SERVER


def bind_counting(store: Store, counts: str) -> None:
    """Note which engine, `SERVER` or `SPARK`, counts a campaign's reports.

    Raises Invalid if the other engine counted before: each has its own memory of the reports that it has counted, so a
    campaign cannot change from one to the other.
    """
    with store.transaction():
        before = store.meta().get(_COUNTS) or (SERVER if store.newest_slot() is not None else counts)
        if before != counts:
            raise Invalid(
                f"landing.counts is {counts!r}, expected {before!r}, as when the campaign in {store.name} began: make a"
                " new campaign with a store of its own"
            )
        store.set_meta({_COUNTS: counts})


@dataclass(frozen=True)
class Refusals:
    """How many devices refuse a campaign, by reason. ``known``: number of devices with a known policy."""

    known: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def refusing(self) -> int:
        """Number of devices whose policies refuse the campaign."""
        return sum(self.reasons.values())

    def __str__(self) -> str:
        if not self.known:
            return ""
        worst = sorted(self.reasons, key=lambda reason: -self.reasons[reason])[:3]
        why = f" ({'; '.join(worst)})" if worst else ""
        return f"{self.refusing} of {self.known} known policies refuse this campaign{why}"


def _accept(_: Policy) -> None:
    """Accept every policy."""


def known_refusals(folder: Path, *campaigns: Campaign, check: Callable[[Policy], None] = _accept) -> Refusals:
    """Return how many policies in the folder ``devices`` of ``folder`` refuse one of the campaigns, by reason.

    A file that is no policy counts as one that refuses. ``check``: a further check of each policy, which raises
    Refused.
    """
    policies = Counter(path.read_bytes() for path in sorted((folder / "devices").glob("*/policy.json")))
    reasons: Counter[str] = Counter()
    for data, devices in policies.items():
        try:
            policy = parse_policy(data)
            for campaign in campaigns:
                policy.check_campaign(campaign)
            check(policy)
        except Refused as refused:
            reasons[f"{refused.reason}: {refused}"] += devices
        except Invalid as wrong:
            reasons[f"policy.json is not a policy: {wrong}"] += devices
    return Refusals(policies.total(), reasons)


def cycle_after(epoch: Epoch) -> int:
    """Return the Unix second, one cycle after an epoch's start, from which devices accept another epoch."""
    return epoch.campaign.epoch + epoch.campaign.cycle * epoch.campaign.slot_seconds


def refusals_of(config: Config, timeline: Timeline, now: int, check: Callable[[Policy], None] = _accept) -> Refusals:
    """Return how many of the known policies would refuse the configured campaign, by reason.

    ``timeline``: the epochs that were issued before the plan was changed. ``check``: see `known_refusals`.
    """
    from undertone_aggregator.campaign.preview import epochs_of

    epochs, folder = epochs_of(config), config.fleet or config.folder
    newest = timeline.last
    extended = None if newest is None else epochs.reissued(timeline, max(now, cycle_after(newest)))
    if extended is None:
        return known_refusals(folder, epochs.first(now).campaign, check=check)
    # Devices will receive only the extended epoch. The first epoch is checked for the changed options alone: it gets
    # one slot of reports, so that no device refuses it for its length.
    short = epochs_of(replace(config, campaign=replace(config.campaign, report_slots=1)))
    return known_refusals(folder, short.first(now).campaign, extended.campaign, check=check)


def _write_plan(store: CampaignEntries, plan: CampaignPlan, stream: StreamPlan | None) -> None:
    facts = _facts(plan, stream)
    delta = str(facts.get("stream.delta", ""))
    store.set_meta({_PLAN: json.dumps(facts), "epsilon": str(plan.epsilon), "delta": delta})
    # Options of the plan that readers of the store need as well.
    store.set_meta(
        {
            "time_zone": plan.time_zone,
            "holidays": plan.holidays or "",
            "weekend": plan.weekend,
            "filter": str(plan.filter).lower(),
            "settle_slots": str(plan.settle_slots),
            "min_reports": str(plan.min_reports),
        }
    )


def _facts(plan: CampaignPlan, stream: StreamPlan | None) -> dict[str, Any]:
    facts = {each.name: plain(getattr(plan, each.name)) for each in fields(plan) if each.name != _VERSION}
    facts["collect"] = "stream" if stream else "reports"
    if stream:
        facts |= {f"stream.{each.name}": plain(getattr(stream, each.name)) for each in fields(stream)}
    return facts


def _text(value: Any) -> str:
    return "unset" if value is None else json.dumps(value)

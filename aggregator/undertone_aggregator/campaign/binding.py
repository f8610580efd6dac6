"""The binding of a store to one campaign: which changes of the plan are allowed, and a preview of their effect."""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from undertone_aggregator.settings.config import CampaignPlan, Config, StreamPlan
from undertone_aggregator.settings.landing_plan import SERVER
from undertone_aggregator.store.store import Store
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import parse_policy
from undertone_shared.schedule import SEED_BYTES

# Options on which the store's numbers depend, so they cannot be changed.
_FIXED = ("name", "sensor", "unit", "measure", "offset", "bound", "slot_seconds", "cycle")
_PLAN = "plan"
_COUNTS = "counts"
# Name of the fact with the version of the plan in force.
_VERSION = "version"
# Name of the fact with the campaign's state, and its values.
STATE = "state"
RUNNING, PAUSED, RETIRED = "running", "paused", "retired"
STATES = (RUNNING, PAUSED, RETIRED)


@dataclass(frozen=True)
class Change:
    """A changed option: the applied and the configured value.

    ``allowed``: True if a running campaign may make the change.
    """

    name: str
    before: Any
    after: Any
    allowed: bool

    def __str__(self) -> str:
        how = (
            "" if self.allowed else ": a running campaign cannot change it; make a new campaign with a store of its own"
        )
        return f"campaign.{self.name} {_text(self.before)} -> {_text(self.after)}{how}"


def changes(meta: Mapping[str, str], plan: CampaignPlan, stream: StreamPlan | None) -> list[Change]:
    """Return the differences between this plan and the one that was applied last, which is in a store's ``meta``."""
    if "facts" not in meta:
        # The campaign has not begun.
        return []
    new, fixed = _facts(plan, stream), json.loads(meta["facts"])
    if "kind" in fixed:
        fixed["collect"] = fixed.pop("kind")
    # Older stores use other words.
    fixed["collect"] = {"report": "reports"}.get(fixed["collect"], fixed["collect"])
    kept = json.loads(meta.get(_PLAN, "{}")) or {"epsilon": meta["epsilon"]}
    made = [Change(name, fixed[name], new[name], False) for name in fixed if fixed[name] != new[name]]
    # An option that is new in this version has no applied value to compare with.
    return made + [
        Change(name, kept[name], value, True)
        for name, value in new.items()
        if name in kept and name not in fixed and kept[name] != value
    ]


def open_campaign(
    store: Store,
    plan: CampaignPlan,
    stream: StreamPlan | None = None,
    *,
    apply: bool = False,
    refusing: Callable[[], str] = lambda: "",
) -> bytes:
    """Bind a new store to the plan, or check that an old one belongs to it; return the cohort seed.

    Raises Invalid naming each change; with ``apply`` allowed changes are made instead. ``refusing``: returns a sentence
    about devices that would refuse the changed campaign.
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
            _keep(store, plan, stream)
            return seed
    made = changes(meta, plan, stream)
    if any(not change.allowed for change in made):
        raise Invalid(f"the store {store.name} holds another campaign: " + "; ".join(map(str, made)))
    if made and not apply:
        said = refusing()
        raise Invalid(
            f"campaign {plan.name} would change: "
            + "; ".join(map(str, made))
            + (f". {said}" if said else "")
            + ". Nothing was changed: run with --apply to change it from the next epoch on"
        )
    with store.transaction():
        _keep(store, plan, stream)
    return bytes.fromhex(meta["cohort_seed"])


def version_of(meta: Mapping[str, str]) -> int:
    """Return the version of the plan in force, from a store's ``meta``."""
    return int(meta.get(_VERSION, "1"))


def apply_plan(store: Store, plan: CampaignPlan, stream: StreamPlan | None) -> int:
    """Apply a plan whose ``version`` is the one in force; return the new version.

    Raises Invalid for an older version, because somebody else has changed the plan meanwhile, and as `open_campaign`.
    """
    with store.transaction():
        version = version_of(store.meta())
        # A change that is never allowed is refused as such, before the version is checked.
        open_campaign(store, plan, stream, apply=True)
        if plan.version != version:
            raise Invalid(
                f"campaign.version is {plan.version}, expected {version}: the plan was changed meanwhile, begin again"
                " from what undertone campaign show prints"
            )
        store.set_meta({_VERSION: str(version + 1)})
    return version + 1


def counted_by(store: Store) -> str:
    """Return the engine that counts a campaign's reports: `SERVER` or `SPARK`."""
    return store.meta().get(_COUNTS) or SERVER


def bind_counting(store: Store, counts: str) -> None:
    """Bind a campaign to the engine that counts its reports.

    See `undertone_aggregator.settings.landing_options`. Raises Invalid for another engine.

    Each engine has its own memory of the reports that it has counted, so a campaign cannot change from one to the
    other.
    """
    with store.transaction():
        before = store.meta().get(_COUNTS) or (SERVER if store.newest_slot() is not None else counts)
        if before != counts:
            raise Invalid(
                f"landing.counts is {counts!r}, but the reports in {store.name} were counted by {before!r}: a campaign"
                " cannot change it; make a new campaign with a store of its own"
            )
        store.set_meta({_COUNTS: counts})


@dataclass(frozen=True)
class Refusals:
    """Number of ``known`` device policies, and the reasons why some refuse a campaign, with their numbers."""

    known: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def refusing(self) -> int:
        """Number of policies that refuse the campaign."""
        return sum(self.reasons.values())

    def __str__(self) -> str:
        if not self.known:
            return ""
        worst = sorted(self.reasons, key=lambda reason: -self.reasons[reason])[:3]
        why = f" ({'; '.join(worst)})" if worst else ""
        return f"{self.refusing} of {self.known} known policies refuse it{why}"


def known_refusals(folder: Path, campaign: Campaign) -> Refusals:
    """Check a campaign against the policies below ``folder``/devices."""
    policies = Counter(path.read_bytes() for path in sorted((folder / "devices").glob("*/policy.json")))
    reasons: Counter[str] = Counter()
    for data, devices in policies.items():
        try:
            parse_policy(data).check_campaign(campaign)
        except Refused as refused:
            reasons[f"{refused.reason}: {refused}"] += devices
        except Invalid as wrong:
            reasons[f"not a policy: {wrong}"] += devices
    return Refusals(policies.total(), reasons)


def refusals_of(config: Config, now: int) -> Refusals:
    """Check the known policies against the epoch that the configuration issues next."""
    from undertone_aggregator.campaign.preview import epochs_of

    return known_refusals(config.fleet or config.folder, epochs_of(config).first(now).campaign)


def _keep(store: Store, plan: CampaignPlan, stream: StreamPlan | None) -> None:
    facts = _facts(plan, stream)
    delta = str(facts.get("stream.delta", ""))
    store.set_meta({_PLAN: json.dumps(facts), "epsilon": str(plan.epsilon), "delta": delta})
    # Other settings that readers of the store need.
    store.set_meta(
        {
            "time_zone": plan.time_zone,
            "holidays": plan.holidays or "",
            "weekend": plan.weekend,
            "settle_slots": str(plan.settle_slots),
            "min_reports": str(plan.min_reports),
        }
    )


def _facts(plan: CampaignPlan, stream: StreamPlan | None) -> dict[str, Any]:
    facts = {each.name: _plain(getattr(plan, each.name)) for each in fields(plan) if each.name != _VERSION}
    facts["collect"] = "stream" if stream else "reports"
    if stream:
        facts |= {f"stream.{each.name}": _plain(getattr(stream, each.name)) for each in fields(stream)}
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return "unset" if value is None else json.dumps(value)

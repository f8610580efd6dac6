"""The plan of ingest in a campaign's store: the server writes it, workers on other machines read it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.ingest import IngestPlan, Sessions, Share
from undertone_aggregator.settings.landing_plan import LandingPlan
from undertone_aggregator.store.store import CampaignEntries, Store

_PLAN = "worker_plan"
_BROKERS = "worker_brokers"
# Fields of `IngestPlan` that are written as they are.
_WRITTEN = ("prefix", "campaign", "slot_seconds", "batch", "batch_seconds", "audit", "lease_seconds", "landing")
SECRET = "broker_secret"


def write_plan(store: CampaignEntries, plan: IngestPlan, brokers: Mapping[str, Any]) -> None:
    """Write the plan for `read_plan`. ``brokers``: how to reach the brokers, for `read_brokers`."""
    fields = {name: getattr(plan, name) for name in _WRITTEN}
    # The groups and the sessions' secret are elsewhere in the store. The groups can change while the plan stays the
    # same.
    fields |= {"workers": plan.share.workers, "slots": plan.sessions.slots, "groups": plan.groups is not None}
    written = {_PLAN: json.dumps(fields), _BROKERS: json.dumps(brokers)}
    meta = store.meta()
    if any(meta.get(name) != value for name, value in written.items()):
        with store.transaction():
            store.set_meta(written)


def plan_text(store: CampaignEntries) -> str | None:
    """Return the text of the plan; None before a server has written one. Different plans have different texts."""
    return store.meta().get(_PLAN)


def read_plan(store: Store, cells: Callable[[str], Cells]) -> IngestPlan:
    """Return the stored plan, in which no worker's number is set yet. ``cells``: see `IngestPlan`."""
    meta = store.meta()
    fields = json.loads(meta[_PLAN])
    groups = store.groups() if fields.pop("groups") else None
    share = Share(workers=fields.pop("workers"))
    sessions = Sessions(tuple(fields.pop("slots")), meta.get(SECRET, ""))
    if fields["landing"] is not None:
        fields["landing"] = LandingPlan(*fields["landing"])
    return IngestPlan(**fields, cells=cells, groups=groups, share=share, sessions=sessions)


def read_brokers(store: CampaignEntries) -> dict[str, Any]:
    """Return how to reach the brokers, as the server has written it down."""
    brokers: dict[str, Any] = json.loads(store.meta()[_BROKERS])
    return brokers

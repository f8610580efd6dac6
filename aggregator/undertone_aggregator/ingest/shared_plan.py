"""What workers on other machines need to know of a campaign, in its store; a server writes it, workers follow it."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.ingest import IngestPlan
from undertone_aggregator.settings.landing_plan import LandingPlan
from undertone_aggregator.store.store import Store

_PLAN = "worker_plan"
_BROKERS = "worker_brokers"
# Known where the plan is read, or kept elsewhere in the store.
_NOT_WRITTEN = ("cells", "groups", "worker", "draining", "secret")
SECRET = "broker_secret"


def write_plan(store: Store, plan: IngestPlan, brokers: Mapping[str, Any]) -> None:
    """Keep it for `read_plan`. ``brokers``: how they are reached, for `read_brokers`."""
    fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name not in _NOT_WRITTEN}
    # Which groups there are is kept apart: they change without another plan.
    fields["groups"] = plan.groups is not None
    written = {_PLAN: json.dumps(fields), _BROKERS: json.dumps(brokers)}
    kept = store.meta()
    if any(kept.get(name) != value for name, value in written.items()):
        with store.transaction():
            store.set_meta(written)


def plan_text(store: Store) -> str | None:
    """The plan as it is written: another text is another plan. None before a server has written it."""
    return store.meta().get(_PLAN)


def read_plan(store: Store, cells: Callable[[str], Cells]) -> IngestPlan:
    """The plan that is written, of no worker in particular. ``cells``: see `IngestPlan`."""
    meta = store.meta()
    fields = json.loads(meta[_PLAN])
    groups = store.groups() if fields.pop("groups") else None
    fields["slots"] = tuple(fields["slots"])
    if fields["landing"] is not None:
        fields["landing"] = LandingPlan(*fields["landing"])
    return IngestPlan(**fields, cells=cells, groups=groups, secret=meta.get(SECRET, ""))


def read_brokers(store: Store) -> dict[str, Any]:
    """How the brokers are reached, as a server has written it."""
    brokers: dict[str, Any] = json.loads(store.meta()[_BROKERS])
    return brokers

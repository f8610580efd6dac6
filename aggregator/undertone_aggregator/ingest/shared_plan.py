"""The plan of ingest in a campaign's store: the server writes it, workers on other machines read it."""

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
# Fields of `IngestPlan` that are not written: the reader of the plan supplies them, or the store holds them elsewhere.
_NOT_WRITTEN = ("cells", "groups", "worker", "draining", "secret")
SECRET = "broker_secret"


def write_plan(store: Store, plan: IngestPlan, brokers: Mapping[str, Any]) -> None:
    """Write the plan for `read_plan`. ``brokers``: how to reach them, for `read_brokers`."""
    fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name not in _NOT_WRITTEN}
    # The groups themselves are stored apart, because they change without another plan.
    fields["groups"] = plan.groups is not None
    written = {_PLAN: json.dumps(fields), _BROKERS: json.dumps(brokers)}
    meta = store.meta()
    if any(meta.get(name) != value for name, value in written.items()):
        with store.transaction():
            store.set_meta(written)


def plan_text(store: Store) -> str | None:
    """Return the text of the plan, which differs for another plan; None before a server has written one."""
    return store.meta().get(_PLAN)


def read_plan(store: Store, cells: Callable[[str], Cells]) -> IngestPlan:
    """Return the stored plan, in which no worker's number is set yet. ``cells``: see `IngestPlan`."""
    meta = store.meta()
    fields = json.loads(meta[_PLAN])
    groups = store.groups() if fields.pop("groups") else None
    fields["slots"] = tuple(fields["slots"])
    if fields["landing"] is not None:
        fields["landing"] = LandingPlan(*fields["landing"])
    return IngestPlan(**fields, cells=cells, groups=groups, secret=meta.get(SECRET, ""))


def read_brokers(store: Store) -> dict[str, Any]:
    """Return how to reach the brokers, as the server has written it."""
    brokers: dict[str, Any] = json.loads(store.meta()[_BROKERS])
    return brokers

"""Context of all parts of a coordinator: the configuration, the store, the outlet, the log."""

import json
from dataclasses import dataclass
from typing import Protocol

from undertone_aggregator.base.log import Journal
from undertone_aggregator.estimate.opened import MODELS
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_aggregator.store.store import Store


class RetainedPublisher(Protocol):
    """Publishes retained messages; `undertone_aggregator.mqtt.link.Outlet` is one."""

    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        """Publish a retained message; ``again``: publish it also each time the connection is made again."""


@dataclass(frozen=True)
class CampaignContext:
    """The objects that all parts of a coordinator share."""

    config: Config
    store: Store
    outlet: RetainedPublisher
    journal: Journal

    @property
    def plan(self) -> CampaignPlan:
        """The campaign's plan."""
        return self.config.campaign

    @property
    def prefix(self) -> str:
        """The levels that topics start with."""
        return self.config.broker.prefix

    def due_slot(self, now: int) -> int:
        """Return the newest slot that at Unix second ``now`` has ended at least ``settle_slots`` slots ago."""
        return now // self.plan.slot_seconds - self.plan.settle_slots - 1


class FittedModels:
    """Models fitted to threshold rounds. The store holds the models, so that its readers need not fit them again.

    ``values``: see `undertone_aggregator.estimate.reconstruct`, which adds to them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.values: dict[str, float] = json.loads(store.meta().get(MODELS, "{}"))
        self._stored = len(self.values)

    def clear(self) -> None:
        """Forget all models, so that the slots of threshold rounds are fitted anew."""
        self.values.clear()
        self._stored = 0

    def save(self) -> None:
        """Write the models to the store if there are new ones."""
        if len(self.values) > self._stored:
            self._store.set_meta({MODELS: json.dumps(self.values)})
            self._stored = len(self.values)

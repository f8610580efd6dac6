"""A campaign in its store, opened for reading: its epochs, its privacy cost, and the settings for reading it."""

import json
import zlib
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from undertone_aggregator.base.notebook import Summarised
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.facts import MechanismFacts, mechanism_facts
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.calendar import Days, days_of
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_aggregator.estimate.odds import Odds, odds
from undertone_aggregator.estimate.series_filter import SeriesFilter
from undertone_aggregator.store import store as stores
from undertone_aggregator.store.kept import noted_as_kept
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

MODELS = "models"
_READING = ("epsilon", "delta", "time_zone", "holidays", "weekend", "settle_slots", "min_reports")


def _edition_of(meta: Mapping[str, str]) -> int:
    """Return a number that changes when the settings for reading a campaign change."""
    return zlib.crc32(repr([meta.get(name) for name in _READING]).encode())


class Collections(Protocol):
    """Functions that interpret campaigns of every kind."""

    def estimator(self, timeline: Timeline, models: dict[str, float]) -> Estimator:
        """Return the estimator of the campaign's Partials."""

    def guarantee(self, timeline: Timeline, budget: Budget) -> Guarantee:
        """Return the guarantee of the campaign's epochs."""


class OpenCampaign(Summarised):
    """A campaign's store, opened for reading. Raises Invalid for a file that is no store, and for a store without an
    epoch.

    ``collections``: functions for each kind of campaign (`undertone_aggregator.campaign.results`). ``campaign``: name
    of one of the campaigns in the store; it may be omitted if there is only one.
    """

    def __init__(self, url: Path | str, collections: Collections, campaign: str | None = None) -> None:
        self._store = stores.open_store(url, campaign=campaign, read_only=True)
        self._groups: set[str] = set()
        self._groups_from = 0
        epochs = self._store.epochs()
        if not epochs:
            self._store.close()
            raise Invalid(f"the store {self._store.name} has no epoch yet: its server has not begun the campaign")
        self._understand(Timeline(epochs), self._store.meta(), collections)

    def _understand(self, timeline: Timeline, meta: Mapping[str, str], collections: Collections) -> None:
        self.timeline = timeline
        self._meta = meta
        self._estimator = collections.estimator(timeline, json.loads(meta.get(MODELS, "{}")))
        self._cost = collections.guarantee(timeline, Budget.stored(meta["epsilon"], meta.get("delta")))

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def facts(self) -> dict[str, str]:
        """Return facts for people: name, measurement, number of epochs, θ, deliveries and the guarantee."""
        campaign, theta = self.campaign, self.theta
        return {
            "campaign": campaign.name,
            "measures": f"{campaign.sensor}, {campaign.measure} of {campaign.slot_seconds} s, {campaign.unit}",
            "epochs": f"{len(self.timeline)}, {self.newest.phase} phase",
            "truncated at": "not chosen yet" if theta is None else f"{theta} {campaign.unit}",
            "deliveries": ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes().items()) if n),
            "guarantee": self.guarantee,
        }

    # --- Methods that return facts of the campaign.

    @property
    def newest(self) -> Epoch:
        """The newest epoch."""
        return self.timeline.epochs[-1]

    @property
    def campaign(self) -> Campaign:
        """The newest epoch's campaign."""
        return self.newest.campaign

    @property
    def budget(self) -> Budget:
        """The largest privacy budget of any epoch: for one reading, or for all reports of a stream in one window."""
        return self._cost.budget

    @property
    def guarantee(self) -> str:
        """The privacy guarantee in one sentence."""
        return self._cost.sentence

    @property
    def odds(self) -> list[Odds]:
        """The most that somebody can learn from one report of a device, and from several: see `estimate.odds`."""
        campaign = self.campaign
        slots = campaign.last_slot - self.timeline.epochs[0].campaign.first_slot + 1
        return odds(self._cost, campaign.slot_seconds, -(-slots // campaign.schedule.stride))

    @property
    def certificate(self) -> Fraction | None:
        """The largest exact probability ratio of a single report in any epoch; None if there is none."""
        return self._cost.certificate

    @property
    def theta(self) -> int | None:
        """The truncation threshold of the newest report epoch, in the unit of readings; None before the first.

        If blocks of the cycle have thresholds of their own, it is the highest of these.
        """
        thetas = [epoch.campaign.theta for epoch in reversed(self.timeline.epochs)]
        return next((theta for theta in thetas if theta is not None), None)

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        """(first slot of the cycle, low, theta) of each block of the newest report epoch.

        Empty before the first report epoch.
        """
        every = (epoch.campaign.ranges for epoch in reversed(self.timeline.epochs))
        return next(filter(None, every), ())

    @property
    def thetas(self) -> str:
        """The newest report epoch's thresholds in words; for several blocks of the day, the smallest and the largest.

        It is empty before the first report epoch.
        """
        every = (epoch.campaign.thetas for epoch in reversed(self.timeline.epochs))
        return next(filter(None, every), "")

    @property
    def mechanism(self) -> MechanismFacts | None:
        """Facts of the newest epoch's report mechanism; None in a threshold epoch or a stream campaign."""
        return mechanism_facts(self.newest, self.budget.epsilon)

    @cached_property
    def days(self) -> Days:
        """The campaign's time zone and days off."""
        meta = self._meta
        return days_of(meta.get("time_zone") or "UTC", meta.get("holidays") or None, meta.get("weekend") or "auto")

    @property
    def filter(self) -> SeriesFilter:
        """The filter for this campaign's series; its ``sentence`` states the assumptions."""
        campaign = self.campaign
        stride = campaign.schedule.stride
        used = self._meta.get("filter", "true") == "true"
        return SeriesFilter(
            campaign.slot_seconds, campaign.cycle, self.days, self._estimator.chains, stride, self.timeline.bottom, used
        )

    def outcomes(self) -> dict[str, int]:
        """Return the number of deliveries by outcome; ``received`` is their sum."""
        return dict(self._store.outcomes())

    def lost(self) -> dict[str, tuple[int, int]]:
        """Return a map: group -> (number of missing reports, slot in which the oldest of them was noticed)."""
        return self._store.lost()

    @property
    def status(self) -> dict[str, Any]:
        """The last status of a running server: devices by group, alarms, the expected end of the threshold rounds.

        Empty if no server has written one.
        """
        return dict(json.loads(self._store.meta().get("status", "{}")))

    @property
    def life(self) -> str | None:
        """The campaign's state as set by an operator, one of `undertone_aggregator.campaign.binding.STATES`.

        It is None before the campaign's start.
        """
        return self._store.meta().get("state")

    @property
    def mark(self) -> tuple[int, ...]:
        """(epochs, newest settled slot, edition of the settings, deliveries). It changes when the store has a
        new epoch, settled slot, setting for reading or delivery.
        """
        return self._store.epoch_count(), self.settled, self._edition(), self._store.outcomes()["received"]

    @property
    def stale(self) -> bool:
        """True if an epoch has begun since the store was opened, or an operator has changed the settings for
        reading.
        """
        return self._store.epoch_count() != len(self.timeline) or self._edition() != _edition_of(self._meta)

    def _edition(self) -> int:
        return _edition_of(self._store.meta(*_READING))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have reports; ``all`` means all devices together."""
        # Only slots from ``_groups_from`` on are read again. Earlier slots have settled, so they get only late reports;
        # the store searches these at each call.
        settled = max(int(self._store.meta(stores.SETTLED).get(stores.SETTLED, 0)), 0)
        self._groups |= self._store.counted_groups(self._groups_from)
        self._groups_from = settled
        return tuple(sorted(self._groups | {EVERYBODY}))

    @property
    def settled(self) -> int:
        """The newest slot whose published numbers are final; -1 before the first.

        If no server has settled a slot yet, it is the newest slot for which no further report is expected.
        """
        entry = self._store.meta(stores.SETTLED).get(stores.SETTLED)
        if entry is not None:
            return int(entry)
        newest, wait = self._store.newest_slot(), int(self._meta.get("settle_slots") or 0)
        return -1 if newest is None else newest - 1 - wait

    @property
    def unpublished(self) -> int:
        """Number of counted reports that came after their slot had settled, and that are therefore in no published
        mean.
        """
        return self._store.late_reports()

    @property
    def min_reports(self) -> int:
        """Least number of reports behind a public number."""
        return int(self._meta.get("min_reports") or 1)

    @property
    def reading(self) -> dict[str, str]:
        """The stored settings for reading the campaign, for readers on other machines."""
        return {name: self._meta[name] for name in _READING if name in self._meta}

    @property
    def kept_by_name(self) -> list[str]:
        """Sentences about single reports that the server stores under their devices' names; empty if it stores none."""
        return noted_as_kept(self._meta)

    @property
    def ends(self) -> int:
        """The Unix second at which the newest slot with a report ends."""
        return ((self._store.newest_slot() or 0) + 1) * self.campaign.slot_seconds

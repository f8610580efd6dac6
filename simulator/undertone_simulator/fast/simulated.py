"""The result of a simulated campaign: the content of a server's store, and the truth that only a simulation knows."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from undertone_aggregator.base.notebook import Summarised
from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.estimate.estimates import MEASURED, RELEASED, Estimate, Estimates, RangeEstimate, Z
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.opened import MODELS
from undertone_aggregator.estimate.series_filter import SeriesFilter
from undertone_aggregator.estimate.warnings import warnings_of
from undertone_aggregator.settings.config import CampaignPlan, StreamPlan
from undertone_shared.errors import Invalid
from undertone_shared.report import COHORT
from undertone_shared.stream import StreamRule
from undertone_simulator.fast.tally import Cell, Truth


@dataclass(repr=False)
class Simulated(Summarised):
    """Result of a simulated campaign; ``notes``: sentences about its readings and about the papers' way, if chosen."""

    plan: CampaignPlan
    timeline: Timeline
    partial: Partial
    truths: dict[Cell, dict[str, Truth]] = field(default_factory=dict)
    stream: StreamPlan | None = None
    notes: list[str] = field(default_factory=list)
    _models: dict[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """Return facts: what the campaign measured, its budget, and the number of its epochs."""
        campaign = self.timeline.epochs[-1].campaign
        return {
            "campaign": f"{campaign.sensor} in {campaign.unit}, slots of {campaign.slot_seconds} s",
            "budget": self.budget.text,
            "epochs": str(len(self.timeline.epochs)),
        }

    @property
    def kind(self) -> str:
        """The kind of the campaign's rules."""
        return self.timeline.epochs[-1].campaign.rule.kind

    @property
    def budget(self) -> Budget:
        """The budget of one reading (event level), or of a whole stream."""
        return Budget.parse(self.plan.epsilon, self.stream.delta) if self.stream else self.plan.budget

    def save(self, path: Path | str) -> None:
        """Write a store that `undertone query` reads like a server's. Raises Invalid if the file exists."""
        # The store's modules are imported only when a result is saved.
        from undertone_aggregator.campaign.binding import open_campaign
        from undertone_aggregator.estimate.publication import settle
        from undertone_aggregator.store.store import Batch, open_store

        path = Path(path)
        if path.exists():
            raise Invalid(f"{path} exists already: name a new file, because a simulation is never added to a store")
        with open_store(path) as store:
            open_campaign(store, self.plan, self.stream)
            with store.transaction():
                for epoch in self.timeline.epochs:
                    store.add_epoch(epoch)
            self.estimates(None)
            store.set_meta({MODELS: json.dumps(self._models)})
            store.commit("simulation", Batch(self.partial, Counter({COUNTED: self.partial.reports})))
            settle(store, max((key.slot for key in self.partial), default=-1), self.plan.min_reports)

    def estimates(self, groups: Sequence[str] | None = (EVERYBODY,), *, filtered: bool = False) -> Estimates:
        """Return the server's estimates of all slots that have reports, by default for all devices together.

        ``groups``: the groups to estimate; None for all groups.

        ``filtered``: return the filtered series instead of the raw one.
        """
        return self._estimates(self.partial, groups, filtered)

    def _estimates(self, partial: Partial, groups: Sequence[str] | None, filtered: bool) -> Estimates:
        raw = estimates_of(estimator_of(self.timeline, self._models), partial, groups)
        return self.filter.smoothed(raw) if filtered else raw

    @property
    def filter(self) -> SeriesFilter:
        """The campaign's filter."""
        plan, chains = self.plan, estimator_of(self.timeline, self._models).chains
        bottom = self.timeline.bottom
        return SeriesFilter(plan.slot_seconds, plan.cycle, plan.days, chains, plan.stride, bottom, plan.filter)

    def compared(self, groups: Sequence[str] | None = (EVERYBODY,), *, filtered: bool = False) -> list["Compared"]:
        """Return the measured slots with their truths; ``filtered`` as for ``estimates``."""
        return [
            Compared(estimate, *self.truth(estimate.slot, estimate.group, estimate.series.coordinate - 1))
            for estimate in self._estimates(self._measured, groups, filtered)
            if estimate.kind in (MEASURED, RELEASED) and estimate.standard_error is not None
        ]

    def ranges(self, every: int) -> list[tuple[RangeEstimate, float]]:
        """Return the means over whole runs of ``every`` slots, for all devices together, each with its true mean."""
        estimator, parts = estimator_of(self.timeline, self._models), Histograms.of(self._measured)
        means = [row for group, of in parts.each_group((EVERYBODY,)) for row in estimator.ranges(of, group, every)]
        return [
            (mean, sum(self.truth(slot)[1] for slot in range(mean.first, mean.last + 1)) / every)
            for mean in means
            if mean.slots == every
        ]

    def warnings(self) -> list[str]:
        """Return what the server would say of the whole campaign's estimates."""
        estimator = estimator_of(self.timeline, self._models)
        return warnings_of(self.timeline, estimator, estimates_of(estimator, self._measured, (EVERYBODY,)))

    @property
    def _measured(self) -> Partial:
        """The reports of all slots outside threshold rounds. A round's slot would take milliseconds to estimate."""
        slots = {key.slot for key in self.partial if key.kind != COHORT}
        return Partial({key: counts for key, counts in self.partial.items() if key.slot in slots})

    def truth(self, slot: int, group: str = EVERYBODY, coordinate: int = 0) -> tuple[float, float]:
        """Return (mean truncated or clipped reading, mean raw reading) in a slot; `Truth` says of which devices."""
        total = Truth()
        for name, truth in self.truths[Cell(slot, coordinate)].items():
            if group in (name, EVERYBODY):
                total.add(truth.reports, truth.truncated, truth.raw)
        mean, offset, rule = total.truncated / total.reports, self.plan.offset, self.rule
        if rule is not None:
            mean = rule.low + rule.width * (mean / rule.levels + 0.5)
        return offset + mean, offset + total.raw / total.reports

    @property
    def rule(self) -> StreamRule | None:
        """The stream rule of a stream campaign, else None."""
        newest = self.timeline.last
        return newest.campaign.rule if newest is not None and isinstance(newest.campaign.rule, StreamRule) else None


@dataclass(frozen=True)
class Compared:
    """One slot's estimate with the true means that only a simulation knows."""

    estimate: Estimate
    truth_truncated: float
    truth_raw: float

    @property
    def truth(self) -> float:
        """The true mean that the estimate is for.

        If the estimate models what truncation removes, this is the mean of the readings, else that of truncated ones.
        """
        return self.truth_truncated if self.estimate.bias is None else self.truth_raw

    @property
    def error(self) -> float:
        """Estimate minus truth."""
        return self.estimate.estimate - self.truth

    @property
    def truncated_error(self) -> float:
        """Estimated truncated mean minus the true one."""
        return self.estimate.truncated_mean - self.truth_truncated

    def covers(self) -> tuple[bool, bool]:
        """Return whether the 95 % intervals contain the truth: that of the mean, and that of the truncated mean."""
        of = self.estimate
        return (
            of.low is not None and of.high is not None and of.low <= self.truth <= of.high,
            abs(self.truncated_error) <= Z * (of.truncated_se or 0.0),
        )

"""What a simulated campaign leaves: what a server's store would hold, and the truth that only a simulation knows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from undertone_aggregator.collect.admission import EVERYBODY
from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.partial import Partial
from undertone_aggregator.collect.seen import COUNTED
from undertone_aggregator.config import CampaignPlan, StreamPlan
from undertone_aggregator.estimate.reconstruct import MEASURED, Estimate, Reconstruction
from undertone_aggregator.estimate.stream import STREAM, StreamReconstruction
from undertone_shared.errors import Invalid
from undertone_shared.stream import StreamRule


@dataclass
class Truth:
    """Of the devices of a group whose reports a slot counts for its mean: their number and the sums of what they

    measured less the offset, raw, and as the mechanism took it: truncated to the slot's θ, or in a stream the clipped
    grid points. Exact integers.
    """

    reports: int = 0
    truncated: int = 0
    raw: int = 0

    def add(self, reports: int, truncated: int, raw: int) -> None:
        """Count more devices."""
        self.reports += reports
        self.truncated += truncated
        self.raw += raw


@dataclass
class Simulated:
    """What a simulated campaign has left behind; ``truths`` by slot, then group."""

    plan: CampaignPlan
    timeline: Timeline
    partial: Partial
    truths: dict[int, dict[str, Truth]] = field(default_factory=dict)
    stream: StreamPlan | None = None

    def save(self, path: Path) -> None:
        """Write a store that `undertone query` reads like an aggregator's. Raises Invalid if there is one already."""
        # The server's edges are loaded for those who ask.
        from undertone_aggregator.collect.store import Batch, open_store
        from undertone_aggregator.server import open_campaign

        if path.exists():
            raise Invalid(f"{path} exists already: a simulation is never added to a store")
        with open_store(path) as store:
            open_campaign(store, self.plan, self.stream)
            with store.transaction():
                for epoch in self.timeline.epochs:
                    store.add_epoch(epoch)
            store.commit("simulation", Batch(self.partial, Counter({COUNTED: self.partial.reports})))

    def estimates(self, groups: Sequence[str] | None = (EVERYBODY,)) -> list[Estimate]:
        """The server's estimates of all slots that have reports, for everybody together; ``groups`` None for all."""
        if self.rule is not None:
            return StreamReconstruction(self.timeline).estimates(self.partial, groups)
        return Reconstruction(self.timeline).estimates(self.partial, groups)

    def compared(self, groups: Sequence[str] | None = (EVERYBODY,)) -> list["Compared"]:
        """The measured slots beside their truths."""
        return [
            Compared(one, *self.truth(one.slot, one.group))
            for one in self.estimates(groups)
            if one.kind in (MEASURED, STREAM) and one.standard_error is not None
        ]

    def truth(self, slot: int, group: str = EVERYBODY) -> tuple[float, float]:
        """(mean of the readings as the mechanism took them, mean of the raw ones) of the devices that are counted."""
        total = Truth()
        for name, one in self.truths[slot].items():
            if group in (name, EVERYBODY):
                total.add(one.reports, one.truncated, one.raw)
        mean, offset, rule = total.truncated / total.reports, self.plan.offset, self.rule
        if rule is not None:
            mean = rule.low + rule.width * (mean / rule.levels + 0.5)
        return offset + mean, offset + total.raw / total.reports

    @property
    def rule(self) -> StreamRule | None:
        """The stream of a stream campaign."""
        newest = self.timeline.last
        return None if newest is None else newest.campaign.stream


@dataclass(frozen=True)
class Compared:
    """One slot's estimate beside the means that only a simulation knows."""

    estimate: Estimate
    truth_truncated: float
    truth_raw: float

    @property
    def error(self) -> float:
        """Estimate - truth_truncated: what its standard error is about."""
        return self.estimate.estimate - self.truth_truncated

    def covers(self) -> tuple[bool, bool]:
        """Whether the interval holds the truncated truth, and the wider one (if there is one) the raw truth."""
        one = self.estimate
        return (
            one.low is not None and one.high is not None and one.low <= self.truth_truncated <= one.high,
            one.low_raw is not None and one.high_raw is not None and one.low_raw <= self.truth_raw <= one.high_raw,
        )

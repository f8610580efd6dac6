"""The server's side of the ways of collecting reports: `COLLECTIONS` has one object for each kind of rule.

Each is the counterpart of a rule in `undertone_shared.scalar` or `undertone_shared.stream`. Modules that load SciPy are
imported inside functions, because ingest workers need only the ``cells`` of these objects.
"""

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, cast

from undertone_aggregator.campaign.epoch_source import EpochMeans, EpochSource
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.ingest.cells import Cells, Histogram, Moments
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.design.budget import Budget
    from undertone_aggregator.estimate.estimator import Estimator
    from undertone_aggregator.estimate.guarantee import Guarantee
    from undertone_aggregator.settings.config import Config
    from undertone_shared.scalar import ScalarRule
    from undertone_shared.stream import StreamRule


# A log entry: (event, sentence, fields).
Event = tuple[str, str, dict[str, Any]]


class Collection(Protocol):
    """One way of collecting. ``cells``: adds counted reports to a batch."""

    cells: Cells

    def epochs(self, config: "Config", means: EpochMeans) -> EpochSource:
        """Return the object that decides on the epochs of the configured campaign. Raises Invalid."""

    def announce(self, epoch: Epoch, epsilon: Fraction, round_of: tuple[int, int], wait: int) -> list[Event]:
        """Return log entries for an epoch that begins in ``wait`` seconds.

        ``round_of``: (number of the epoch from 1, number of planned rounds).
        """

    def estimator(self, timeline: Timeline, models: dict[str, float]) -> "Estimator":
        """Return the estimator for Partials. ``models``: see `undertone_aggregator.estimate.reconstruct`."""

    def guarantee(self, campaign: Campaign, budget: "Budget") -> "Guarantee":
        """Return the guarantee for reports of an epoch that was planned with ``budget``."""


class ScalarCollection:
    """Readings one by one: histograms, threshold rounds, a mean for each slot."""

    cells: Cells = Histogram()

    def epochs(self, config: "Config", means: EpochMeans) -> EpochSource:
        """Return the object that decides on threshold rounds, then on report epochs."""
        from undertone_aggregator.campaign.rounds import Rounds

        return Rounds(config.campaign, means)

    def announce(self, epoch: Epoch, epsilon: Fraction, round_of: tuple[int, int], wait: int) -> list[Event]:
        """Return log entries of a threshold round, or of a report epoch with its θ and mechanism."""
        from undertone_aggregator.counts.facts import mechanism_facts

        rule, (number, planned) = epoch.report, round_of
        if rule is None:
            return [("epoch", f"threshold round {number} of {planned} starts in {wait} s", {"round": number})]
        sentence = f"theta = {epoch.campaign.thetas} takes effect in {wait} s"
        fields: dict[str, Any] = {"theta": epoch.campaign.theta, "ranges": epoch.campaign.ranges}
        reporting = mechanism_facts(epoch, epsilon)
        if reporting is None:
            return [("epoch", sentence, fields)]
        fields |= {"mechanism": reporting.kind, "variance_ratio": round(reporting.variance_ratio, 4)}
        return [("epoch", sentence, fields), ("mechanism", reporting.sentence(), {})]

    def estimator(self, timeline: Timeline, models: dict[str, float]) -> "Estimator":
        """Return the estimator that estimates each slot by itself."""
        from undertone_aggregator.estimate.reconstruct import Reconstruction

        return Reconstruction(timeline, models)

    def guarantee(self, campaign: Campaign, budget: "Budget") -> "Guarantee":
        """Return the guarantee for one reading or, with turns, for any span of time as long as a device's rest."""
        from undertone_aggregator.estimate.guarantee import scalar_guarantee

        return scalar_guarantee(campaign, cast("ScalarRule", campaign.rule), budget)


class StreamCollection:
    """Streams: one budget for all reports of a device, noise that is correlated over slots, moments for each slot.

    The whole stream is one epoch. A threshold round before it is an epoch of single reports.
    """

    cells: Cells = Moments()

    def epochs(self, config: "Config", means: EpochMeans) -> EpochSource:
        """Return the object that decides on the stream's threshold round, if it has one, and on the stream's epoch."""
        from undertone_aggregator.campaign.stream_rounds import StreamRounds

        if config.stream is None:
            raise Invalid("the configuration has no table [stream], which a stream campaign needs")
        return StreamRounds(config.campaign, config.stream, means)

    def announce(self, epoch: Epoch, epsilon: Fraction, round_of: tuple[int, int], wait: int) -> list[Event]:
        """Return the log entry of the threshold round, or of the stream with its mechanism, reports and θ."""
        if epoch.phase == THRESHOLD_PHASE:
            return [("epoch", f"the threshold round of the stream starts in {wait} s", {"round": 1})]
        rule = cast("StreamRule", epoch.campaign.rule)
        most = f"up to {rule.reports} reports from each device"
        sentence = f"a {rule.law} stream starts in {wait} s, with {most} and theta = {epoch.campaign.thetas}"
        return [("epoch", sentence, {"theta": epoch.campaign.theta})]

    def estimator(self, timeline: Timeline, models: dict[str, float]) -> "Estimator":
        """Return the estimator for slots with correlated noise."""
        from undertone_aggregator.estimate.stream import StreamReconstruction

        return StreamReconstruction(timeline)

    def guarantee(self, campaign: Campaign, budget: "Budget") -> "Guarantee":
        """Return the guarantee for all reports of a device."""
        from undertone_aggregator.estimate.guarantee import stream_guarantee

        return stream_guarantee(cast("StreamRule", campaign.rule), budget)


COLLECTIONS: dict[str, Collection] = {"scalar": ScalarCollection(), "stream": StreamCollection()}


def collection_of(kind: str) -> Collection:
    """Return the collection of a rule's kind. Raises Invalid for an unknown kind."""
    if kind not in COLLECTIONS:
        raise Invalid(f"the rule's kind is {kind!r}, expected one of {', '.join(COLLECTIONS)}")
    return COLLECTIONS[kind]


def estimator_of(timeline: Timeline, models: dict[str, float] | None = None) -> "Estimator":
    """Return the estimator for a campaign's Partials, by the kind of its newest epoch. Raises Invalid."""
    return collection_of(timeline.epochs[-1].campaign.rule.kind).estimator(timeline, {} if models is None else models)


def guarantee_of(timeline: Timeline, budget: "Budget") -> "Guarantee":
    """Return a guarantee that holds for every issued epoch: the largest ε, and the shortest rest between two reports.

    If one epoch had no rest, the guarantee has none. A stream's budget includes the report of its threshold round.
    ``budget``: the plan's budget, for epochs without one of their own, which are only planned or simulated.
    """
    from undertone_aggregator.estimate.guarantee import USER, rest_of, with_round

    budgets = [epoch.budget or budget for epoch in timeline.epochs]
    largest = max(budgets, key=lambda each: each.epsilon)
    costs = []
    for epoch, own in zip(timeline.epochs, budgets, strict=True):
        campaign = epoch.campaign
        costs.append((rest_of(campaign), -own.epsilon, collection_of(campaign.rule.kind).guarantee(campaign, largest)))
    exact = [cost.certificate for _, _, cost in costs if cost.certificate is not None]
    # Gaussian reports have no exact ratio of probabilities. One epoch of them leaves the whole campaign without one.
    certificate = max(exact) if exact and len(exact) == len(costs) else None
    stated = replace(min(costs, key=lambda cost: cost[:2])[2], certificate=certificate)
    if stated.level != USER:
        return stated
    rounds = [own for epoch, own in zip(timeline.epochs, budgets, strict=True) if epoch.phase == THRESHOLD_PHASE]
    return with_round(stated, rounds[0]) if rounds else stated


def cells_of(kind: str) -> Cells:
    """Return the `Cells` by which ingest workers add reports of this kind of rule to a batch. Raises Invalid."""
    return collection_of(kind).cells

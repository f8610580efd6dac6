"""The one table of estimators, by a campaign's kind of rule."""

from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.estimate.estimates import Estimator
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.estimate.stream import StreamReconstruction


def estimator_of(timeline: Timeline, models: dict[str, float] | None = None) -> Estimator:
    """For a campaign's epochs; ``models``: see `Reconstruction`."""
    if timeline.epochs[-1].campaign.stream is not None:
        return StreamReconstruction(timeline)
    return Reconstruction(timeline, models)

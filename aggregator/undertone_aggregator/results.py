"""An analyst's door: the results of any store."""

from pathlib import Path

from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collection import estimator_of, guarantee_of
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.estimates import Estimator
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_aggregator.estimate.query import Results


class _Collections:
    def estimator(self, timeline: Timeline, models: dict[str, float]) -> Estimator:
        return estimator_of(timeline, models)

    def guarantee(self, timeline: Timeline, budget: Budget) -> Guarantee:
        return guarantee_of(timeline, budget)


def open_results(url: Path | str) -> Results:
    """Open an aggregator's store for reading. Raises Invalid."""
    return Results(url, _Collections())

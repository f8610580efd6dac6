"""Entry points for analysts: the results of any store, or of a server's page."""

from pathlib import Path

from undertone_aggregator.campaign.collection import estimator_of, guarantee_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.guarantee import Guarantee
from undertone_aggregator.estimate.public import PublicResults
from undertone_aggregator.estimate.query import Results


class _Collections:
    def estimator(self, timeline: Timeline, models: dict[str, float]) -> Estimator:
        return estimator_of(timeline, models)

    def guarantee(self, timeline: Timeline, budget: Budget) -> Guarantee:
        return guarantee_of(timeline, budget)


def open_results(url: Path | str, campaign: str | None = None) -> Results:
    """Open an aggregator's store for reading: a file, or the address of a database.

    ``campaign``: the name of the campaign, needed if the database holds several. Raises Invalid.
    """
    return Results(url, _Collections(), campaign)


def open_public(url: Path | str, campaign: str | None = None) -> PublicResults:
    """Open only the public results of an aggregator's store. Arguments and errors are those of `open_results`."""
    return PublicResults(url, _Collections(), campaign)


def connect(url: str, campaign: str | None = None) -> Results:
    """Open the results that a server's page publishes: settled slots over enough reports.

    ``url``: the page's address as in a browser; ``campaign``: the name of the campaign, needed if the page shows
    several. Raises Invalid if the address cannot be reached, if it is no such page or a page of another version, and
    for a campaign that the page does not show.
    """
    from undertone_aggregator.estimate.remote import RemoteResults

    return RemoteResults(url, campaign, _Collections())

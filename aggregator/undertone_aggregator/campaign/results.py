"""An analyst's doors: the results of any store, or of a server's page."""

from pathlib import Path

from undertone_aggregator.campaign.collection import estimator_of, guarantee_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.estimates import Estimator
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

    ``campaign``: which one, where several are in the database. Raises Invalid.
    """
    return Results(url, _Collections(), campaign)


def open_public(url: Path | str, campaign: str | None = None) -> PublicResults:
    """Open an aggregator's store as everybody may see it; otherwise as `open_results`. Raises Invalid."""
    return PublicResults(url, _Collections(), campaign)


def connect(url: str, campaign: str | None = None) -> Results:
    """The same results from a server's page, as far as it publishes them: settled slots over enough reports.

    ``url``: as a browser opens the page; ``campaign``: which one, where it shows several. Raises Invalid for a page
    that cannot be reached or is none, for another version, and for a campaign that it does not show.
    """
    from undertone_aggregator.estimate.remote import RemoteResults

    return RemoteResults(url, campaign, _Collections())

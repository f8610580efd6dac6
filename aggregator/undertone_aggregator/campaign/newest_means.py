"""The newest published mean of each series of this process's campaigns; metrics show them."""

from collections.abc import Iterable

from undertone_aggregator.estimate.estimates import MODEL, Estimate


class NewestMeans:
    """Campaign -> its estimates of the newest settled slot.

    One thread sets the estimates of a campaign; any thread may read them.
    """

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Estimate, ...]] = {}

    def publish(self, campaign: str, slot: int, estimates: Iterable[Estimate]) -> None:
        """Replace a campaign's estimates by those of ``slot``; by none in a threshold round, which has no mean."""
        self._newest[campaign] = tuple(each for each in estimates if each.slot == slot and each.kind != MODEL)

    def of(self, campaign: str) -> tuple[Estimate, ...]:
        """Return the campaign's newest published estimates, one for each series; empty before the first."""
        return self._newest.get(campaign, ())


# What this process has published.
NEWEST = NewestMeans()

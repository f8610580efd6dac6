"""The results of a store as everybody may see them: the page, the API, exports and topics show nothing else."""

from collections.abc import Iterator

from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.estimate.publication import Publication, only_told, publication_of, told_groups
from undertone_aggregator.estimate.query import Results


class PublicResults(Results):
    """A store's `Results` of released cells alone, see `undertone_aggregator.estimate.publication`.

    Every number is final: asked for again, it is the same, whatever reports come later.
    """

    @property
    def publication(self) -> Publication:
        """What the store says of publishing now."""
        return publication_of(self._store, self.min_reports)

    @property
    def settled(self) -> int:
        """The newest settled slot, -1 before the first: nothing after it is published."""
        return self.publication.settled

    @property
    def ends(self) -> int:
        """The Unix second at which the newest settled slot ends."""
        return (self.settled + 1) * self.campaign.slot_seconds

    def lost(self) -> dict[str, tuple[int, int]]:
        """As of a store, of the groups of which counts may be told; `EVERYBODY`: all of them together."""
        return only_told(super().lost(), told_groups(self._store, self.publication))

    def registered(self, group: str) -> int | None:
        """As of a store, of the groups of which counts may be told, else None: a selection names it and its total."""
        return super().registered(group) if group in told_groups(self._store, self.publication) else None

    def _parts(self, first: int, last: int, groups: list[str] | None) -> Iterator[tuple[list[str] | None, Partial]]:
        publication = self.publication
        shown = publication.select(self._store.partial(first, min(last, publication.settled), late=False))
        for group in shown.groups if groups is None else groups:
            yield [group], shown.of(group)

    def _pooled(self, first: int, last: int, every: int) -> Partial:
        publication, cycle = self.publication, self.campaign.cycle
        last = min(last, publication.settled)
        # Bundles of slots are of a whole cycle, whatever is selected of it.
        whole = self._store.partial(
            first // cycle * cycle, min(last // cycle * cycle + cycle - 1, publication.settled), late=False
        )
        return publication.select(whole).pooled(cycle, every, first, last)

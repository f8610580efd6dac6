"""The public results of a store. The page, the API, exports and topics show only these."""

from collections.abc import Iterator, Mapping

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.estimate.publication import Publication, only_told, publication_of, told_groups
from undertone_aggregator.estimate.query import Results


class PublicResults(Results):
    """`Results` that contain released cells only, see `undertone_aggregator.estimate.publication`.

    Later reports change no published count and no truncated mean. The ``bias`` that is added for truncation depends on
    θ and on the level of the slots around, so it can change.
    """

    @property
    def publication(self) -> Publication:
        """The store's current publication state."""
        return publication_of(self._store, self.min_reports)

    @property
    def settled(self) -> int:
        """The newest settled slot, -1 before the first; later slots are not published."""
        return self.publication.settled

    @property
    def ends(self) -> int:
        """The Unix second at which the newest settled slot ends."""
        return (self.settled + 1) * self.campaign.slot_seconds

    def lost(self) -> dict[str, tuple[int, int]]:
        """Return lost reports as `Results.lost` does, but only for groups whose counts may be published and for
        `EVERYBODY`.
        """
        return only_told(super().lost(), told_groups(self._store, self.publication))

    def registered(self, group: str) -> int | None:
        """Return the number of active devices as `Results.registered` does; None if it may not be published."""
        return super().registered(group) if group in told_groups(self._store, self.publication) else None

    def _late_and_lost(
        self, low: int, high: int, group: str
    ) -> tuple[Mapping[int, int] | None, Mapping[int, int] | None]:
        if group not in told_groups(self._store, self.publication):
            return None, None
        return super()._late_and_lost(low, high, group)

    def _refused(self, low: int, high: int) -> Mapping[int, Mapping[str, int]] | None:
        if EVERYBODY not in told_groups(self._store, self.publication):
            return None
        return super()._refused(low, high)

    def _tables(self, first: int, last: int, groups: list[str]) -> Iterator[tuple[str, Tables]]:
        released = self.publication.select(self._store.sums(first, last))
        cells = self._cells(first, last, groups)
        yield from ((group, released.of(group, cells)) for group in groups)

    def _pooled(self, first: int, last: int, every: int) -> Partial:
        publication, cycle = self.publication, self.campaign.cycle
        last = min(last, publication.settled)
        # Bundles of slots are formed within whole cycles, even if only a part of a cycle is selected.
        end = min(last // cycle * cycle + cycle - 1, publication.settled)
        whole = self._store.sums(first // cycle * cycle, end)
        return publication.select(whole).pooled(cycle, every, first, last)

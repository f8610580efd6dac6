"""What is published of some counts, by the product's code and by plain Python that applies the rules slot by slot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial, reports_in
from undertone_aggregator.estimate.publication import Publication, smallest
from undertone_shared import report


@dataclass(frozen=True)
class Shown:
    """What is published. ``of`` takes a group, and ``pooled`` takes (cycle, every, first, last)."""

    groups: Sequence[str]
    smallest: int
    of: Callable[[str], Partial]
    pooled: Callable[[int, int, int, int], Partial]


def shown(publication: Publication, partial: Partial) -> Shown:
    """What `Publication.select` shows of these counts."""
    cells = Histograms.of(partial)
    released = publication.select(cells.sums())

    def of(group: str) -> Partial:
        return Partial(
            {
                Key(origin.campaign, origin.fingerprint, origin.kind, group, slot): counts
                for origin, (slots, table) in released.of(group, cells).items()
                for slot, counts in zip(slots.tolist(), table, strict=True)
            }
        )

    return Shown(released.groups, released.smallest, of, released.pooled)


def plainly_shown(publication: Publication, partial: Partial) -> Shown:
    """The same result as that of `shown`, decided for each slot by itself."""
    slots: dict[int, PlainSlot] = {}
    for key, counts in partial.items():
        if key.slot <= publication.settled:
            then = next((n for first, n in reversed(publication.since) if first <= key.slot), publication.least)
            slots.setdefault(key.slot, PlainSlot(max(then, publication.least), then)).add(key, counts)

    def of(group: str) -> Partial:
        cells = (cell for slot in slots.values() for of_group, cell in slot.released() if of_group == group)
        return Partial.gather((key._replace(group=group), counts) for key, counts in cells)

    fewest = [
        plain_smallest(sizes, plainly_released(sizes, slot.least)) for slot in slots.values() for sizes in slot.measured
    ]
    return Shown(
        sorted({group for slot in slots.values() for group in slot.shown}),
        min(filter(None, fewest), default=0),
        of,
        lambda *selection: plain_pools(slots, *selection),
    )


def smallest_crowd(sizes: Mapping[str, int], of: frozenset[str]) -> int:
    """`publication.smallest` for one slot. ``sizes``: by group; ``of``: the groups that are published."""
    names = sorted(sizes)
    columns = np.array([[EVERYBODY in of, *(name in of and name != EVERYBODY for name in names)]])
    (fewest,) = smallest(np.array([[sizes[name] for name in names]]), columns)
    return int(fewest)


def plainly_released(sizes: Mapping[str, int], least: int) -> frozenset[str]:
    """The same result as `publication.released`, decided group by group."""
    rest = sum(sizes.values())
    if rest < least:
        return frozenset()
    of = {EVERYBODY}
    for group, n in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if group != EVERYBODY and n >= least and (rest == n or rest - n >= least):
            of.add(group)
            rest -= n
    return frozenset(of)


def plain_smallest(sizes: Mapping[str, int], of: frozenset[str]) -> int:
    """The same result as `publication.smallest`, decided group by group."""
    if not of:
        return 0
    parts = [sizes[group] for group in of if group != EVERYBODY]
    rest = sum(sizes.values()) - sum(parts)
    return min([*parts, rest] if rest else parts)


@dataclass
class PlainSlot:
    """The cells of one settled slot.

    ``then``: `min_reports` as it was for this slot; ``least``: the larger of this number and the newest `min_reports`.
    ``sizes``: (kind, fingerprint) -> group -> reports.
    """

    least: int
    then: int
    sizes: dict[tuple[int, bytes], dict[str, int]] = field(default_factory=dict)
    cells: list[tuple[Key, Counts]] = field(default_factory=list)

    def add(self, key: Key, counts: Counts) -> None:
        groups = self.sizes.setdefault((key.kind, key.fingerprint), {})
        groups[key.group] = groups.get(key.group, 0) + reports_in(key.kind, counts)
        self.cells.append((key, counts))

    @property
    def measured(self) -> list[dict[str, int]]:
        return [sizes for (kind, _), sizes in self.sizes.items() if kind != report.COHORT and any(sizes.values())]

    def members(self, fingerprint: bytes) -> int:
        return sum(self.sizes.get((report.COHORT, fingerprint), {}).values())

    @property
    def shown(self) -> frozenset[str]:
        means = [
            plainly_released(sizes, self.least)
            for (kind, _), sizes in self.sizes.items()
            if kind != report.COHORT and any(sizes.values())
        ]
        alone = [plainly_released(sizes, self.least) for sizes in self.sizes.values()]
        return frozenset().union(*(means or alone))

    def released(self) -> Iterator[tuple[str, tuple[Key, Counts]]]:
        means = self.shown
        for key, counts in self.cells:
            of = means & plainly_released(self.sizes[key.kind, key.fingerprint], self.least)
            if EVERYBODY in of:
                yield EVERYBODY, (key, counts)
            if key.group in of and key.group != EVERYBODY:
                yield key.group, (key, counts)


def plain_pools(slots: Mapping[int, PlainSlot], cycle: int, every: int, first: int, last: int) -> Partial:
    """The same result as `publication.ReleasedCells.pooled`, decided slot by slot."""
    rows = [
        cell
        for number, slot in slots.items()
        if first <= number <= last
        for group, cell in slot.released()
        if group == EVERYBODY and cell[0].kind != report.COHORT
    ]
    epochs = {of for slot in slots.values() for kind, of in slot.sizes if kind == report.COHORT}
    for fingerprint in sorted(epochs):
        for bundle in plain_bundles(slots, cycle, fingerprint):
            within = first <= bundle[0] and bundle[-1] <= last and bundle[0] // every == bundle[-1] // every
            least = max(slots[each].least for each in bundle)
            if within and sum(slots[each].members(fingerprint) for each in bundle) >= least:
                cells = [cell for each in bundle for cell in slots[each].cells]
                of_epoch = (report.COHORT, fingerprint)
                rows += [cell for cell in cells if (cell[0].kind, cell[0].fingerprint) == of_epoch]
    return Partial.gather((key._replace(group=EVERYBODY), counts) for key, counts in rows)


def plain_bundles(slots: Mapping[int, PlainSlot], cycle: int, fingerprint: bytes) -> Iterator[list[int]]:
    bundle: list[int] = []
    for number in sorted(slots):
        slot = slots[number]
        members = slot.members(fingerprint)
        if bundle and number // cycle != bundle[0] // cycle:
            bundle = []
        if members >= slot.then:
            yield [number]
        elif slot.measured and members:
            bundle.append(number)
            if sum(slots[each].members(fingerprint) for each in bundle) >= slot.then:
                yield bundle
                bundle = []

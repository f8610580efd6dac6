"""Publication: the only module that decides which numbers may be public. Every output asks it.

The unit is a *cell*: the reports of one group, one slot, one kind and one epoch, as they were when the slot settled.
Three rules:

1. A slot settles once (`settle`). The store keeps reports that come later apart, so what a settled slot holds, and
   every number made of it, is final. Late reports are in the operator's own view of the store alone.
2. Of one slot the numbers of several groups, and of all devices together, are published only if each of them, and the
   *remainder* of all devices less the published groups, is over no report or at least ``min_reports``: see `released`.
   This holds for the reports of each epoch by themselves: where an epoch begins, a few devices still send reports of
   the last one, and what two mechanisms drew can be told apart in a sum.
3. Everything else that is published (filtered series, means over slots, quantiles) is made of released cells alone.
   Quantiles need the few reports for the threshold, of which a slot alone has too few: see `ReleasedCells.pooled`.

Groups are disjoint, so any sum or difference of published numbers is a combination of released groups and remainders.
If it contains any report, it therefore contains all reports of at least one released group or remainder.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial, reports_in
from undertone_aggregator.store.inventory import ACTIVE
from undertone_aggregator.store.store import SETTLED, Store
from undertone_shared import report

# Name of the stored value that lists [first slot, min_reports] for each min_reports under which a slot settled.
_SINCE = "min_reports_since"
# Name of the stored value that lists the groups whose counts were ever published.
_TOLD = "told_groups"

Sizes = Mapping[str, int]


def released(sizes: Sizes, least: int) -> frozenset[str]:
    """Return the groups whose numbers may be published together, `EVERYBODY` for all reports among them.

    ``sizes``: reports of each group; groups are disjoint, and those of `EVERYBODY` are in no group. ``least`` >= 1.
    Each published number, and the remainder of all reports less the published groups, is over 0 or >= ``least``
    reports. Where the remainder would be smaller, the smallest group that is large enough is withheld, too. A larger
    ``least`` never publishes a group that a smaller one withholds.
    """
    rest = sum(sizes.values())
    if rest < least:
        return frozenset()
    shown = {EVERYBODY}
    for group, n in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if group != EVERYBODY and n >= least and (rest == n or rest - n >= least):
            shown.add(group)
            rest -= n
    return frozenset(shown)


def smallest(sizes: Sizes, shown: frozenset[str]) -> int:
    """Return the least number of reports in a published group or in the remainder, given the ``released`` groups."""
    if not shown:
        return 0
    parts = [sizes[group] for group in shown if group != EVERYBODY]
    rest = sum(sizes.values()) - sum(parts)
    return min([*parts, rest] if rest else parts)


@dataclass
class Slot:
    """The cells of one settled slot. ``sizes``: (kind, fingerprint) -> group -> reports.

    ``least``: the min_reports that applies to the slot now; ``then``: the min_reports that applied when the slot
    settled, at most ``least``.
    """

    least: int
    then: int
    sizes: dict[tuple[int, bytes], dict[str, int]] = field(default_factory=dict)
    cells: list[tuple[Key, Counts]] = field(default_factory=list)

    def add(self, key: Key, counts: Counts) -> None:
        """Add one histogram to the slot's cells."""
        groups = self.sizes.setdefault((key.kind, key.fingerprint), {})
        groups[key.group] = groups.get(key.group, 0) + reports_in(key.kind, counts)
        self.cells.append((key, counts))

    @cached_property
    def measured(self) -> list[dict[str, int]]:
        """For each epoch with a measured mean, its number of reports by group; empty in a slot of a threshold round."""
        return [sizes for (kind, _), sizes in self.sizes.items() if kind != report.COHORT and any(sizes.values())]

    def members(self, fingerprint: bytes) -> int:
        """Number of the slot's reports for the threshold, from one epoch. In a threshold round it is every report."""
        return sum(self.sizes.get((report.COHORT, fingerprint), {}).values())

    @cached_property
    def shown(self) -> frozenset[str]:
        """The groups whose mean is released."""
        of_means = [
            shown
            for (kind, of), shown in self._alone.items()
            if kind != report.COHORT and any(self.sizes[kind, of].values())
        ]
        return frozenset().union(*(of_means or self._alone.values()))

    @cached_property
    def _alone(self) -> dict[tuple[int, bytes], frozenset[str]]:
        """(kind, fingerprint) -> the groups whose cells would be released if the slot had no others."""
        return {of: released(sizes, self.least) for of, sizes in self.sizes.items()}

    def released(self) -> Iterator[tuple[str, tuple[Key, Counts]]]:
        """Yield (group, cell) for each cell that is released for a group, or for `EVERYBODY`."""
        shown_of = {of: self.shown & alone for of, alone in self._alone.items()}
        for cell in self.cells:
            key = cell[0]
            shown = shown_of[key.kind, key.fingerprint]
            if EVERYBODY in shown:
                yield EVERYBODY, cell
            if key.group in shown and key.group != EVERYBODY:
                yield key.group, cell


class ReleasedCells:
    """The released cells of some settled slots."""

    def __init__(self, slots: Mapping[int, Slot]) -> None:
        self._slots = slots

    @property
    def groups(self) -> list[str]:
        """Every group that has a released cell, sorted."""
        return sorted({group for slot in self._slots.values() for group in slot.shown})

    @property
    def smallest(self) -> int:
        """The least number of a slot's reports that hide one from a reader of everything published; 0 without a slot.

        Slots of threshold rounds are left out.
        """
        fewest = (
            smallest(sizes, released(sizes, slot.least)) for slot in self._slots.values() for sizes in slot.measured
        )
        return min(filter(None, fewest), default=0)

    def of(self, group: str) -> Partial:
        """Return the cells of one group, under its name; for `EVERYBODY` the sums over all devices."""
        return Partial.gather((key._replace(group=group), counts) for key, counts in self.by_group.get(group, ()))

    @cached_property
    def by_group(self) -> dict[str, list[tuple[Key, Counts]]]:
        """The cells by the group that they are released for."""
        groups: dict[str, list[tuple[Key, Counts]]] = {}
        for slot in self._slots.values():
            for group, cell in slot.released():
                groups.setdefault(group, []).append(cell)
        return groups

    def pooled(self, cycle: int, every: int, first: int, last: int) -> Partial:
        """Return the cells of all devices that may be pooled over runs of ``every`` slots, from ``first`` to ``last``.

        In the report phase few reports of a slot are for the threshold, so whole bundles of slots are released, see
        `_bundles`. The bundles are the same for every selection. A bundle that would belong to two runs, or that the
        selection cuts, is left out.
        """
        rows = [
            cell
            for number, slot in self._slots.items()
            if first <= number <= last
            for group, cell in slot.released()
            if group == EVERYBODY and cell[0].kind != report.COHORT
        ]
        epochs = {of for slot in self._slots.values() for kind, of in slot.sizes if kind == report.COHORT}
        for fingerprint in sorted(epochs):
            for bundle in self._bundles(cycle, fingerprint):
                within = first <= bundle[0] and bundle[-1] <= last and bundle[0] // every == bundle[-1] // every
                least = max(self._slots[each].least for each in bundle)
                if within and sum(self._slots[each].members(fingerprint) for each in bundle) >= least:
                    cells = [cell for each in bundle for cell in self._slots[each].cells]
                    rows += [
                        cell for cell in cells if (cell[0].kind, cell[0].fingerprint) == (report.COHORT, fingerprint)
                    ]
        return Partial.gather((key._replace(group=EVERYBODY), counts) for key, counts in rows)

    def _bundles(self, cycle: int, fingerprint: bytes) -> Iterator[list[int]]:
        """Yield the shortest bundles of slots within a cycle that contain min_reports reports for an epoch's threshold.

        The min_reports is the one that applied when the slots settled.
        """
        open_slots: list[int] = []
        for number in sorted(self._slots):
            slot = self._slots[number]
            members = slot.members(fingerprint)
            if open_slots and number // cycle != open_slots[0] // cycle:
                open_slots = []
            if members >= slot.then:
                yield [number]
            elif slot.measured and members:
                open_slots.append(number)
                if sum(self._slots[each].members(fingerprint) for each in open_slots) >= slot.then:
                    yield open_slots
                    open_slots = []


@dataclass(frozen=True)
class Publication:
    """The publication state in a store. ``settled``: the newest settled slot, -1 before the first.

    ``least``: min_reports now; ``since``: (first slot, min_reports) as slots settled, ascending. A slot obeys the
    larger of the two, so that a number that was withheld when the slot settled stays withheld. ``told``: the groups
    whose counts were ever published.
    """

    settled: int
    least: int
    since: tuple[tuple[int, int], ...] = ()
    told: frozenset[str] = frozenset()

    @classmethod
    def of(cls, meta: Mapping[str, str], least: int) -> "Publication":
        """Read the publication state from the values that a store returns as ``meta``."""
        since = tuple((first, then) for first, then in json.loads(meta.get(_SINCE, "[]")))
        return cls(int(meta.get(SETTLED, -1)), least, since, frozenset(json.loads(meta.get(_TOLD, "[]"))))

    def then(self, slot: int) -> int:
        """Return the min_reports that applied when the slot settled."""
        return next((then for first, then in reversed(self.since) if first <= slot), self.least)

    def select(self, partial: Mapping[Key, Counts]) -> ReleasedCells:
        """Return the cells of ``partial``, which has no late reports, that may be published: only settled slots."""
        slots: dict[int, Slot] = {}
        for key, counts in partial.items():
            if key.slot <= self.settled:
                slot = slots.get(key.slot)
                if slot is None:
                    then = self.then(key.slot)
                    slot = slots[key.slot] = Slot(max(then, self.least), then)
                slot.add(key, counts)
        return ReleasedCells(slots)


def publication_of(store: Store, least: int) -> Publication:
    """Return the publication state of a store, with ``least`` as the current min_reports."""
    return Publication.of(store.meta(SETTLED, _SINCE, _TOLD), least)


def settle(store: Store, slot: int, least: int) -> Publication:
    """Settle all slots up to ``slot``, under min_reports ``least``; settled slots do not change. Raises StoreError."""
    with store.transaction():
        before = publication_of(store, least)
        if slot <= before.settled:
            return before
        since = before.since
        if not since or since[-1][1] != least:
            since = (*since, (before.settled + 1, least))
        store.set_meta({_SINCE: json.dumps(since), SETTLED: str(slot)})
    return Publication(slot, least, since, before.told)


def tell_groups(store: Store, least: int) -> frozenset[str]:
    """Return the groups whose counts may be published from now on, as `told_groups`, and record them in the store.

    Counts add up over time. A group therefore joins those whose counts were ever published only if the counts of all of
    them may be published together now: two groups whose counts are published one after the other could otherwise reveal
    the count of a third group. Raises StoreError.
    """
    publication = publication_of(store, least)
    sizes, ever = _households(store, publication), publication.told
    for group in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if group != EVERYBODY and ever | {group} <= _told(sizes, ever | {group}, least):
            ever |= {group}
    if ever != publication.told:
        store.set_meta({_TOLD: json.dumps(sorted(ever))})
    return _told(sizes, ever, least)


def told_groups(store: Store, publication: Publication) -> frozenset[str]:
    """Return the groups whose counts (devices, losses) may be published: they and the remainder are large enough.

    Only groups that `tell_groups` recorded are among them. The count of a group of one household would reveal whether
    that household takes part.
    """
    return _told(_households(store, publication), publication.told, publication.least)


def _told(sizes: Sizes, ever: frozenset[str], least: int) -> frozenset[str]:
    """Return those groups of ``ever``, and `EVERYBODY`, that are large enough for their counts to be published."""
    # A group without a known household must appear in the sum, but hides nobody: it counts as a fraction of a
    # household, so small that all such groups together count as less than one household.
    weight = len(sizes) + 1
    merged: dict[str, int] = {}
    for group, n in sizes.items():
        name = group if group in ever else EVERYBODY
        merged[name] = merged.get(name, 0) + (weight * n or 1)
    return released(merged, weight * least)


def _households(store: Store, publication: Publication) -> dict[str, int]:
    """Return the number of households in each group; 0 for a group that has counts but no known household.

    It is the number of the group's active devices in the inventory or, without an inventory, of its reports in the
    newest settled slot.
    """
    newest = publication.settled
    partial = store.partial(newest, newest, late=False) if newest >= 0 else Partial()
    counted = {group for group, _ in store.losses()} | set(store.conflicts()) | {key.group for key in partial}
    sizes = dict.fromkeys(sorted(counted), 0)
    active = [device.group for device in store.devices().values() if device.state == ACTIVE]
    for group in active:
        sizes[group] = sizes.get(group, 0) + 1
    if not active:
        for key, counts in partial.items():
            sizes[key.group] += reports_in(key.kind, counts)
    return sizes


def only_told(counts: Mapping[str, tuple[int, int]], told: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return a map of the ``told`` groups: group -> (missing reports, oldest slot), from ``counts`` of all groups.

    Under `EVERYBODY` is the sum over all groups, with the oldest slot of all.
    """
    rows = {group: row for group, row in counts.items() if group in told and group != EVERYBODY}
    if counts:
        rows[EVERYBODY] = (sum(n for n, _ in counts.values()), min(slot for _, slot in counts.values()))
    return rows

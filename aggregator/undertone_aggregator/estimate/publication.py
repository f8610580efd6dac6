"""Publication: the only module that decides which numbers may be public. Every output asks this module.

The unit is a *cell*: the reports of one group, one slot, one kind and one epoch, as they were when the slot settled.
Three rules hold.

1. A slot settles once (`settle`). If another server may have published a slot, a restored store never publishes it
   (`withhold`). The store keeps reports that come later in a table of their own. So what a settled slot holds is final,
   and so is every number made of it. Only the operator's own view of the store shows late reports.
2. For one slot, numbers of several groups and of all devices together may be published. They are published only if
   each of them, and the *remainder* of all devices less the published groups, is over no report or over at least
   ``min_reports``: see `released`. This holds for the reports of each epoch by themselves: after an epoch has begun, a
   few devices still send reports of the preceding one, which are made by another mechanism.
3. Everything else that is published (filtered series, means over slots, differences of these, quantiles) is made of
   released cells alone. A difference uses a slot of a group only if that cell is released. Quantiles need the reports
   for the threshold. A single slot has too few of these, so the cells of several slots are released as one: see
   `ReleasedCells.pooled`.

Groups are disjoint, so any sum or difference of published numbers is a combination of released groups and remainders.
If it contains any report, it therefore contains all reports of at least one released group or remainder.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import ReportOrigin, Tables
from undertone_aggregator.counts.histograms import Histograms, Slots, SlotSums
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial, reports_in
from undertone_aggregator.store.inventory import ACTIVE
from undertone_aggregator.store.store import SETTLED, CampaignEntries, Store
from undertone_shared import report

# Name of the stored value that lists [first slot, min_reports] for each min_reports under which a slot settled.
_SINCE = "min_reports_since"
# Name of the stored value that lists the groups whose counts were ever published.
_TOLD = "told_groups"
# Name of the stored value that lists [first slot, last slot] of the slots that are never published from this store.
_WITHHELD = "withheld_slots"
# Takes the place of the size of a group that is not published, where the smallest size is sought: larger than any size.
_ALL = np.iinfo(np.int64).max

Sizes = Mapping[str, int]
Shown = NDArray[np.bool_]


def released(sizes: Sizes, least: int) -> frozenset[str]:
    """Return the groups whose numbers may be published together; `EVERYBODY` among them stands for all reports.

    ``sizes``: reports of each group. Groups are disjoint, and the reports under `EVERYBODY` here are those in no group.
    ``least`` >= 1. Each published number, and the remainder of all reports minus the published groups, is over no or at
    least ``least`` reports. If the remainder would be smaller, the smallest of the groups that are large enough is
    withheld, too. With a larger ``least``, no group is published that a smaller ``least`` would withhold.
    """
    names = sorted(sizes)
    (shown,) = released_of_slots(np.array([[sizes[name] for name in names]]), np.array([least]), names)
    return frozenset(name for name, each in zip((EVERYBODY, *names), shown.tolist(), strict=True) if each)


def released_of_slots(sizes: Counts, least: Slots, names: Sequence[str]) -> Shown:
    """Return `released` of many slots [n, 1 + groups]: first for all reports, then for each group.

    ``sizes`` [n, groups]; ``least`` [n]; ``names``: the groups, sorted.
    """
    rest = sizes.sum(axis=1)
    shown = np.zeros((len(sizes), 1 + len(names)), dtype=np.bool_)
    shown[:, 0] = rest >= least
    slots = np.arange(len(sizes))
    without_group = names.index(EVERYBODY) if EVERYBODY in names else None
    # The largest group comes first. Of equally large groups, the one whose name comes first.
    for group in np.argsort(-sizes, axis=1, kind="stable").T:
        n = sizes[slots, group]
        fits = shown[:, 0] & (n >= least) & (group != without_group) & ((rest == n) | (rest - n >= least))
        shown[slots, 1 + group] = fits
        rest = rest - n * fits
    return shown


def smallest(sizes: Counts, shown: Shown) -> Slots:
    """Return for each slot the least number of reports in a published group or in the remainder, [n].

    If nothing is published, it is 0. Arrays as in `released_of_slots`.
    """
    parts = np.where(shown[:, 1:], sizes, _ALL)
    rest = sizes.sum(axis=1) - np.where(shown[:, 1:], sizes, 0).sum(axis=1)
    least = np.minimum(parts.min(axis=1, initial=_ALL), np.where(rest > 0, rest, _ALL))
    return np.where(shown[:, 0], least, 0)


class ReleasedCells:
    """The cells of settled slots that may be published, of each group and of all devices together.

    ``sums``: the sums of the reports in these slots. ``_slots``: the slots, ascending. ``_then`` [slots]: the
    min_reports that applied when each slot settled. ``_least`` [slots]: the one that applies now, at least ``_then``.
    """

    def __init__(self, sums: SlotSums, publication: "Publication") -> None:
        self._sums = sums
        tables = sums.tables
        none = np.array([], dtype=np.int64)
        self._slots = np.unique(np.concatenate([none, *(summed.slot for summed in tables.values())]))
        self._then = publication.then(self._slots)
        self._least = np.maximum(self._then, publication.least)
        self._place = {of: np.searchsorted(self._slots, summed.slot) for of, summed in tables.items()}
        self._has_mean = np.zeros(len(self._slots), dtype=np.bool_)
        for of, filled in self._measured():
            self._has_mean[self._place[of][filled]] = True

    def _measured(self) -> Iterator[tuple[ReportOrigin, Shown]]:
        """Yield each origin of measured means, and which of its slots have reports. Threshold rounds are left out."""
        for of, summed in self._sums.tables.items():
            if of.kind != report.COHORT:
                yield of, summed.reports.sum(axis=1) > 0

    @cached_property
    def _alone(self) -> dict[ReportOrigin, Shown]:
        """Whether each cell would be released if it were the only one of its slot [slots, 1 + groups]."""
        names = self._sums.names
        return {
            of: released_of_slots(summed.reports, self._least[self._place[of]], names)
            for of, summed in self._sums.tables.items()
        }

    @cached_property
    def _means(self) -> Shown:
        """Whether each slot's mean is released [slots, 1 + groups]."""
        return self._means_of(self._alone)

    def _means_of(self, alone: Mapping[ReportOrigin, Shown]) -> Shown:
        """Return whether each slot's mean is released, for some columns of ``alone``.

        A slot of a threshold round has no mean. For such a slot, return whether its reports for the threshold are
        released.
        """
        width = next((each.shape[1] for each in alone.values()), 0)
        means = np.zeros((len(self._slots), width), dtype=np.bool_)
        for of, filled in self._measured():
            means[self._place[of][filled]] |= alone[of][filled]
        for of, each in alone.items():
            learning = ~self._has_mean[self._place[of]]
            means[self._place[of][learning]] |= each[learning]
        return means

    @property
    def groups(self) -> list[str]:
        """Every group whose mean is released in a slot, sorted."""
        slots = self._means.sum(axis=0).tolist()
        return sorted({name for name, n in zip((EVERYBODY, *self._sums.names), slots, strict=False) if n})

    @property
    def smallest(self) -> int:
        """The least number of reports among which one report is hidden, over all slots; 0 if nothing is published.

        The report is hidden from a reader of everything that is published. Slots of threshold rounds are left out.
        """
        fewest = [
            smallest(self._sums.tables[of].reports[filled], self._alone[of][filled]) for of, filled in self._measured()
        ]
        return min((int(each) for each in np.unique(np.concatenate(fewest)) if each), default=0) if fewest else 0

    @cached_property
    def everybody(self) -> Tables:
        """The released histograms of all devices together."""
        # Whether the cells of all devices are released does not depend on the groups. Leaving the groups out saves
        # time.
        tables = self._sums.tables
        alone = {
            of: released_of_slots(summed.reports.sum(axis=1)[:, None], self._least[self._place[of]], [EVERYBODY])
            for of, summed in tables.items()
        }
        means = self._means_of(alone)
        shown = {of: alone[of][:, 0] & means[self._place[of], 0] for of in tables}
        return {of: (summed.slot[shown[of]], summed.counts[shown[of]]) for of, summed in tables.items()}

    def of(self, group: str, cells: Histograms) -> Tables:
        """Return the released histograms of a group. ``cells``: the histograms of the same slots, at least those of the
        group.
        """
        if group == EVERYBODY:
            return self.everybody
        column = 1 + self._sums.names.index(group) if group in self._sums.names else 0
        chosen = {}
        for of, (slots, counts) in cells.group(group).items():
            if column and of in self._alone:
                shown = self._alone[of][:, column] & self._means[self._place[of], column]
                own = np.isin(slots, self._sums.tables[of].slot[shown])
                chosen[of] = slots[own], counts[own]
        return chosen

    def pooled(self, cycle: int, every: int, first: int, last: int) -> Partial:
        """Return the cells of all devices that may be pooled over runs of ``every`` slots, from ``first`` to ``last``.

        In the report phase few reports of a slot are for the threshold, so whole bundles of slots are released, see
        `_bundles`. The bundles are the same for every selection. A bundle that would belong to two runs, or that lies
        only partly in the selection, is left out.
        """
        chosen: list[tuple[ReportOrigin, Slots, Counts]] = []
        for of, (slots, counts) in self.everybody.items():
            if of.kind != report.COHORT:
                within = (first <= slots) & (slots <= last)
                chosen.append((of, slots[within], counts[within]))
        for of in sorted(of for of in self._sums.tables if of.kind == report.COHORT):
            summed = self._sums.tables[of]
            members = summed.reports.sum(axis=1)
            for bundle in self._bundles(cycle, of, members):
                begin, end = int(summed.slot[bundle[0]]), int(summed.slot[bundle[-1]])
                within_run = first <= begin and end <= last and begin // every == end // every
                if within_run and members[bundle].sum() >= self._least[self._place[of][bundle]].max():
                    chosen.append((of, summed.slot[bundle], summed.counts[bundle]))
        return Partial.gather(
            (Key(of.campaign, of.fingerprint, of.kind, EVERYBODY, slot), each)
            for of, slots, counts in chosen
            for slot, each in zip(slots.tolist(), counts, strict=True)
        )

    def _bundles(self, cycle: int, of: ReportOrigin, members: Slots) -> Iterator[list[int]]:
        """Yield bundles of slots of one cycle. A bundle ends as soon as it has min_reports reports for the threshold.

        Each slot of a bundle is given by its index among the origin's slots. ``members``: the number of reports of each
        of these slots. The min_reports is the one that applied when the bundle's last slot settled.
        """
        places = self._place[of]
        slots, then, has_mean = self._slots[places], self._then[places].tolist(), self._has_mean[places].tolist()
        cycles, reports = (slots // cycle).tolist(), members.tolist()
        bundle: list[int] = []
        for place in range(len(places)):
            if bundle and cycles[place] != cycles[bundle[0]]:
                bundle = []
            if reports[place] >= then[place]:
                yield [place]
            elif has_mean[place] and reports[place]:
                bundle.append(place)
                if sum(reports[each] for each in bundle) >= then[place]:
                    yield bundle
                    bundle = []


@dataclass(frozen=True)
class Publication:
    """The publication state in a store. ``settled``: the newest settled slot, -1 before the first.

    ``least``: min_reports now. ``since``: each min_reports under which slots settled, as (first such slot,
    min_reports), ascending. To a slot applies the larger of min_reports now and when it settled, so that a number that
    was withheld then stays withheld. ``told``: the groups whose counts were ever published. ``withheld``: (first, last)
    of the slots that this store never publishes.
    """

    settled: int
    least: int
    since: tuple[tuple[int, int], ...] = ()
    told: frozenset[str] = frozenset()
    withheld: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, meta: Mapping[str, str], least: int) -> "Publication":
        """Read the publication state from the values that a store returns as ``meta``."""
        since = tuple((first, then) for first, then in json.loads(meta.get(_SINCE, "[]")))
        told = frozenset(json.loads(meta.get(_TOLD, "[]")))
        withheld = tuple((first, last) for first, last in json.loads(meta.get(_WITHHELD, "[]")))
        return cls(int(meta.get(SETTLED, -1)), least, since, told, withheld)

    def then(self, slots: Slots) -> Slots:
        """Return the min_reports that applied when each of ``slots`` [n] settled."""
        applied = np.array([self.least, *(least for _, least in self.since)])
        return np.asarray(applied[np.searchsorted([first for first, _ in self.since], slots, side="right")])

    def select(self, sums: SlotSums) -> ReleasedCells:
        """Return what may be published of ``sums``, which hold no late reports: settled slots, except those that are
        withheld.
        """
        return ReleasedCells(sums.until(self.settled).without(self.withheld), self)


def publication_of(store: CampaignEntries, least: int) -> Publication:
    """Return the publication state of a store, with ``least`` as the current min_reports."""
    return Publication.of(store.meta(SETTLED, _SINCE, _TOLD, _WITHHELD), least)


def settle(store: CampaignEntries, slot: int, least: int) -> Publication:
    """Settle all slots up to ``slot``, under min_reports ``least``; settled slots do not change. Raises StoreError."""
    with store.transaction():
        before = publication_of(store, least)
        if slot <= before.settled:
            return before
        since = before.since
        if not since or since[-1][1] != least:
            since = (*since, (before.settled + 1, least))
        store.set_meta({_SINCE: json.dumps(since), SETTLED: str(slot)})
    return Publication(slot, least, since, before.told, before.withheld)


def withhold(store: CampaignEntries, slot: int, least: int) -> tuple[int, int] | None:
    """Settle all slots up to ``slot``, and never publish those that had not settled before.

    This is for a store that was restored: another server may have published these slots after the backup was made, from
    more reports than the backup holds. A second number for one slot would tell more than the guarantee says. Return
    (first, last) of these slots, or None if all had settled. Raises StoreError.
    """
    with store.transaction():
        before = publication_of(store, least)
        if slot <= before.settled:
            return None
        span = (before.settled + 1, slot)
        settle(store, slot, least)
        store.set_meta({_WITHHELD: json.dumps([*before.withheld, span])})
    return span


def tell_groups(store: Store, least: int) -> frozenset[str]:
    """Return the groups whose counts may be published from now on, as `told_groups`, and record them in the store.

    Counts add up over time. If the counts of two groups were published one after the other, they could reveal the count
    of a third group. A group therefore joins the groups whose counts were ever published only if the counts of all of
    them may be published together now. Raises StoreError.
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
    """Return the groups whose counts (devices, losses) may be published.

    These groups, and the remainder, are large enough: the count of a group of one household would reveal whether that
    household takes part. Only groups that `tell_groups` recorded, and `EVERYBODY`, can be among them.
    """
    return _told(_households(store, publication), publication.told, publication.least)


def _told(sizes: Sizes, ever: frozenset[str], least: int) -> frozenset[str]:
    """Return those groups of ``ever``, and `EVERYBODY`, that are large enough for their counts to be published."""
    # A group without a known household must appear in the sum, but hides nobody. So it counts as a fraction of a
    # household, so small that all such groups together count as less than one household.
    weight = len(sizes) + 1
    merged: dict[str, int] = {}
    for group, n in sizes.items():
        name = group if group in ever else EVERYBODY
        merged[name] = merged.get(name, 0) + (weight * n or 1)
    return released(merged, weight * least)


def _households(store: Store, publication: Publication) -> dict[str, int]:
    """Return the number of households in each group; 0 for a group that has counts but no known household.

    A group has as many households as active devices in the inventory; if the inventory has no active device, as many as
    reports in the newest settled slot.
    """
    newest = publication.settled
    partial = store.partial(newest, newest, late=False) if newest >= 0 else Partial()
    counted = set(store.lost()) | set(store.conflicts()) | {key.group for key in partial}
    sizes = dict.fromkeys(sorted(counted), 0)
    active = [device.group for device in store.devices().values() if device.state == ACTIVE]
    for group in active:
        sizes[group] = sizes.get(group, 0) + 1
    if not active:
        for key, counts in partial.items():
            sizes[key.group] += reports_in(key.kind, counts)
    return sizes


def only_told(counts: Mapping[str, tuple[int, int]], told: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return ``counts`` of the ``told`` groups and of all devices: group -> (missing reports, oldest slot).

    Under `EVERYBODY` is the sum over all groups, with the oldest slot of all; it is absent if ``counts`` is empty.
    """
    rows = {group: row for group, row in counts.items() if group in told and group != EVERYBODY}
    if counts:
        rows[EVERYBODY] = (sum(n for n, _ in counts.values()), min(slot for _, slot in counts.values()))
    return rows

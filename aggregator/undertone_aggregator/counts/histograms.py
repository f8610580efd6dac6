"""Histograms of many slots and groups as arrays, and their sums by slot: the form of large series.

A year of half-hours of fifty groups has nearly a million histograms of each kind: too many for one Python object each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import ReportOrigin, Tables
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key
from undertone_shared.report import STREAM

Slots = NDArray[np.int64]


class GroupRows(NamedTuple):
    """Histograms of one origin, ordered by slot, then group; there is at most one for each slot and group.

    ``slot`` [n]; ``group`` [n]: index of the group's name; ``counts`` [n, cells].
    """

    slot: Slots
    group: NDArray[np.intp]
    counts: Counts


class Summed(NamedTuple):
    """Sums of one origin's histograms over all groups, by ascending slot.

    ``slot`` [n]; ``counts`` [n, cells]: the histograms of all groups together; ``reports`` [n, groups]: the number of
    each group's reports.
    """

    slot: Slots
    counts: Counts
    reports: Counts


_Table = TypeVar("_Table", GroupRows, Summed)


class SlotSums:
    """`Summed` by origin. ``names``: the groups, sorted, in the order of the columns of `Summed.reports`."""

    def __init__(self, names: Sequence[str], tables: Mapping[ReportOrigin, Summed]) -> None:
        self.names = tuple(names)
        self.tables = _ordered(tables)

    @classmethod
    def together(cls, parts: Sequence["SlotSums"]) -> "SlotSums":
        """Return the sums of all parts. No slot of an origin may be in two parts."""
        names = sorted({name for part in parts for name in part.names})
        wide: dict[ReportOrigin, list[Summed]] = {}
        for part in parts:
            columns = np.searchsorted(names, part.names) if part.names else np.array([], dtype=np.intp)
            for origin, (slot, counts, reports) in part.tables.items():
                all_groups = np.zeros((len(slot), len(names)), dtype=np.int64)
                all_groups[:, columns] = reports
                wide.setdefault(origin, []).append(Summed(slot, counts, all_groups))
        return cls(
            names,
            {origin: Summed(*map(np.concatenate, zip(*each, strict=True))) for origin, each in wide.items()},
        )

    def until(self, last: int) -> "SlotSums":
        """Return the sums of the slots up to ``last``."""
        ends = {origin: int(np.searchsorted(summed.slot, last, side="right")) for origin, summed in self.tables.items()}
        return SlotSums(
            self.names,
            {origin: Summed(*(column[: ends[origin]] for column in summed)) for origin, summed in self.tables.items()},
        )

    def without(self, spans: Iterable[tuple[int, int]]) -> "SlotSums":
        """Return the sums without the slots first <= slot <= last of each of the ``spans``."""
        tables = dict(self.tables)
        for first, last in spans:
            for origin, summed in tables.items():
                kept = (summed.slot < first) | (summed.slot > last)
                tables[origin] = Summed(*(column[kept] for column in summed))
        return SlotSums(self.names, tables)

    def everybody(self) -> Tables:
        """Return the histograms of all groups together."""
        return {origin: (summed.slot, summed.counts) for origin, summed in self.tables.items()}


class Histograms:
    """`GroupRows` by origin. ``names``: the groups, sorted."""

    def __init__(self, names: Sequence[str], tables: Mapping[ReportOrigin, GroupRows]) -> None:
        self.names = tuple(names)
        self.tables = _ordered(tables)

    @classmethod
    def of(cls, partial: Mapping[Key, Counts]) -> "Histograms":
        """Return a Partial's histograms by column."""
        names = sorted({key.group for key in partial})
        alike: dict[ReportOrigin, list[tuple[int, int, Counts]]] = {}
        for (campaign, fingerprint, kind, group, slot), counts in partial.items():
            origin = ReportOrigin(campaign, fingerprint, kind, len(counts))
            alike.setdefault(origin, []).append((slot, names.index(group), counts))
        tables = {}
        for origin, rows in alike.items():
            places = np.array([row[:2] for row in rows], dtype=np.int64)
            tables[origin] = rows_of(places[:, 0], places[:, 1], np.stack([counts for *_, counts in rows]))
        return cls(names, tables)

    def items(self) -> Iterator[tuple[Key, Counts]]:
        """Yield the histograms as the rows of a Partial."""
        for origin, (slots, groups, counts) in self.tables.items():
            campaign, fingerprint, kind, _ = origin
            for slot, group, each in zip(slots.tolist(), groups.tolist(), counts, strict=True):
                yield Key(campaign, fingerprint, kind, self.names[group], slot), each

    def group(self, name: str) -> Tables:
        """Return the histograms of one group."""
        if name not in self.names:
            return {}
        number = self.names.index(name)
        own = {origin: rows.group == number for origin, rows in self.tables.items()}
        return {origin: (rows.slot[own[origin]], rows.counts[own[origin]]) for origin, rows in self.tables.items()}

    def each_group(self, groups: Iterable[str] | None = None) -> Iterator[tuple[str, Tables]]:
        """Yield (name, histograms) for ``groups``, sorted; None: for each group and for all devices together."""
        for name in sorted({*self.names, EVERYBODY} if groups is None else set(groups)):
            yield name, self.sums().everybody() if name == EVERYBODY else self.group(name)

    def sums(self) -> SlotSums:
        """Return the sums over all groups, by slot."""
        return SlotSums(self.names, {origin: self._summed(origin.kind, rows) for origin, rows in self.tables.items()})

    def _summed(self, kind: int, rows: GroupRows) -> Summed:
        first = _firsts(rows.slot)
        sent = np.zeros((len(first), len(self.names)), dtype=np.int64)
        place = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows.slot)))
        sent[place, rows.group] = reports_of(kind, rows.counts)
        return Summed(rows.slot[first], np.add.reduceat(rows.counts, first), sent)


def reports_of(kind: int, counts: Counts) -> Slots:
    """Return the numbers of reports [n] in histograms, or vectors of moments, [n, cells] of this kind."""
    return counts[:, 0] if kind == STREAM else np.asarray(counts.sum(axis=1))


def rows_of(slot: Slots, group: NDArray[np.intp], counts: Counts) -> GroupRows:
    """Return histograms ordered by slot and group. Those of one slot and group, from several workers, are added up."""
    if not len(slot):
        return GroupRows(slot, group, counts)
    rank = slot * (int(group.max()) + 1) + group
    if (np.diff(rank) > 0).all():
        return GroupRows(slot, group, counts)
    order = np.argsort(rank, kind="stable")
    first = _firsts(rank[order])
    return GroupRows(slot[order][first], group[order][first], np.add.reduceat(counts[order], first))


def _firsts(ascending: Slots) -> NDArray[np.intp]:
    """Return the places at which a new number begins."""
    return np.flatnonzero(np.diff(ascending, prepend=ascending[0] - 1)) if len(ascending) else np.array([], np.intp)


def _ordered(tables: Mapping[ReportOrigin, _Table]) -> dict[ReportOrigin, _Table]:
    """Return the tables that have rows, by their first slot."""
    some = ((origin, table) for origin, table in tables.items() if len(table.slot))
    return dict(sorted(some, key=lambda item: (int(item[1].slot[0]), item[0])))

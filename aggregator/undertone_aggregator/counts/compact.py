"""The histograms of one group in little memory, so that long series of many groups fit side by side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial


class ReportOrigin(NamedTuple):
    """Where reports come from: the epoch of this ``fingerprint``, a ``kind`` of report, and histograms' length."""

    campaign: str
    fingerprint: bytes
    kind: int
    cells: int


class Compact:
    """Histograms as tables of the smallest integers that hold them; a `Partial` needs a hundred times the memory."""

    def __init__(self) -> None:
        # (slots [n], counts [n, cells]) by source, in the order of the calls of ``add``.
        self._tables: dict[ReportOrigin, list[tuple[NDArray[np.uint32], NDArray[np.integer]]]] = {}

    @classmethod
    def of(cls, partial: Mapping[Key, Counts], group: str) -> "Compact":
        """Return the histograms of one group; for `EVERYBODY` those of all groups, whose sums are the histograms."""
        compact = cls()
        compact.add(item for item in partial.items() if group in (item[0].group, EVERYBODY))
        return compact

    def add(self, rows: Iterable[tuple[Key, Counts]]) -> None:
        """Add histograms, or vectors of moments, of any groups."""
        alike: dict[ReportOrigin, tuple[list[int], list[Counts]]] = {}
        for (campaign, fingerprint, kind, _, slot), counts in rows:
            slots, tables = alike.setdefault(ReportOrigin(campaign, fingerprint, kind, len(counts)), ([], []))
            slots.append(slot)
            tables.append(counts)
        for source, (slots, tables) in alike.items():
            numbers, table = _summed([(np.array(slots, dtype=np.int64), np.stack(tables))])
            small = np.result_type(np.min_scalar_type(table.min(initial=0)), np.min_scalar_type(table.max(initial=0)))
            self._tables.setdefault(source, []).append((numbers.astype(np.uint32), table.astype(small)))

    def tables(self) -> dict[ReportOrigin, tuple[NDArray[np.int64], Counts]]:
        """Return (ascending slots [n], histograms [n, cells]) by source; histograms of one slot are added up."""
        return {source: _summed(tables) for source, tables in self._tables.items()}

    def partial(self, group: str) -> Partial:
        """Return all histograms as those of a group."""
        return Partial(
            {
                Key(source.campaign, source.fingerprint, source.kind, group, slot): counts
                for source, (slots, table) in self.tables().items()
                for slot, counts in zip(slots.tolist(), table, strict=True)
            }
        )


def _summed(tables: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]) -> tuple[NDArray[np.int64], Counts]:
    """Return the tables as one with ascending slots; histograms of one slot are added up."""
    slots = np.concatenate([slots for slots, _ in tables]).astype(np.int64)
    counts = np.concatenate([table for _, table in tables]).astype(np.int64)
    if (np.diff(slots) > 0).all():
        return slots, counts
    order = np.argsort(slots, kind="stable")
    slots, first = np.unique(slots[order], return_index=True)
    return slots, np.add.reduceat(counts[order], first)

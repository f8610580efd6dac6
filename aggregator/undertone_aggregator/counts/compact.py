"""The histograms of one group in little memory, so that long series of many groups fit side by side."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import Counts


class ReportOrigin(NamedTuple):
    """What the histograms of one table have in common.

    ``fingerprint``: that of the epoch; ``kind``: the kind of report; ``cells``: the length of each histogram.
    """

    campaign: str
    fingerprint: bytes
    kind: int
    cells: int


# (ascending slots [n], histograms [n, cells]) by origin.
Tables = Mapping[ReportOrigin, tuple[NDArray[np.int64], Counts]]


class Compact:
    """Histograms as tables of the smallest integers that hold them, which need much less memory than a `Partial`."""

    def __init__(self) -> None:
        # (slots [n], counts [n, cells]) by origin, in the order of the calls of ``add``.
        self._tables: dict[ReportOrigin, list[tuple[NDArray[np.uint32], NDArray[np.integer]]]] = {}

    def add(self, tables: Tables) -> None:
        """Add histograms, or vectors of moments, of one group."""
        for source, (slots, table) in tables.items():
            if len(slots):
                least, most = np.min_scalar_type(table.min(initial=0)), np.min_scalar_type(table.max(initial=0))
                small = np.result_type(least, most)
                self._tables.setdefault(source, []).append((slots.astype(np.uint32), table.astype(small)))

    def tables(self) -> dict[ReportOrigin, tuple[NDArray[np.int64], Counts]]:
        """Return (ascending slots [n], histograms [n, cells]) by origin. Histograms of the same slot are added up."""
        return {source: _summed(tables) for source, tables in self._tables.items()}


def _summed(tables: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]) -> tuple[NDArray[np.int64], Counts]:
    """Return the tables as a single table with ascending slots. Histograms of the same slot are added up."""
    slots = np.concatenate([slots for slots, _ in tables]).astype(np.int64)
    counts = np.concatenate([table for _, table in tables]).astype(np.int64)
    if (np.diff(slots) > 0).all():
        return slots, counts
    order = np.argsort(slots, kind="stable")
    slots, first = np.unique(slots[order], return_index=True)
    return slots, np.add.reduceat(counts[order], first)

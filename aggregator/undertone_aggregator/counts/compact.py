"""The histograms of one group in little memory, so that long series of many groups fit side by side."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import Counts, Key, Partial


class Compact:
    """Histograms as tables of the smallest integers that hold them: one byte a cell where a `Partial` needs hundreds.

    ``add`` gets distinct keys: the slots of one call are not those of another.
    """

    def __init__(self) -> None:
        # (any key of the table, slots [n], counts [n, cells]); the keys of a table differ in their slots only.
        self._tables: list[tuple[Key, NDArray[np.uint32], NDArray[np.integer]]] = []

    def add(self, partial: Mapping[Key, Counts]) -> None:
        """Add histograms, or vectors of moments."""
        alike: dict[tuple[Key, int], list[tuple[int, Counts]]] = {}
        for key, counts in partial.items():
            alike.setdefault((key._replace(slot=0), len(counts)), []).append((key.slot, counts))
        for (key, _), rows in alike.items():
            table = np.stack([counts for _, counts in rows])
            small = np.result_type(np.min_scalar_type(table.min(initial=0)), np.min_scalar_type(table.max(initial=0)))
            self._tables.append((key, np.array([slot for slot, _ in rows], dtype=np.uint32), table.astype(small)))

    def partial(self) -> Partial:
        """Return all histograms."""
        return Partial(
            {
                key._replace(slot=slot): counts
                for key, slots, table in self._tables
                for slot, counts in zip(slots.tolist(), table.astype(np.int64), strict=True)
            }
        )

"""Moments of released stream values: for each slot one vector of counts, which adds up like a histogram.

- Cell 0: the number of reports in the slot.
- Cells 1 to 64, one for each lag in slots: the number of devices with a report in this slot and another one that many
  slots earlier, both on the same chain.
- Then four cells or more for each chain age from 1 to the rule's number of reports, but at most 256: the number of
  reports, and for each coordinate Σu, Σhigh and Σlow. Here X is a released value, u = X + 2^31 > 0, and
  u² = 2^32 high + low. A report's age is its chain index. The cells of the last age also hold all older reports.

Adding two vectors adds the moments exactly, so that `Partial`, store and backup treat them like histograms.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from undertone_shared.stream import StreamRule

Counts = NDArray[np.int64]

LAGS = 64
AGES = 256
_BIAS = 1 << 31
_HALF = 32
_LOW = (1 << _HALF) - 1
_HEAD = 1 + LAGS


@dataclass(frozen=True)
class Layout:
    """The places of the moments in the vector, for ``dimension`` coordinates and ``ages`` chain ages."""

    dimension: int
    ages: int

    @property
    def cells(self) -> int:
        """Number of cells of the vector of moments."""
        return _HEAD + self.ages * self._row

    @property
    def _row(self) -> int:
        return 1 + 3 * self.dimension

    def report(self, released: tuple[int, ...], index: int) -> list[tuple[int, int]]:
        """Return each (cell, amount) that one report with chain index ``index`` adds to the vector."""
        at = _HEAD + (min(index, self.ages) - 1) * self._row
        added = [(0, 1), (at, 1)]
        for k, x in enumerate(released):
            u = x + _BIAS
            added += [(at + 1 + 3 * k, u), (at + 2 + 3 * k, u * u >> _HALF), (at + 3 + 3 * k, u * u & _LOW)]
        return added

    def sums_at(self, index: int, coordinate: int, n: int, *sums: int) -> list[tuple[int, int]]:
        """Return each (cell, amount) that ``n`` reports of one chain index add for one coordinate, counted from 0.

        ``sums``: Σu, Σhigh and Σlow of the coordinate. The reports themselves are counted with coordinate 0 only.
        """
        at = _HEAD + (min(index, self.ages) - 1) * self._row
        added = [(at + 1 + 3 * coordinate + part, amount) for part, amount in enumerate(sums)]
        return added if coordinate else [(0, n), (at, n), *added]

    def reports(self, released: Counts, index: Counts) -> Counts:
        """Return the vector of moments of reports [n] that have one coordinate each and chain indices [n]."""
        counts = np.zeros(self.cells, dtype=np.int64)
        counts[0] = len(released)
        at = _HEAD + (np.minimum(index, self.ages) - 1) * self._row
        u = (released + _BIAS).astype(np.uint64)
        squares = u * u
        for part, amount in enumerate((np.ones_like(u), u, squares >> np.uint64(_HALF), squares & np.uint64(_LOW))):
            np.add.at(counts, at + part, amount.astype(np.int64))
        return counts

    def pair(self, lag: int) -> list[tuple[int, int]]:
        """Return the (cell, count) that a device adds with reports in this slot and ``lag`` (1 to 64) slots earlier."""
        return [(lag, 1)]

    def ages_of(self, counts: Counts) -> Counts:
        """Return the number of reports [..., ages] by chain age; ``counts`` [..., cells]."""
        return counts[..., _HEAD :: self._row]

    def pairs(self, counts: Counts) -> Counts:
        """Return the number of devices [..., 64] with reports in this slot and 1 to 64 slots earlier, on one chain."""
        return counts[..., 1:_HEAD]

    def sum_of(self, counts: Counts, coordinate: int = 0) -> Counts:
        """Return ΣX [...] of one coordinate (counted from 0), exactly; ``counts`` [..., cells]."""
        # X = u - 2^31.
        return np.asarray(counts[..., _HEAD + 1 + 3 * coordinate :: self._row].sum(axis=-1) - counts[..., 0] * _BIAS)


@lru_cache(maxsize=64)
def layout_of(rule: StreamRule) -> Layout:
    """Return the layout for a rule's reports."""
    return Layout(rule.dimension, min(rule.reports, AGES))

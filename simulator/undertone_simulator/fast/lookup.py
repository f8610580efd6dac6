"""Search of many numbers in a few sorted bounds, by a table of the numbers' leading bits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Unsigned = NDArray[np.uint32]
Index = NDArray[np.intp]

# A table has at most this many buckets, so that it fits in the second-level cache of a core.
_BUCKETS = 1 << 16
# Value of a bucket that contains a bound: numbers in such a bucket must be searched one by one.
_SEARCH = np.uint32(0xFFFFFFFF)


class Lookup:
    """`numpy.searchsorted(bounds, x, side="right")` of integers 0 <= x < ``stop``, but faster.

    ``bounds`` must be sorted integers, of which some may lie outside the range.
    """

    def __init__(self, bounds: NDArray[np.int64], stop: int) -> None:
        self._bounds = bounds
        self._shift = max((stop - 1).bit_length() - (_BUCKETS.bit_length() - 1), 0)
        starts = np.arange((stop - 1 >> self._shift) + 1, dtype=np.int64) << self._shift
        first = np.searchsorted(bounds, starts, side="right")
        last = np.searchsorted(bounds, starts + ((1 << self._shift) - 1), side="right")
        self._found = np.where(first == last, first, _SEARCH).astype(np.uint32)

    def __call__(self, x: NDArray[Any]) -> Unsigned:
        """Return for each x how many bounds are at most x."""
        found: Unsigned = self._found[x >> x.dtype.type(self._shift)]
        if self._shift:
            rest = np.flatnonzero(found == _SEARCH)
            found[rest] = np.searchsorted(self._bounds, x[rest], side="right")
        return found

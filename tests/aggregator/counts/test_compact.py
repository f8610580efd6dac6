"""Compact histograms are the histograms that went in, whatever their numbers, cells and epochs are."""

import numpy as np

from undertone_aggregator.counts.compact import Compact
from undertone_aggregator.counts.partial import Key, Partial


def test_what_goes_in_comes_out() -> None:
    rows = {
        Key("c", epoch, kind, "north", slot): np.array(counts, dtype=np.int64)
        for slot, epoch, kind, counts in [
            (7, b"a", 1, [0, 3, 255]),
            (8, b"a", 1, [1, 0, 0]),
            (8, b"b", 1, [0, 70_000, 0]),
            (8, b"b", 2, [5, 6]),
            (4_294_967_295, b"c", 3, [1, -(2**40), 2**33]),
        ]
    }
    compact = Compact()
    items = list(rows.items())
    compact.add(Partial(dict(items[:2])))
    compact.add(Partial())
    compact.add(Partial(dict(items[2:])))
    assert compact.partial() == Partial(rows)
    assert {counts.dtype for counts in compact.partial().values()} == {np.dtype(np.int64)}

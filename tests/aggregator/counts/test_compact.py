"""Compact histograms are the histograms that went in, whatever their numbers, cells and epochs are."""

import numpy as np

from undertone_aggregator.counts.compact import Compact, ReportOrigin
from undertone_aggregator.counts.histograms import Histograms
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
    compact, items = Compact(), list(rows.items())
    for part in (items[:2], [], items[2:]):
        compact.add(Histograms.of(dict(part)).group("north"))
    assert compact.partial("north") == Partial(rows)
    assert {counts.dtype for counts in compact.partial("north").values()} == {np.dtype(np.int64)}


def test_all_devices_have_the_sums_of_all_groups() -> None:
    counts = {"north": [1, 250], "south": [2, 30], "all": [0, 1]}
    rows = {Key("c", b"a", 1, group, 7): np.array(each, dtype=np.int64) for group, each in counts.items()}
    slots, table = Compact.of(Partial(rows), "all").tables()[ReportOrigin("c", b"a", 1, 2)]
    assert (slots.tolist(), table.tolist()) == ([7], [[3, 281]])
    both = Compact.of(Partial(rows), "north")
    both.add({ReportOrigin("c", b"a", 1, 2): (np.array([5]), np.array([[2, 30]]))})
    slots, table = both.tables()[ReportOrigin("c", b"a", 1, 2)]
    assert (slots.tolist(), table.tolist()) == ([5, 7], [[2, 30], [1, 250]])

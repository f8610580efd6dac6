"""`Compact` gives back the histograms that were added to it; those of one slot and origin are added up."""

import numpy as np

from support.tables import tables_of
from undertone_aggregator.counts.compact import Compact, ReportOrigin, Tables
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import Counts, Key, Partial


def rows_of(tables: Tables) -> dict[tuple[bytes, int, int], list[int]]:
    """Return the histograms by (epoch, kind, slot)."""
    return {
        (origin.fingerprint, origin.kind, slot): counts
        for origin, (slots, table) in tables.items()
        for slot, counts in zip(slots.tolist(), table.tolist(), strict=True)
    }


def test_what_goes_in_comes_out() -> None:
    rows: dict[Key, Counts] = {
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
    whole = {(key.fingerprint, key.kind, key.slot): counts.tolist() for key, counts in rows.items()}
    assert rows_of(compact.tables()) == rows_of(tables_of(rows, "north")) == whole
    assert {table.dtype for _, table in compact.tables().values()} == {np.dtype(np.int64)}


def test_histograms_of_one_slot_are_added_up() -> None:
    counts = {"north": [1, 250], "south": [2, 30], "all": [0, 1]}
    rows = Partial({Key("c", b"a", 1, group, 7): np.array(each, dtype=np.int64) for group, each in counts.items()})
    assert rows_of(tables_of(rows)) == {(b"a", 1, 7): [3, 281]}
    both = Compact()
    both.add(tables_of(rows, "north"))
    both.add({ReportOrigin("c", b"a", 1, 2): (np.array([5, 7]), np.array([[2, 30], [1, 1]]))})
    assert rows_of(both.tables()) == {(b"a", 1, 5): [2, 30], (b"a", 1, 7): [2, 251]}

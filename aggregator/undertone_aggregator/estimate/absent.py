"""Rows for slots without a number, so that a series has one row for each slot."""

from collections.abc import Iterable

import numpy as np

from undertone_aggregator.estimate.estimates import ABSENT, Estimates

# Largest number of consecutive slots without a number that get rows: more than a year of half-hours. A longer gap gets
# no rows, because the campaign was paused and continued later.
LONGEST_GAP = 20_000


def with_absent(
    estimates: Estimates, first: int, last: int, slot_seconds: int, groups: Iterable[str], dimension: int = 1
) -> Estimates:
    """Return the rows, and for each slot first..last in which a series has no raw row, a row without a number.

    The result is sorted by slot, then series. ``groups``: the groups whose series are completed. A group without any
    raw row gets the coordinates of the other groups' rows, or all ``dimension`` of them if no group has a row. A gap of
    more than `LONGEST_GAP` slots gets no rows.
    """
    raw = estimates.take(~estimates.filtered)
    parts = [estimates]
    coordinates = np.flatnonzero(np.bincount(raw.coordinate)).tolist() or range(1, dimension + 1)
    for group in groups:
        for coordinate in coordinates:
            present = np.sort(raw.slot[(raw.group == group) & (raw.coordinate == coordinate)])
            before, after = np.append(first - 1, present), np.append(present, last + 1)
            gaps = (after - before > 1) & (after - before - 1 <= LONGEST_GAP)
            pairs = zip(before[gaps].tolist(), after[gaps].tolist(), strict=True)
            slots = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(low + 1, high) for low, high in pairs)])
            empty = {"reports": 0, "cohort": 0, "coordinate": coordinate}
            parts.append(
                Estimates.each(len(slots), group=group, kind=ABSENT, slot=slots, start=slots * slot_seconds, **empty)
            )
    return Estimates.together(parts)

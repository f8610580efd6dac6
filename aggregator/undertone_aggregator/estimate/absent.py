"""Rows for slots without a number, so that a series has one row for each slot."""

from collections.abc import Iterable, Sequence

from undertone_aggregator.estimate.estimates import Estimate, Series

# Largest number of consecutive slots without a number that get rows: more than a year of half-hours. A longer gap gets
# no rows, because the campaign was paused and continued later.
LONGEST_GAP = 20_000


def with_absent(
    rows: Sequence[Estimate], first: int, last: int, slot_seconds: int, groups: Iterable[str], dimension: int = 1
) -> list[Estimate]:
    """Return the rows, and for each slot first..last in which a series has no raw row, a row without a number.

    The result is sorted by slot, then series. ``groups``: the groups whose series are completed. A group without any
    raw row gets the coordinates of the other groups' rows, or all ``dimension`` of them if no group has a row. A gap of
    more than `LONGEST_GAP` slots gets no rows.
    """
    slots: dict[Series, set[int]] = {}
    for row in rows:
        if not row.series.filtered:
            slots.setdefault(row.series, set()).add(row.slot)
    coordinates = {series.coordinate for series in slots} or range(1, dimension + 1)
    complete = list(rows)
    for series in sorted({Series(group, coordinate) for group in groups for coordinate in coordinates}):
        before = first - 1
        for slot in [*sorted(slots.get(series, ())), last + 1]:
            if slot - before - 1 <= LONGEST_GAP:
                complete += [Estimate.absent(at, at * slot_seconds, series) for at in range(before + 1, slot)]
            before = slot
    return sorted(complete, key=lambda row: (row.slot, row.series))

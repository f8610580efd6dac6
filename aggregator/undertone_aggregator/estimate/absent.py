"""Rows for slots without a number, so that a series has one row for each slot."""

from collections.abc import Iterable, Sequence

from undertone_aggregator.estimate.estimates import Estimate, Series

# A longer gap (more than a year of half-hours) gets no rows: the campaign was paused and continued.
LONGEST_GAP = 20_000


def with_absent(
    rows: Sequence[Estimate], first: int, last: int, slot_seconds: int, groups: Iterable[str]
) -> list[Estimate]:
    """Return the rows and one for each slot first..last that has no raw one, of every series, by slot, then series.

    ``groups``: those whose series are completed. Without a row the coordinates are those of the other rows, or 1.
    A gap of more than `LONGEST_GAP` slots gets no rows.
    """
    slots: dict[Series, set[int]] = {}
    for row in rows:
        if not row.series.filtered:
            slots.setdefault(row.series, set()).add(row.slot)
    coordinates = {series.coordinate for series in slots} or {1}
    made = list(rows)
    for series in sorted({Series(group, coordinate) for group in groups for coordinate in coordinates}):
        before = first - 1
        for slot in [*sorted(slots.get(series, ())), last + 1]:
            if slot - before - 1 <= LONGEST_GAP:
                made += [Estimate.absent(at, at * slot_seconds, series) for at in range(before + 1, slot)]
            before = slot
    return sorted(made, key=lambda row: (row.slot, row.series))

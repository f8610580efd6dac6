"""Losses over time: for each slot the reports that came, that came too late, and that are missing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, reports_in
from undertone_aggregator.estimate.estimates import Row


@dataclass(frozen=True)
class SlotLosses(Row):
    """The reports of a group in one slot, those for the threshold included.

    ``reports``: number of reports in the slot's published numbers, or in all numbers of an operator's view; 0 if it has
    none. ``late``: number of reports that came after the slot had settled. ``lost``: number of missing reports that
    were noticed in this slot: a report for this slot showed, by its sequence number, that its device had drawn them for
    earlier slots, and they had not come. ``late`` and ``lost`` are None for a group whose counts may not be published.
    """

    plural: ClassVar[str] = "losses"

    slot: int
    start: int
    group: str
    reports: int
    late: int | None
    lost: int | None

    @property
    def is_gap(self) -> bool:
        """True if no report is in the slot's numbers, or if reports of it are late or were noticed as missing."""
        return not self.reports or bool(self.late) or bool(self.lost)


@dataclass(frozen=True)
class Gap(Row):
    """Consecutive slots of one group in which reports are missing, see `SlotLosses.is_gap`.

    ``start``, ``end``: Unix seconds. ``slots``: number of slots, ``empty`` of them without any number.
    """

    plural: ClassVar[str] = "gaps"

    start: int
    end: int
    group: str
    slots: int
    empty: int
    late: int | None
    lost: int | None


def reports_by_slot(partial: Mapping[Key, Counts], group: str) -> Counter[int]:
    """Return a map: slot -> number of reports of a group, `EVERYBODY` for all of them."""
    reports: Counter[int] = Counter()
    for key, counts in partial.items():
        if group in (key.group, EVERYBODY):
            reports[key.slot] += reports_in(key.kind, counts)
    return reports


def gaps(rows: Sequence[SlotLosses], slot_seconds: int) -> list[Gap]:
    """Return the gaps in one group's rows, which are ascending, one for each slot."""
    runs: list[list[SlotLosses]] = []
    for row in rows:
        if row.is_gap:
            if runs and runs[-1][-1].slot == row.slot - 1:
                runs[-1].append(row)
            else:
                runs.append([row])
    return [
        Gap(
            start=run[0].start,
            end=run[-1].start + slot_seconds,
            group=run[0].group,
            slots=len(run),
            empty=sum(not row.reports for row in run),
            late=_sum([row.late for row in run]),
            lost=_sum([row.lost for row in run]),
        )
        for run in runs
    ]


def _sum(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None

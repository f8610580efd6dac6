"""Losses over time: for each slot reports that came, came too late, are missing, or were refused."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.histograms import reports_of
from undertone_aggregator.estimate.estimates import Row


@dataclass(frozen=True)
class SlotLosses(Row):
    """The reports of a group in one slot, including those for the threshold.

    ``reports``: number of reports behind the slot's published numbers; in an operator's view, number of all its counted
    reports, also the late ones. ``late``: number of reports that came after the slot had settled. ``lost``: number of
    missing reports that were noticed in this slot: a report for this slot showed, by its sequence number, that its
    device had drawn them for earlier slots, and they had not come. ``late`` and ``lost`` are None for a group whose
    counts may not be published. ``refused``: number of deliveries that arrived during this slot, for any slot, and that
    the server refused. It is None for a single group, because a refused delivery may come from any device or from none,
    and None if it may not be published.
    """

    plural: ClassVar[str] = "losses"

    slot: int
    start: int
    group: str
    reports: int
    late: int | None
    lost: int | None
    refused: int | None

    @property
    def is_gap(self) -> bool:
        """True if ``reports`` is 0, if reports of the slot are late, or if missing reports were noticed in the slot.

        A refused delivery alone does not make a gap, because it does not show that a report is missing.
        """
        return not self.reports or bool(self.late) or bool(self.lost)


@dataclass(frozen=True)
class Gap(Row):
    """Consecutive slots of one group in which reports are missing, see `SlotLosses.is_gap`.

    ``start``, ``end``: Unix seconds. ``slots``: number of slots; in ``empty`` of them ``reports`` is 0.
    """

    plural: ClassVar[str] = "gaps"

    start: int
    end: int
    group: str
    slots: int
    empty: int
    late: int | None
    lost: int | None
    refused: int | None


@dataclass(frozen=True)
class SlotRefusals(Row):
    """The ``deliveries`` that arrived during one slot and that the server refused for one ``reason``.

    ``slot``: the slot of arrival; a delivery may be for another slot. ``start``: its first Unix second. ``reason``: a
    key of `undertone_aggregator.ingest.admission.REASONS`.
    """

    plural: ClassVar[str] = "refusals"

    slot: int
    start: int
    reason: str
    deliveries: int


def reports_by_slot(histograms: Tables) -> Counter[int]:
    """Return a map: slot -> number of reports in a group's histograms."""
    reports: Counter[int] = Counter()
    for origin, (slots, counts) in histograms.items():
        reports.update(dict(zip(slots.tolist(), reports_of(origin.kind, counts).tolist(), strict=True)))
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
            refused=_sum([row.refused for row in run]),
        )
        for run in runs
    ]


def _sum(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None

"""What simulated devices have reported: the counts that a server would keep, and the truth that it never sees."""

from dataclasses import dataclass, field
from typing import NamedTuple

from undertone_aggregator.counts.partial import Counts, Key, Partial, add_counts


class Cell(NamedTuple):
    """What truths are of: a slot, and a coordinate of its readings."""

    slot: int
    coordinate: int = 0


@dataclass
class Truth:
    """Of the devices of a group whose reports a cell counts, or where devices take turns, of all for whom they stand:
    their number and the sums of what they measured less the offset, raw, and as the mechanism took it: truncated to
    the slot's θ, or in a stream the clipped grid points. Exact integers.
    """

    reports: int = 0
    truncated: int = 0
    raw: int = 0

    def add(self, reports: int, truncated: int, raw: int) -> None:
        """Count more devices."""
        self.reports += reports
        self.truncated += truncated
        self.raw += raw


@dataclass
class SimulationTally:
    """Sums of integers, so the order in which parts of a fleet are counted cannot matter."""

    counts: dict[Key, Counts] = field(default_factory=dict)
    truths: dict[Cell, dict[str, Truth]] = field(default_factory=dict)

    def count(self, key: Key, counts: Counts) -> None:
        """Add a histogram or moments."""
        self.counts[key] = add_counts(self.counts[key], counts) if key in self.counts else counts

    def observe(self, cell: Cell, group: str, reports: int, truncated: int, raw: int) -> None:
        """Add what so many devices of a group measured."""
        self.truths.setdefault(cell, {}).setdefault(group, Truth()).add(reports, truncated, raw)

    def merge(self, other: "SimulationTally") -> None:
        """Add another part of the fleet, or of time."""
        for key, counts in other.counts.items():
            self.count(key, counts)
        for cell, truths in other.truths.items():
            for group, truth in truths.items():
                self.observe(cell, group, truth.reports, truth.truncated, truth.raw)

    def partial(self, first: int, last: int, kind: int) -> Partial:
        """The partial of first <= slot <= last, of one kind of report."""
        return Partial(
            {key: counts for key, counts in self.counts.items() if key.kind == kind and first <= key.slot <= last}
        )

"""Counts of simulated devices' reports, as a server would count them, and the truth that a server never sees."""

from dataclasses import dataclass, field
from typing import NamedTuple

from undertone_aggregator.counts.partial import Counts, Key, Partial, add_counts


class Cell(NamedTuple):
    """Key of a true value: a slot, and a coordinate of its readings."""

    slot: int
    coordinate: int = 0


@dataclass
class Truth:
    """True sums over the devices of a group whose reports a cell counts.

    If devices take turns, the sums are over all devices of the group that are not absent, also those whose turn it
    is not.

    ``reports``: number of devices; ``raw``: sum of their readings less the offset; ``truncated``: sum of what the
    mechanism received: readings truncated to the slot's θ, or in a stream the clipped grid points. Exact integers.
    """

    reports: int = 0
    truncated: int = 0
    raw: int = 0

    def add(self, reports: int, truncated: int, raw: int) -> None:
        """Add the sums over further devices."""
        self.reports += reports
        self.truncated += truncated
        self.raw += raw


@dataclass
class SimulationTally:
    """Sums of integers, so that the order in which parts of a fleet are counted does not matter."""

    counts: dict[Key, Counts] = field(default_factory=dict)
    truths: dict[Cell, dict[str, Truth]] = field(default_factory=dict)
    # Slot -> the keys of ``counts`` with this slot.
    _keys: dict[int, list[Key]] = field(default_factory=dict)

    def count(self, key: Key, counts: Counts) -> None:
        """Add a histogram or moments."""
        if key in self.counts:
            self.counts[key] = add_counts(self.counts[key], counts)
        else:
            self.counts[key] = counts
            self._keys.setdefault(key.slot, []).append(key)

    def observe(self, cell: Cell, group: str, reports: int, truncated: int, raw: int) -> None:
        """Add ``reports`` devices of a group, with the sums of their truncated and of their raw readings."""
        self.truths.setdefault(cell, {}).setdefault(group, Truth()).add(reports, truncated, raw)

    def merge(self, other: "SimulationTally") -> None:
        """Add the counts of another part of the fleet, or of other slots."""
        for key, counts in other.counts.items():
            self.count(key, counts)
        for cell, truths in other.truths.items():
            for group, truth in truths.items():
                self.observe(cell, group, truth.reports, truth.truncated, truth.raw)

    def partial(self, first: int, last: int, kind: int) -> Partial:
        """Return the counts of one kind of report in the slots first <= slot <= last."""
        slots = range(first, min(last, max(self._keys, default=0)) + 1)
        keys = (key for slot in slots for key in self._keys.get(slot, ()))
        return Partial({key: self.counts[key] for key in keys if key.kind == kind})

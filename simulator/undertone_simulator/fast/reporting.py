"""Reports of simulated devices under a campaign: one class for each kind of rule, in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from undertone_aggregator.counts.moments import layout_of
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ScalarRule
from undertone_shared.stream import StreamRule
from undertone_simulator.fast.draws import Words
from undertone_simulator.fast.fleet import Flags, FleetPart
from undertone_simulator.fast.tally import Cell, SimulationTally
from undertone_simulator.fast.vectorised import histogram, histograms
from undertone_simulator.fast.vectorised_stream import Streams, Unsigned, moments
from undertone_simulator.readings.readings import Integers
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.liar import largest_lie

# Number of reports that are drawn together if single slots have fewer. It is large enough to make numpy's overhead
# small.
TOGETHER = 1 << 15


@dataclass(frozen=True)
class ReportContext:
    """Input of the reports of one campaign.

    ``start``: the campaign's first slot. ``reporting``: the first slot of the report phase, from which faults are
    counted; None as long as that phase has not begun.
    """

    campaign: Campaign
    seeded: Seeded
    start: int
    reporting: int | None


class Reporting(Protocol):
    """A part of a fleet that reports slot by slot, in order."""

    # True if a slot's reports depend on the slots before: then one object must simulate all slots of the campaign.
    remembers: ClassVar[bool]
    # Number of coordinates of a reading.
    coordinates: int

    def report(self, slots: Sequence[int], readings: Integers, measured: Flags | None) -> None:
        """Count the reports of ascending slots; ``readings``: [slots, coordinates, devices], less the offset.

        ``measured``: mask [slots, devices] of readings that exist, None for all. A device without a reading is absent.
        """


class ScalarReporting:
    """Reports of one value, drawn by the threshold cohort's mechanism or by the report rule's."""

    remembers = False
    coordinates = 1

    def __init__(self, context: ReportContext, part: FleetPart, tally: SimulationTally) -> None:
        assert isinstance(context.campaign.rule, ScalarRule)
        self._rule = context.campaign.rule
        self._context = context
        self._part = part
        self._tally = tally

    def report(self, slots: Sequence[int], readings: Integers, measured: Flags | None) -> None:
        """Draw and count the part's reports, as `Reporting.report` says."""
        at_once = max(TOGETHER // len(self._part), 1)
        for first in range(0, len(slots), at_once):
            some = slice(first, first + at_once)
            self._report(slots[some], readings[some, 0], None if measured is None else measured[some])

    def _report(self, slots: Sequence[int], readings: Integers, measured: Flags | None) -> None:
        """Draw the reports of a few slots together, because numpy is slow with few numbers at a time."""
        context, part = self._context, self._part
        schedule = context.campaign.schedule
        present = np.stack([part.reporting(slot, context.start) for slot in slots])
        if measured is not None:
            present &= measured
        lying = np.empty_like(present)
        for row, slot in enumerate(slots):
            silent, lying[row] = part.struck(slot, context.reporting)
            if silent is not None:
                present[row] &= ~silent
        turns = [part.turns(schedule, slot) for slot in slots]
        turn, chosen = (np.stack(flags) for flags in zip(*turns, strict=True))
        if schedule.stride > 1:
            # If devices take turns, the devices that report represent all devices.
            self._observe(slots, present, readings)
        present &= turn
        self._count(slots, report.COHORT, present & chosen, readings, lying)
        self._count(slots, report.REPORT, present & ~chosen, readings, lying)

    def _observe(self, slots: Sequence[int], present: Flags, readings: Integers) -> None:
        """Record the truth about the devices that are ``present`` [slots, devices]."""
        rule, cycle = self._rule.report, self._context.campaign.cycle
        if rule is None:
            return
        ends = np.array([rule.range_of(slot, cycle) for slot in slots])
        truncated = np.clip(readings, ends[:, :1], ends[:, 1:])
        for group, members in self._part.groups():
            inside = present[:, members]
            sums = (np.where(inside, of[:, members], 0).sum(axis=1).tolist() for of in (truncated, readings))
            for slot, reports, *both in zip(slots, inside.sum(axis=1).tolist(), *sums, strict=True):
                if reports:
                    self._tally.observe(Cell(slot), group, reports, *both)

    def _count(self, slots: Sequence[int], kind: int, present: Flags, readings: Integers, lying: Flags) -> None:
        """Draw and count one kind of report of the devices that are ``present`` [slots, devices]."""
        campaign, rule = self._context.campaign, self._rule
        if kind == report.COHORT or rule.report is None:
            self._count_range(slots, kind, rule.cohort.mechanism, (0, campaign.bound), present, readings, lying)
            return
        if campaign.schedule.stride == 1:
            self._observe(slots, present, readings)
        # Slots with the same range are drawn together.
        rows: dict[tuple[int, int], list[int]] = {}
        for row, slot in enumerate(slots):
            rows.setdefault(rule.report.range_of(slot, campaign.cycle), []).append(row)
        for ends, some in rows.items():
            arrays = (
                (present, readings, lying) if len(some) == len(slots) else (present[some], readings[some], lying[some])
            )
            self._count_range([slots[row] for row in some], kind, rule.report.mechanism, ends, *arrays)

    def _count_range(
        self,
        slots: Sequence[int],
        kind: int,
        mechanism: Mechanism,
        ends: tuple[int, int],
        present: Flags,
        readings: Integers,
        lying: Flags,
    ) -> None:
        """Draw and count the reports of slots with the same range."""
        campaign, (low, high) = self._context.campaign, ends
        for group, members in self._part.groups():
            inside, liars = present[:, members], lying[:, members]
            reporting = np.flatnonzero(inside.any(axis=1)).tolist()
            if not reporting:
                continue
            lies = np.zeros(len(slots), dtype=np.int64)
            if liars.any():
                lies = np.count_nonzero(inside & liars, axis=1)
                inside = inside & ~liars
            places = self._part.positions[members]
            if len(slots) == 1:
                # For a single slot, the usual case in large fleets, there is no need to build a row index for each
                # device.
                index = slice(None) if inside.all() else np.flatnonzero(inside[0])
                words: Words = self._context.seeded.words_at(slots[0], places).part(index)
                truncated = np.clip(readings[0, members][index], low, high) - low
                counts = histogram(mechanism, truncated, high - low, words)[None]
            else:
                rows, columns = np.nonzero(inside)
                words = self._context.seeded.words_of_slots(slots, rows, places[columns])
                truncated = np.clip(readings[:, members][rows, columns], low, high) - low
                counts = histograms(mechanism, truncated, high - low, words, rows, len(slots))
            counts[:, largest_lie(mechanism)] += lies
            for row in reporting:
                key = Key(campaign.name, campaign.fingerprint, kind, group, slots[row])
                self._tally.count(key, counts[row])


class StreamReporting:
    """Stream reports. A device that joins late begins its stream then; after a power loss it begins another chain."""

    remembers = True

    def __init__(self, context: ReportContext, part: FleetPart, tally: SimulationTally) -> None:
        rule = context.campaign.rule
        assert isinstance(rule, StreamRule)
        self.coordinates = rule.dimension
        self._context = context
        self._part = part
        self._tally = tally
        self._rule = rule
        self._streams = Streams(rule, len(part), context.campaign.first_slot)

    def report(self, slots: Sequence[int], readings: Integers, measured: Flags | None) -> None:
        """Draw and count the part's reports, as `Reporting.report` says."""
        for row, slot in enumerate(slots):
            self._report(slot, readings[row], None if measured is None else measured[row])

    def _report(self, slot: int, readings: Integers, measured: Flags | None) -> None:
        context, part, streams = self._context, self._part, self._streams
        awake = part.joined(slot, context.start)
        if measured is not None:
            awake &= measured
        silent, lying = part.struck(slot, context.reporting)
        if silent is not None:
            streams.forget(silent)
            awake &= ~silent
        drawn = streams.draw(slot, readings, awake, context.seeded.buffers(slot, part.devices))
        admitted = drawn & part.reporting(slot, context.start)
        windows = streams.admit(slot, drawn, admitted)
        self._count(slot, readings, admitted, lying, windows)

    def _count(self, slot: int, readings: Integers, admitted: Flags, lying: Flags, windows: Unsigned) -> None:
        rule, campaign = self._rule, self._context.campaign
        layout, row = layout_of(rule), slot % rule.lag
        index, point = self._streams.index[row], self._streams.point[row]
        # A simulated liar sends the top of the range, but computes its next reports as an honest device does.
        sent = np.where(lying, rule.levels // 2, self._streams.released[row])
        for group, chosen in self._part.members(admitted):
            for k in range(rule.dimension):
                sums = int(point[k, chosen].sum()), int(readings[k, chosen].sum())
                self._tally.observe(Cell(slot, k), group, len(index[chosen]), *sums)
            counts = moments(layout, rule.lag, index[chosen], sent[:, chosen], windows[chosen])
            self._tally.count(Key(campaign.name, campaign.fingerprint, report.STREAM, group, slot), counts)


# Reporting classes by the kind of a campaign's rule.
REPORTING: dict[str, type[ScalarReporting] | type[StreamReporting]] = {
    "scalar": ScalarReporting,
    "stream": StreamReporting,
}


def reporting_of(campaign: Campaign) -> type[ScalarReporting] | type[StreamReporting]:
    """Return the reporting class for a campaign. Raises Invalid for a kind that is not simulated."""
    kind = campaign.rule.kind
    if kind not in REPORTING:
        raise Invalid(f"rule.kind is {kind!r}, expected one of {', '.join(REPORTING)}")
    return REPORTING[kind]

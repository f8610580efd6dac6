"""Reports of simulated devices under a campaign: one class for each kind of rule, in one table."""

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
from undertone_simulator.fast.fleet import Flags, FleetPart
from undertone_simulator.fast.tally import Cell, SimulationTally
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.fast.vectorised_stream import Streams, Unsigned, moments
from undertone_simulator.readings.readings import Integers
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.liar import largest_lie


@dataclass(frozen=True)
class ReportContext:
    """Input of the reports of one campaign.

    ``start``: the first slot of all; ``reporting``: the first slot of the report phase, from which faults are counted,
    None before it.
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

    def report(self, slot: int, readings: Integers) -> None:
        """Count the slot's reports; ``readings``: [coordinates, devices], less the offset."""


class ScalarReporting:
    """Reports with one value: by the threshold cohort's mechanism or by the report rule's."""

    remembers = False
    coordinates = 1

    def __init__(self, context: ReportContext, part: FleetPart, tally: SimulationTally) -> None:
        assert isinstance(context.campaign.rule, ScalarRule)
        self._rule = context.campaign.rule
        self._context = context
        self._part = part
        self._tally = tally

    def report(self, slot: int, readings: Integers) -> None:
        """Draw and count the part's reports of a slot, as `Reporting.report` says."""
        context, part = self._context, self._part
        present = part.reporting(slot, context.start)
        silent, lying = part.struck(slot, context.reporting)
        if silent is not None:
            present &= ~silent
        turn, chosen = part.turns(context.campaign.schedule, slot)
        if context.campaign.schedule.stride > 1:
            # If devices take turns, those that report represent all devices.
            self._observe(slot, present, readings[0])
        present &= turn
        self._count(slot, report.COHORT, present & chosen, readings[0], lying)
        self._count(slot, report.REPORT, present & ~chosen, readings[0], lying)

    def _observe(self, slot: int, present: Flags, readings: Integers) -> None:
        """Record the truth about all devices that the slot's reporters represent."""
        if self._rule.report is None:
            return
        low, high = self._rule.report.range_of(slot, self._context.campaign.cycle)
        for group, members in self._part.members(present):
            raw = readings[members]
            self._tally.observe(Cell(slot), group, len(raw), int(np.clip(raw, low, high).sum()), int(raw.sum()))

    def _count(self, slot: int, kind: int, present: Flags, readings: Integers, lying: Flags) -> None:
        campaign, rule = self._context.campaign, self._rule
        mechanism: Mechanism
        if kind == report.COHORT or rule.report is None:
            mechanism, low, high = rule.cohort.mechanism, 0, campaign.bound
        else:
            mechanism, (low, high) = rule.report.mechanism, rule.report.range_of(slot, campaign.cycle)
        for group, members in self._part.members(present):
            words, raw = self._context.seeded.words_at(slot, self._part.positions).part(members), readings[members]
            truncated = np.clip(raw, low, high)
            if kind == report.REPORT and campaign.schedule.stride == 1:
                self._tally.observe(Cell(slot), group, len(raw), int(truncated.sum()), int(raw.sum()))
            if low:
                truncated -= low
            lies = 0
            if lying.any():
                liars = lying[members]
                lies = int(np.count_nonzero(liars))
                honest = np.flatnonzero(~liars)
                words, truncated = words.part(honest), truncated[honest]
            counts = histogram(mechanism, truncated, high - low, words)
            if lies:
                counts[largest_lie(mechanism)] += lies
            self._tally.count(Key(campaign.name, campaign.fingerprint, kind, group, slot), counts)


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

    def report(self, slot: int, readings: Integers) -> None:
        """Draw and count the part's reports of a slot, as `Reporting.report` says."""
        context, part, streams = self._context, self._part, self._streams
        awake = part.joined(slot, context.start)
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

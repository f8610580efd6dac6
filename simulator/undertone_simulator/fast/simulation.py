"""Simulation of a campaign on a population of any size without a network, with the counts that a server would have.

Rounds, θ and estimates come from the server's own code. Reports come from the vectorised mechanisms, which draw what
each device would have drawn. Every random word is a function of (seed, device, slot), so the result does not depend on
the chunks' size or on the number of workers. The threshold is decided when the server would decide it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np

from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.campaign.stream_rounds import StreamRounds
from undertone_aggregator.counts.epochs import REPORT_PHASE, THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.settings.config import CampaignPlan, StreamPlan
from undertone_shared.checks import check_integer
from undertone_shared.schedule import SEED_BYTES
from undertone_simulator.fast.crowd import Crowd
from undertone_simulator.fast.fleet import Flags, FleetPart, SimulatedFleet
from undertone_simulator.fast.parallel import InProcess, Tick, Workers
from undertone_simulator.fast.reporting import ReportContext, reporting_of
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.fast.tally import SimulationTally
from undertone_simulator.fast.vectorised import BLOCK
from undertone_simulator.readings.begin import START
from undertone_simulator.readings.behaviour import HONEST, Behaviour
from undertone_simulator.readings.readings import Integers, ReadingSource
from undertone_simulator.seeded import LARGEST_DEVICE, Seeded
from undertone_simulator.wire.faults import Fault
from undertone_simulator.wire.ledger import Play
from undertone_simulator.wire.playback import Continuous, Playback, column_of

# Number of devices that are simulated together, as many as one vectorised draw takes: their readings fit in memory.
CHUNK = BLOCK


def begins(plan: CampaignPlan) -> int:
    """Return the Unix second at which a simulated campaign must be issued to make its first slot start as planned."""
    seconds = plan.slot_seconds
    start = plan.start if plan.start is not None else -(-START // seconds) * seconds
    return start - plan.lead_slots * seconds


@dataclass(frozen=True)
class Stretch:
    """Task of a worker: some slots of one epoch, for devices first <= i < stop. len() is the number of device-slots."""

    context: ReportContext
    plays: tuple[Play, ...]
    slots: range
    first: int
    stop: int

    def __len__(self) -> int:
        return (self.stop - self.first) * len(self.slots)


def play(fleet: SimulatedFleet, stretch: Stretch, tick: Tick) -> SimulationTally:
    """Simulate all reports of a stretch; ``tick`` is called with device-slots."""
    tally = SimulationTally()
    part = fleet.part(stretch.first, stretch.stop)
    devices = reporting_of(stretch.context.campaign)(stretch.context, part, tally)
    for day in _days(stretch.slots, stretch.plays, fleet.source.per_day):
        columns = [column_of(stretch.plays, slot) for slot in day]
        devices.report(day, *_measured(stretch.context, part, columns, devices.coordinates))
        tick(len(part) * len(day))
    return tally


def play_crowd(crowd: Crowd, fleet: SimulatedFleet, stretch: Stretch, tick: Tick) -> SimulationTally:
    """Simulate as `play` does, for a crowd; ``fleet`` is the crowd's sample, and ``stretch`` has all of the sample."""
    tally = SimulationTally()
    part = fleet.part(stretch.first, stretch.stop)
    for day in _days(stretch.slots, stretch.plays, fleet.source.per_day):
        columns = [column_of(stretch.plays, slot) for slot in day]
        readings, measured = _measured(stretch.context, part, columns, 1)
        crowd.report(stretch.context, tally, day, readings[:, 0], measured)
        tick(len(part) * len(day))
    return tally


def _measured(
    context: ReportContext, part: FleetPart, columns: Sequence[int], coordinates: int
) -> tuple[Integers, Flags | None]:
    """Return (readings [slots, coordinates, devices], mask [slots, devices] of those that exist or None for all).

    Coordinate k is the device's reading k days later.
    """
    later = [[column + k * part.per_day for column in columns] for k in range(coordinates)]
    measured, present = zip(*(part.measured(context.campaign, days) for days in later), strict=True)
    masks = [mask for mask in present if mask is not None]
    # A single coordinate, the usual case, is not copied.
    readings = measured[0][:, np.newaxis] if coordinates == 1 else np.stack(measured, axis=1)
    return readings, np.logical_and.reduce(masks) if masks else None


def _days(slots: Sequence[int], plays: Sequence[Play], per_day: int) -> Iterator[list[int]]:
    """Divide the slots into parts, each with readings of a single day of the population."""
    for _, piece in groupby(slots, key=lambda slot: column_of(plays, slot) // per_day):
        yield list(piece)


class Simulation:
    """Simulates `devices` of a population under a campaign plan, or its ``stream``.

    All random words come from ``seed``.

    ``faults``: the faults of `undertone_simulator.wire.faults` that change the counts; ``groups``: the server's
    registry, device -> group. ``playback`` gives the column of the population that a slot measures; ``progress(done,
    planned)`` is called with device-slots; ``workers`` simulate the fleet's parts. ``crowd``: number of devices for
    which the ``devices`` of the population are a sample, see `fast.crowd`; None if they are the fleet. Raises Invalid
    for numbers out of range.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        source: ReadingSource,
        devices: int,
        seed: int,
        *,
        stream: StreamPlan | None = None,
        behaviour: Behaviour = HONEST,
        faults: Sequence[Fault] = (),
        groups: Mapping[str, str] | None = None,
        playback: Playback | Continuous | None = None,
        chunk: int = CHUNK,
        workers: Workers | None = None,
        crowd: int | None = None,
        progress: Callable[[int, int], None] = lambda done, planned: None,
    ) -> None:
        check_integer("devices", devices, 1, LARGEST_DEVICE)
        self._plan = plan
        self._seeded = Seeded(seed)
        self._fleet = SimulatedFleet(plan.sensor, devices, source, behaviour, faults, groups)
        self._playback = playback or Continuous()
        self._chunk = check_integer("chunk", chunk, 1, 1 << 26)
        work = play if crowd is None else partial(play_crowd, Crowd(crowd, devices, seed))
        self._call = (workers or InProcess()).bind(work, self._fleet)
        self._progress = progress
        self._done = 0
        self._plays: list[Play] = []
        self._tally = SimulationTally()
        self._epochs: list[Epoch] = []
        cohort_seed = plan.cohort_seed or self._seeded.source(LARGEST_DEVICE)(SEED_BYTES)
        self._result = Simulated(replace(plan, cohort_seed=cohort_seed), Timeline(()), Partial(), stream=stream)
        means = EpochMeans(cohort_seed, self._tally.partial)
        self._rounds = Rounds(plan, means) if stream is None else StreamRounds(plan, stream, means)

    def run(self) -> Simulated:
        """Simulate the whole campaign: its threshold rounds, if it has any, then the plan's report slots."""
        plan, rounds, seconds = self._plan, self._rounds, self._plan.slot_seconds
        now = begins(plan)
        timeline = self._issue(rounds.first(now))
        slot = timeline.epochs[0].campaign.first_slot
        self._progress(0, self._left(timeline, slot))
        due = rounds.due(timeline, now)
        while due is not None:
            self._play(timeline, range(slot, due // seconds))
            slot = due // seconds
            epoch = rounds.next(timeline, due)
            if epoch is not None:
                timeline = self._issue(epoch)
                due = rounds.due(timeline, due)
            elif self._phase(timeline) == REPORT_PHASE:
                due = rounds.due(timeline, due + plan.epoch_slots * seconds)
            else:
                # Nobody has reported, so the round continues, at most to the end that was broadcast.
                due = due + seconds if slot <= self._last(timeline) else None
        self._play(timeline, range(slot, self._last(timeline) + 1))
        result = self._result
        result.timeline, result.partial, result.truths = timeline, Partial(self._tally.counts), self._tally.truths
        return result

    def _issue(self, epoch: Epoch) -> Timeline:
        self._epochs.append(epoch)
        play = self._playback.next(self._plays, epoch.campaign)
        if play is not None:
            self._plays.append(play)
        return Timeline(self._epochs)

    @staticmethod
    def _phase(timeline: Timeline) -> str:
        return THRESHOLD_PHASE if timeline.last is None else timeline.last.phase

    @staticmethod
    def _last(timeline: Timeline) -> int:
        assert timeline.last is not None
        return timeline.last.campaign.last_slot

    def _left(self, timeline: Timeline, slot: int) -> int:
        """Return the number of device-slots from ``slot`` to the end of the last epoch that is known."""
        return self._fleet.count * (self._last(timeline) + 1 - slot)

    def _play(self, timeline: Timeline, slots: range) -> None:
        """Simulate all reports of these slots, whose epochs are already issued."""
        planned = self._done + self._left(timeline, slots.start)

        def tick(done: int) -> None:
            self._done += done
            self._progress(self._done, planned)

        for tally in self._call(list(self._stretches(timeline, slots)), tick):
            self._tally.merge(tally)

    def _stretches(self, timeline: Timeline, slots: range) -> Iterator[Stretch]:
        """Yield stretches in order, divided by epoch and devices.

        They are divided by day as well if reports do not depend on earlier slots.
        """
        reporting = next((play.first for play in self._plays if play.phase == REPORT_PHASE), None)
        start = self._epochs[0].campaign.first_slot
        plays = tuple(self._plays)
        for epoch, piece in groupby(slots, key=timeline.at):
            if epoch is None:
                continue
            context = ReportContext(epoch.campaign, self._seeded, start, reporting)
            collected = list(piece)
            remembers = reporting_of(epoch.campaign).remembers
            days = [collected] if remembers else list(_days(collected, plays, self._fleet.source.per_day))
            for day in days:
                for first in range(0, self._fleet.count, self._chunk):
                    stop = min(first + self._chunk, self._fleet.count)
                    yield Stretch(context, plays, range(day[0], day[-1] + 1), first, stop)

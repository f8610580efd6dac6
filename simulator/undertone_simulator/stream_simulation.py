"""A stream campaign without a wire: the moments that an aggregator would have kept, device by device as they release.

One epoch, and nothing to adapt: each chunk of devices goes through the whole campaign before the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.moments import layout_of
from undertone_aggregator.collect.partial import Counts, Key, Partial, add_counts
from undertone_aggregator.config import CampaignPlan, StreamPlan
from undertone_aggregator.stream_rounds import StreamRounds
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.checks import check_integer
from undertone_simulator.behaviour import HONEST, Behaviour
from undertone_simulator.crowd import Crowd, Part
from undertone_simulator.faults import Fault
from undertone_simulator.playback import Continuous, Playback
from undertone_simulator.readings import Integers, Source
from undertone_simulator.seeded import LARGEST_DEVICE, Seeded
from undertone_simulator.simulated import Simulated, Truth
from undertone_simulator.simulation import CHUNK, begins
from undertone_simulator.vectorised_stream import Flags, Streams, Unsigned, moments


class StreamSimulation:
    """`undertone_simulator.simulation.Simulation` for streams, which ``stream`` describes. A device that joins late

    begins its stream then; one that loses power begins another chain. Raises Invalid.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        stream: StreamPlan,
        source: Source,
        devices: int,
        seed: int,
        *,
        behaviour: Behaviour = HONEST,
        faults: Sequence[Fault] = (),
        groups: Mapping[str, str] | None = None,
        playback: Playback | Continuous | None = None,
        chunk: int = CHUNK,
        progress: Callable[[int, int], None] = lambda done, planned: None,
    ) -> None:
        check_integer("devices", devices, 1, LARGEST_DEVICE)
        check_integer("chunk", chunk, 1, 1 << 26)
        epoch = StreamRounds(plan, stream).first(begins(plan))
        self._campaign: Campaign = epoch.campaign
        assert epoch.campaign.stream is not None
        self._rule = epoch.campaign.stream
        self._seeded = Seeded(seed)
        self._crowd = Crowd(plan.sensor, devices, source, behaviour, faults, groups)
        play = (playback or Continuous()).next([], epoch.campaign)
        assert play is not None
        self._play = play
        # Each interleaved chain has a state of its own.
        self._chunk = max(1, chunk // self._rule.lag)
        self._progress = progress
        self._counts: dict[Key, Counts] = {}
        self._result = Simulated(plan, Timeline([epoch]), Partial(), stream=stream)

    def run(self) -> Simulated:
        """The whole campaign."""
        campaign = self._campaign
        slots = range(campaign.first_slot, campaign.last_slot + 1)
        done = 0
        for part in self._crowd.chunks(self._chunk):
            streams = Streams(self._rule, len(part), campaign.first_slot)
            for slot, readings in self._readings(part, slots):
                self._report(part, streams, slot, readings)
                done += len(part)
                self._progress(done, self._crowd.count * len(slots))
        self._result.partial = Partial(self._counts)
        return self._result

    def _readings(self, part: Part, slots: Sequence[int]) -> Iterator[tuple[int, Integers]]:
        """Slots with what their devices measure, a day of the population at a time."""
        for _, day in groupby(slots, key=lambda slot: self._column(slot) // self._crowd.source.per_day):
            piece = list(day)
            measured = part.measured(self._campaign, [self._column(slot) for slot in piece])
            yield from zip(piece, measured, strict=True)

    def _column(self, slot: int) -> int:
        return self._play.column + (slot - self._play.first) * self._play.stride

    def _report(self, part: Part, streams: Streams, slot: int, readings: Integers) -> None:
        start = self._campaign.first_slot
        awake = part.joined(slot, start)
        silent, lying = part.struck(slot, start)
        if silent is not None:
            streams.forget(silent)
            awake &= ~silent
        drawn = streams.draw(slot, readings, awake, self._seeded.buffers(slot, part.devices))
        admitted = drawn & part.reporting(slot, start)
        windows = streams.admit(slot, drawn, admitted)
        self._count(part, streams, slot, readings, admitted, lying, windows)

    def _count(
        self,
        part: Part,
        streams: Streams,
        slot: int,
        readings: Integers,
        admitted: Flags,
        lying: Flags,
        windows: Unsigned,
    ) -> None:
        rule, campaign = self._rule, self._campaign
        layout, row = layout_of(rule), slot % rule.lag
        index, point = streams.index[row], streams.point[row]
        # A liar keeps its chain and sends the top of the range.
        sent = np.where(lying, rule.levels // 2, streams.released[row])
        for group, chosen in part.members(admitted):
            truth = self._result.truths.setdefault(slot, {}).setdefault(group, Truth())
            truth.add(len(index[chosen]), int(point[chosen].sum()), int(readings[chosen].sum()))
            counts = moments(layout, rule.lag, index[chosen], sent[chosen], windows[chosen])
            key = Key(campaign.name, campaign.fingerprint, report.STREAM, group, slot)
            self._counts[key] = add_counts(self._counts[key], counts) if key in self._counts else counts

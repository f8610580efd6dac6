"""A campaign over a population of any size without a wire: the same Partials that an aggregator would have counted.

Threshold rounds, θ and estimates come from the server's own `Rounds` and `Reconstruction`; reports from the vectorised
mechanisms, which draw what each device would have drawn. Time passes slot by slot, devices in chunks; every word of
entropy is addressed by (seed, device, slot), so the chunks' size cannot matter. The threshold is looked at when the
server would: at the start of the slot that is due. Streams are `undertone_simulator.stream_simulation`'s.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect.epochs import REPORT, THRESHOLD, Epoch, Timeline
from undertone_aggregator.collect.partial import Counts, Key, Partial, add_counts
from undertone_aggregator.config import CampaignPlan
from undertone_aggregator.rounds import Rounds
from undertone_shared import report
from undertone_shared.campaign import SEED_BYTES, Campaign
from undertone_shared.checks import check_integer
from undertone_shared.cohort import WHOLE
from undertone_simulator.behaviour import HONEST, Behaviour
from undertone_simulator.crowd import Crowd, Part
from undertone_simulator.faults import Fault
from undertone_simulator.ledger import Play
from undertone_simulator.liar import largest_lie
from undertone_simulator.playback import Continuous, Playback
from undertone_simulator.readings import Source
from undertone_simulator.seeded import LARGEST_DEVICE, Seeded
from undertone_simulator.simulated import Simulated, Truth
from undertone_simulator.vectorised import Mechanism, histogram

# Devices at a time; a day of their readings is what is in memory.
CHUNK = 1 << 16
# When a simulated campaign starts, unless it says so: a Monday in UTC, and a multiple of every sensible slot.
START = 1_798_416_000


def begins(plan: CampaignPlan) -> int:
    """The Unix second at which a simulated campaign is issued, for its first slot to start as planned."""
    seconds = plan.slot_seconds
    start = plan.start if plan.start is not None else -(-START // seconds) * seconds
    return start - plan.lead_slots * seconds


class Simulation:
    """`devices` of a population under a campaign plan, with all entropy from one ``seed``.

    ``faults`` are those of the wire fleet, as far as they change what is counted; ``groups``: the server's registry,
    device -> group. ``playback`` says which column of the population a slot measures; ``progress(done, planned)`` is
    called with device-slots. Raises Invalid for numbers out of range.
    """

    def __init__(
        self,
        plan: CampaignPlan,
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
        self._plan = plan
        self._seeded = Seeded(seed)
        self._crowd = Crowd(plan.sensor, devices, source, behaviour, faults, groups)
        self._playback = playback or Continuous()
        self._chunk = check_integer("chunk", chunk, 1, 1 << 26)
        self._progress = progress
        self._done = 0
        self._plays: list[Play] = []
        self._counts: dict[Key, Counts] = {}
        self._epochs: list[Epoch] = []
        cohort_seed = plan.cohort_seed or self._seeded.source(LARGEST_DEVICE)(SEED_BYTES)
        self._result = Simulated(replace(plan, cohort_seed=cohort_seed), Timeline(()), Partial())
        self._rounds = Rounds(plan, cohort_seed, self._read)

    def run(self) -> Simulated:
        """The whole campaign: threshold rounds, then the plan's report slots."""
        plan, rounds, seconds = self._plan, self._rounds, self._plan.slot_seconds
        now = begins(plan)
        timeline = self._issue(rounds.first(now))
        slot = timeline.epochs[0].campaign.first_slot
        due = rounds.due(timeline, now)
        while due is not None:
            self._play(timeline, range(slot, due // seconds))
            slot = due // seconds
            epoch = rounds.next(timeline, due)
            if epoch is not None:
                timeline = self._issue(epoch)
                due = rounds.due(timeline, due)
            elif self._phase(timeline) == REPORT:
                due = rounds.due(timeline, due + plan.epoch_slots * seconds)
            else:
                # Nobody has reported: the round goes on, at most to the end of what was broadcast.
                due = due + seconds if slot <= self._last(timeline) else None
        self._play(timeline, range(slot, self._last(timeline) + 1))
        self._result.timeline, self._result.partial = timeline, Partial(self._counts)
        return self._result

    def _issue(self, epoch: Epoch) -> Timeline:
        self._epochs.append(epoch)
        play = self._playback.next(self._plays, epoch.campaign)
        if play is not None:
            self._plays.append(play)
        return Timeline(self._epochs)

    @staticmethod
    def _phase(timeline: Timeline) -> str:
        return THRESHOLD if timeline.last is None else timeline.last.phase

    @staticmethod
    def _last(timeline: Timeline) -> int:
        assert timeline.last is not None
        return timeline.last.campaign.last_slot

    def _read(self, first: int, last: int, kind: int) -> Partial:
        return Partial(
            {key: counts for key, counts in self._counts.items() if key.kind == kind and first <= key.slot <= last}
        )

    # Slots

    def _play(self, timeline: Timeline, slots: range) -> None:
        """All reports of these slots, the epoch of each being settled."""
        planned = self._done + self._crowd.count * len(slots)
        for campaign, piece in self._pieces(timeline, slots):
            for part in self._crowd.chunks(self._chunk):
                self._report(campaign, piece, part)
                self._done += len(part) * len(piece)
                self._progress(self._done, planned)

    def _pieces(self, timeline: Timeline, slots: range) -> Iterator[tuple[Campaign, list[int]]]:
        """Slots in order, cut where the epoch or the day of the population changes."""

        def place(slot: int) -> tuple[Campaign | None, int]:
            epoch = timeline.at(slot)
            return None if epoch is None else epoch.campaign, self._column(slot) // self._crowd.source.per_day

        for (campaign, _), piece in groupby(slots, key=place):
            if campaign is not None:
                yield campaign, list(piece)

    def _column(self, slot: int) -> int:
        play = next(play for play in reversed(self._plays) if slot >= play.first)
        return play.column + (slot - play.first) * play.stride

    def _report(self, campaign: Campaign, slots: Sequence[int], part: Part) -> None:
        readings = part.measured(campaign, [self._column(slot) for slot in slots])
        cohort = campaign.cohort
        # Hashing is most of the work: only where it decides something.
        drawn = 0 < cohort.share < WHOLE
        start = self._epochs[0].campaign.first_slot
        reporting = next((play.first for play in self._plays if play.phase == REPORT), None)
        for row, slot in enumerate(slots):
            there = part.reporting(slot, start)
            silent, lying = part.struck(slot, reporting)
            if silent is not None:
                there &= ~silent
            in_it = part.in_cohort(cohort.seed, cohort.share, slot) if drawn else np.full(len(part), cohort.share > 0)
            for kind, flags in ((report.COHORT, there & in_it), (report.REPORT, there & ~in_it)):
                for group, chosen in part.members(flags):
                    self._count(campaign, slot, kind, group, part.devices[chosen], readings[row, chosen], lying[chosen])

    def _count(
        self,
        campaign: Campaign,
        slot: int,
        kind: int,
        group: str,
        devices: NDArray[np.int64],
        readings: NDArray[np.int64],
        liars: NDArray[np.bool_],
    ) -> None:
        rule = campaign.report
        mechanism: Mechanism
        if kind == report.COHORT or rule is None:
            mechanism, low, high = campaign.cohort.mechanism, 0, campaign.bound
        else:
            mechanism, low, high = rule.mechanism, rule.low, rule.theta
        truncated = np.clip(readings, low, high)
        if low:
            truncated -= low
        if kind == report.REPORT:
            truth = self._result.truths.setdefault(slot, {}).setdefault(group, Truth())
            truth.add(len(devices), int(truncated.sum()) + low * len(devices), int(readings.sum()))
        lies = int(np.count_nonzero(liars))
        if lies:
            devices, truncated = devices[~liars], truncated[~liars]
        counts = histogram(mechanism, truncated, high - low, self._seeded.words(slot, devices))
        counts[largest_lie(mechanism)] += lies
        key = Key(campaign.name, campaign.fingerprint, kind, group, slot)
        self._counts[key] = add_counts(self._counts[key], counts) if key in self._counts else counts

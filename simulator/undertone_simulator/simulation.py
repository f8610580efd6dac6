"""A campaign over a population of any size without a wire: the same Partials that an aggregator would have counted.

Threshold rounds, θ and estimates come from the server's own `Rounds` and `Reconstruction`; reports from the vectorised
mechanisms, which draw what each device would have drawn. Time passes slot by slot, devices in chunks; every word of
entropy is addressed by (seed, device, slot), so the chunks' size cannot matter. The threshold is looked at when the
server would: at the start of the slot that is due.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.admission import EVERYBODY
from undertone_aggregator.config import CampaignPlan
from undertone_aggregator.epochs import REPORT, THRESHOLD, Epoch, Timeline
from undertone_aggregator.partial import Counts, Key, Partial, add_counts
from undertone_aggregator.reconstruct import MEASURED, Estimate, Reconstruction
from undertone_aggregator.rounds import Rounds
from undertone_aggregator.seen import COUNTED
from undertone_shared import report
from undertone_shared.campaign import SEED_BYTES, Campaign
from undertone_shared.checks import check_integer
from undertone_shared.cohort import WHOLE
from undertone_shared.errors import Invalid
from undertone_simulator.behaviour import HONEST, Behaviour
from undertone_simulator.faults import Fault
from undertone_simulator.ledger import Play
from undertone_simulator.membership import device_names, in_cohort
from undertone_simulator.playback import Continuous, Playback
from undertone_simulator.readings import Source
from undertone_simulator.seeded import LARGEST_DEVICE, Seeded
from undertone_simulator.vectorised import Mechanism, histogram

# Devices at a time; a day of their readings is what is in memory.
CHUNK = 1 << 16
# When a simulated campaign starts, unless it says so: a Monday in UTC, and a multiple of every sensible slot.
START = 1_798_416_000


@dataclass
class Truth:
    """Of the devices whose reports a slot counts by the report mechanism: their number and the sums of what they

    measured, truncated to the slot's θ and raw, both less the offset. Exact integers.
    """

    reports: int = 0
    truncated: int = 0
    raw: int = 0


@dataclass
class Simulated:
    """What a simulated campaign has left behind."""

    plan: CampaignPlan
    timeline: Timeline
    partial: Partial
    truths: dict[int, Truth] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write a store that `undertone query` reads like an aggregator's. Raises Invalid if there is one already."""
        # The server's edges are loaded for those who ask.
        from undertone_aggregator.server import open_campaign
        from undertone_aggregator.store import Batch, Store

        if path.exists():
            raise Invalid(f"{path} exists already: a simulation is never added to a store")
        with Store(path) as store:
            open_campaign(store, self.plan)
            with store.transaction():
                for epoch in self.timeline.epochs:
                    store.add_epoch(epoch)
            store.commit("simulation", Batch(self.partial, Counter({COUNTED: self.partial.reports})))

    def estimates(self) -> list[Estimate]:
        """The server's estimates of all slots that have reports, for everybody together."""
        return Reconstruction(self.timeline).estimates(self.partial, [EVERYBODY])

    def compared(self) -> list["Compared"]:
        """The measured slots beside their truths."""
        return [
            Compared(one, *self.truth(one.slot))
            for one in self.estimates()
            if one.kind == MEASURED and one.standard_error is not None
        ]

    def truth(self, slot: int) -> tuple[float, float]:
        """(mean of the truncated, mean of the raw readings) of the devices that ``slot`` counts."""
        one = self.truths[slot]
        return self.plan.offset + one.truncated / one.reports, self.plan.offset + one.raw / one.reports


@dataclass(frozen=True)
class Compared:
    """One slot's estimate beside the means that only a simulation knows."""

    estimate: Estimate
    truth_truncated: float
    truth_raw: float

    @property
    def error(self) -> float:
        """Estimate - truth_truncated: what its standard error is about."""
        return self.estimate.estimate - self.truth_truncated

    def covers(self) -> tuple[bool, bool]:
        """Whether the interval holds the truncated truth, and the wider one the raw truth."""
        one = self.estimate
        return (
            one.low is not None and one.high is not None and one.low <= self.truth_truncated <= one.high,
            one.low_raw is not None and one.high_raw is not None and one.low_raw <= self.truth_raw <= one.high_raw,
        )


class Simulation:
    """`devices` of a population under a campaign plan, with all entropy from one ``seed``.

    ``faults`` are those of the wire fleet, as far as they change what is counted. ``playback`` says which column of
    the population a slot measures; ``progress(done, planned)`` is called with device-slots.
    Raises Invalid for numbers out of range.
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
        playback: "Playback | Continuous | None" = None,
        chunk: int = CHUNK,
        progress: Callable[[int, int], None] = lambda done, planned: None,
    ) -> None:
        check_integer("devices", devices, 1, LARGEST_DEVICE)
        self.devices = devices
        self._plan = plan
        self._source = source
        self._seeded = Seeded(seed)
        self._behaviour = behaviour
        names = device_names(plan.sensor, devices) if faults else []
        self._faults = [(names.index(fault.device), fault) for fault in faults]
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
        begins = plan.start if plan.start is not None else -(-START // seconds) * seconds
        now = begins - plan.lead_slots * seconds
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
        planned = self._done + self.devices * len(slots)
        for campaign, piece in self._pieces(timeline, slots):
            for first in range(0, self.devices, self._chunk):
                stop = min(first + self._chunk, self.devices)
                self._report(campaign, piece, first, stop)
                self._done += (stop - first) * len(piece)
                self._progress(self._done, planned)

    def _pieces(self, timeline: Timeline, slots: range) -> Iterator[tuple[Campaign, list[int]]]:
        """Slots in order, cut where the epoch or the day of the population changes."""

        def place(slot: int) -> tuple[Campaign | None, int]:
            epoch = timeline.at(slot)
            return None if epoch is None else epoch.campaign, self._column(slot) // self._source.per_day

        for (campaign, _), piece in groupby(slots, key=place):
            if campaign is not None:
                yield campaign, list(piece)

    def _column(self, slot: int) -> int:
        play = next(play for play in reversed(self._plays) if slot >= play.first)
        return play.column + (slot - play.first) * play.stride

    def _report(self, campaign: Campaign, slots: Sequence[int], first: int, stop: int) -> None:
        devices = np.arange(first, stop)
        readings, present = self._source.part(first, stop, [self._column(slot) for slot in slots])
        if present is not None and not present.all():
            readings = np.where(present, readings, campaign.default)
        if campaign.offset:
            readings = readings - campaign.offset
        lying = self._behaviour.lying(devices)
        cohort = campaign.cohort
        # Hashing is most of the work: only where it decides something.
        drawn = 0 < cohort.share < WHOLE
        names = _names(campaign.sensor, self.devices, first, stop) if drawn else ()
        start = self._epochs[0].campaign.first_slot
        for row, slot in enumerate(slots):
            there = self._behaviour.reporting(devices, slot, start)
            liars = lying | self._struck(devices, slot, there)
            in_it = in_cohort(cohort.seed, cohort.share, slot, names) if drawn else bool(cohort.share)
            for kind, members in ((report.COHORT, there & in_it), (report.REPORT, there & ~np.asarray(in_it))):
                chosen: slice | NDArray[np.intp] = slice(None) if members.all() else np.flatnonzero(members)
                self._count(campaign, slot, kind, devices[chosen], readings[row, chosen], liars[chosen])

    def _struck(self, devices: NDArray[np.int64], slot: int, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which devices a fault makes lie in this slot; those that it silences are taken out of ``there``."""
        lying = np.zeros(len(devices), dtype=np.bool_)
        begins = next((play.first for play in self._plays if play.phase == REPORT), None)
        if begins is None:
            return lying
        for device, fault in self._faults:
            since = slot - begins - fault.slot
            if devices[0] <= device <= devices[-1]:
                there[device - devices[0]] &= since not in fault.silences
                lying[device - devices[0]] |= fault.name == "lie" and since >= -1
        return lying

    def _count(
        self,
        campaign: Campaign,
        slot: int,
        kind: int,
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
        if not len(devices):
            return
        truncated = np.clip(readings, low, high)
        if low:
            truncated -= low
        if kind == report.REPORT:
            truth = self._result.truths.setdefault(slot, Truth())
            truth.reports += len(devices)
            truth.truncated += int(truncated.sum()) + low * len(devices)
            truth.raw += int(readings.sum())
        lies = int(np.count_nonzero(liars))
        if lies:
            devices, truncated = devices[~liars], truncated[~liars]
        counts = histogram(mechanism, truncated, high - low, self._seeded.words(slot, devices))
        counts[-1] += lies
        key = Key(campaign.name, campaign.fingerprint, kind, EVERYBODY, slot)
        self._counts[key] = add_counts(self._counts[key], counts) if key in self._counts else counts


@lru_cache(maxsize=1)
def _names(sensor: str, count: int, first: int, stop: int) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in device_names(sensor, count, first, stop))

"""A fleet on the wire: one asyncio process, thousands of MQTT connections, each with the shipped reporter core.

Every device draws with the machine's entropy, unless the argument ``source`` of `Fleet` gives it seeded bytes, for the
comparison with the vectorised simulator.
"""

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from undertone_device.setup.storage import FileStorage
from undertone_operate.fleet.read_devices import ProvisionedDevice
from undertone_shared.campaign import Campaign, body_of, header
from undertone_shared.entropy import Entropy
from undertone_simulator.readings.behaviour import HONEST, Behaviour
from undertone_simulator.readings.readings import Readings
from undertone_simulator.seeded import SeededSource
from undertone_simulator.wire.commons import Wire
from undertone_simulator.wire.ledger import REPORT, Sent
from undertone_simulator.wire.liar import Liar
from undertone_simulator.wire.memory import MemoryStorage
from undertone_simulator.wire.playback import Continuous, Playback
from undertone_simulator.wire.wire_device import WireDevice

Sample = int | tuple[int, ...]

# Number of groups in which devices draw.
GROUPS = 16
# Shares of a slot: how long the first group waits before it draws, and over how long the groups are spread, by default
# and at most. The rest of the slot is a reserve for a slow machine.
FIRST_PART = 0.03
JITTER = 0.6
LARGEST_JITTER = 0.8
# If the device's rate limit refuses a draw as too early, the next attempt comes after this share of a slot.
_AGAIN_PART = 0.0317
_CHECK_SECONDS = 5.0
SETTLE_SECONDS = 30.0


class Fleet:
    """A fleet of `members` on one broker; member i measures row i of `readings`.

    `state`: a folder for the devices' storages, None for memory. `earlier`: ledger content of an earlier run of these
    devices. `behaviour`: which devices drop out, join late or lie. `source`: device number → seeded byte source, for
    simulations only. `jitter`: the share of a slot over which the `GROUPS` groups of devices are spread; the devices of
    a group report at the same time. `skipped` counts draws for which this machine was too slow.
    """

    def __init__(
        self,
        members: Sequence[ProvisionedDevice],
        readings: Readings,
        playback: Playback | Continuous,
        wire: Wire,
        *,
        state: Path | None = None,
        earlier: Sent | None = None,
        source: Callable[[int], SeededSource] | None = None,
        behaviour: Behaviour = HONEST,
        capacity: int = 96,
        jitter: float = JITTER,
    ):
        self.wire = wire
        self.campaigns: dict[bytes, Campaign] = {}
        self.report_slot: int | None = None
        self.skipped = 0
        self._readings = readings
        self._playback = playback
        self._plays = Sent(plays=list(earlier.plays) if earlier else [])
        self._state = state
        self._on_disk: list[FileStorage] = []
        self._capacity = capacity
        self._jitter = jitter
        self._behaviour = behaviour
        self._sources = [source(i) for i in range(len(members))] if source else []
        self._slot_seconds = 1
        # The first slot that this fleet can measure as a whole; 0 for a fleet that continues an earlier run.
        self._began = 0
        # How many devices have accepted the first campaign.
        self._heard = 0
        self._coordinates = 1
        self._announced = asyncio.Event()
        wire.on_campaign = self._hear
        unacked = earlier.unacked() if earlier else {}
        lying = behaviour.lying(np.arange(len(members)))
        self.devices = [
            WireDevice(
                member.name,
                member.password,
                self._boot(i, member),
                self._meter(i),
                wire,
                unacked.get(member.name, ()),
                self._leaving(i),
                self._joined(i),
                bool(lying[i]),
                member.place,
            )
            for i, member in enumerate(members)
        ]
        self._by_name = {device.name: device for device in self.devices}
        shuffled = random.SystemRandom().sample(self.devices, len(self.devices))
        self._groups = [shuffled[group::GROUPS] for group in range(GROUPS)]
        for device in self.devices:
            for campaign in (device.reporter.campaign, device.reporter.following) if device.reporter else ():
                if campaign is not None:
                    self._learn(campaign)

    def __getitem__(self, name: str) -> WireDevice:
        return self._by_name[name]

    # Methods that make the parts of a device.

    def _boot(self, number: int, member: ProvisionedDevice) -> Callable[[], Liar]:
        if self._state is None:
            storage: MemoryStorage | FileStorage = MemoryStorage()
        else:
            folder = self._state / member.name
            folder.mkdir(parents=True, exist_ok=True)
            storage = FileStorage(str(folder))
            self._on_disk.append(storage)

        def boot() -> Liar:
            entropy = Entropy(self._sources[number]) if self._sources else Entropy()
            clock = self.wire.clock
            return Liar(member.name, member.policy, storage, entropy, clock.ticks, capacity=self._capacity)

        return boot

    def _meter(self, number: int) -> Callable[[int], Sample | None]:
        """Return the function that measures a device's reading in a slot.

        Coordinate k of a reading is the device's reading k days later.
        """

        def measure(slot: int) -> Sample | None:
            column = self._plays.column(slot)
            if column is None or self._coordinates == 1:
                return None if column is None else self._readings.at(number, column)
            days = range(self._coordinates)
            reading = [self._readings.at(number, column + k * self._readings.per_day) for k in days]
            return None if None in reading else tuple(value for value in reading if value is not None)

        return measure

    def _joined(self, number: int) -> Callable[[int], bool]:
        joins = int(self._behaviour.joins(np.array([number]))[0])
        return lambda slot: not (joins and self._plays.plays) or slot - self._plays.plays[0].first >= joins

    def _leaving(self, number: int) -> Callable[[int], bool]:
        if self._behaviour == HONEST:
            return lambda slot: True
        device = np.array([number])
        return lambda slot: bool(self._behaviour.reporting(device, slot, self._plays.plays[0].first)[0])

    def _hear(self, message: bytes) -> None:
        """Record the campaign of a message that a device accepted."""
        fingerprint = header(message)[1]
        if fingerprint not in self.campaigns:
            self._learn(Campaign(body_of(message)))
        if self._began and fingerprint == next(iter(self.campaigns)) and self._heard < len(self.devices):
            # Devices may accept the campaign in different slots. The fleet begins when the last device has accepted it.
            self._heard += 1
            self._began = int(self.wire.clock.now()) // self._slot_seconds + 1
            self._find_report_slot()

    def _learn(self, campaign: Campaign) -> None:
        """Determine which columns of the readings the devices measure in the campaign's slots."""
        if campaign.fingerprint in self.campaigns:
            return
        self.campaigns[campaign.fingerprint] = campaign
        if not self._plays.plays:
            self._began = int(self.wire.clock.now()) // campaign.slot_seconds + 1
        self._slot_seconds = campaign.slot_seconds
        self._coordinates = campaign.rule.dimension
        play = self._playback.next(self._plays.plays, campaign)
        if play is not None:
            self._plays.plays.append(play)
            self.wire.ledger.play(play)
        self._find_report_slot()
        self._announced.set()

    def _find_report_slot(self) -> None:
        """Set ``report_slot`` to the campaign's first report slot.

        If the campaign already runs, set it to the first slot that every device can measure as a whole.
        """
        reporting = next((play.first for play in self._plays.plays if play.phase == REPORT), None)
        self.report_slot = None if reporting is None else max(reporting, self._began)

    # Methods that run the devices.

    def cut(self, cut: bool) -> None:
        """Cut all devices from the network, or let them connect again."""
        self.wire.cut = cut
        if cut:
            for device in self.devices:
                device.drop_connection()

    async def run(
        self,
        slots: int,
        stop: asyncio.Event | None = None,
        on_slot: Callable[[int], None] | None = None,
        *,
        ramp_up: float = 0.0,
    ) -> None:
        """Connect, report until `slots` report slots are over, wait for acknowledgements, disconnect.

        Once `stop` is set, no device draws any more, and all devices disconnect at once. `on_slot(slot)` is called at
        the start of every slot, before any device draws in it, so that it can inject faults. `ramp_up`: seconds over
        which the connections are spread.
        """
        stop = stop or asyncio.Event()
        for number, device in enumerate(self.devices):
            device.start(ramp_up * number / len(self.devices))
        checking = asyncio.get_running_loop().create_task(self._check())
        playing = asyncio.get_running_loop().create_task(self._play(slots, stop, on_slot))
        stopping = asyncio.get_running_loop().create_task(stop.wait())
        try:
            await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
                await self._settle(stop)
        finally:
            for task in (checking, playing, stopping):
                task.cancel()
            for device in self.devices:
                device.close()
            for storage in self._on_disk:
                storage.close()
            self.wire.ledger.flush()

    async def _play(self, slots: int, stop: asyncio.Event, on_slot: Callable[[int], None] | None) -> None:
        await self._announced.wait()
        clock, seconds = self.wire.clock, self._slot_seconds
        slot = int(clock.now()) // seconds + 1
        while True:
            await clock.until(slot * seconds)
            if stop.is_set():
                return
            if on_slot is not None:
                on_slot(slot)
            await self._draw(slot, stop)
            if self.report_slot is not None and slot >= self.report_slot + slots:
                return
            # If the machine was too slow for a slot, the fleet skips that slot, as a real device would.
            following = max(slot + 1, int(clock.now()) // seconds)
            self.skipped += (following - slot - 1) * len(self.devices)
            slot = following

    async def _draw(self, slot: int, stop: asyncio.Event) -> None:
        """Let every device draw once, group by group; end early if `stop` is set or the slot is over.

        Each group's ledger lines are on disk before its reports are sent.
        """
        clock, seconds = self.wire.clock, self._slot_seconds
        for source in self._sources:
            source.seek(slot - 1)
        # The heap orders groups by the time of their next draw, and by number if the times are equal. A group is in it
        # only once, so that lists of devices are never compared.
        due: list[tuple[float, int, list[WireDevice]]] = [
            (FIRST_PART + self._jitter * group / GROUPS, group, devices) for group, devices in enumerate(self._groups)
        ]
        heapq.heapify(due)
        while due:
            part, group, devices = heapq.heappop(due)
            await clock.until((slot + part) * seconds)
            if stop.is_set():
                return
            if clock.now() >= (slot + 1) * seconds:
                self.skipped += len(devices) + sum(len(group_left) for _, _, group_left in due)
                return
            early = self._together(devices, slot)
            if early:
                heapq.heappush(due, (part + _AGAIN_PART, group, early))

    def _together(self, devices: list[WireDevice], slot: int) -> list[WireDevice]:
        """Call ``tick`` of each device; return the devices whose draw was too early."""
        early = [device for device in devices if device.tick(slot)]
        self.wire.ledger.flush()
        for device in devices:
            device.hand_over()
        return early

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for device in self.devices:
                device.check()

    async def _settle(self, stop: asyncio.Event) -> None:
        """Wait until everything is acknowledged, at most for the time that a killed server may need to come back."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while any(device.unacknowledged for device in self.devices) and not stop.is_set():
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(0.05)

    # Methods that return results.

    @property
    def refusals(self) -> Counter[str]:
        """Number of refused campaigns, by reason, over all living devices."""
        counts: Counter[str] = Counter()
        for device in self.devices:
            if device.reporter is not None:
                counts.update(device.reporter.refusals)
        return counts

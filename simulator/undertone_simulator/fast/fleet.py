"""Simulated devices for any campaign: their names, groups, presence, lies and readings."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.ingest.devices import UNGROUPED
from undertone_operate.fleet.device_names import cohort_hashes, device_names
from undertone_shared.campaign import Campaign
from undertone_shared.schedule import Schedule
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.readings import Integers, ReadingSource
from undertone_simulator.seeded import positions
from undertone_simulator.wire.faults import Fault

Flags = NDArray[np.bool_]
Members = slice | NDArray[np.intp]


class SimulatedFleet:
    """A fleet of ``count`` devices; ``groups``: device -> group as in the server's registry, None for no groups."""

    def __init__(
        self,
        sensor: str,
        count: int,
        source: ReadingSource,
        behaviour: Behaviour,
        faults: Sequence[Fault],
        groups: Mapping[str, str] | None,
    ) -> None:
        self.count = count
        self.groups = groups
        self.source = source
        self.behaviour = behaviour
        names = device_names(sensor, count) if faults else []
        self.faults = [(names.index(fault.device), fault) for fault in faults]
        self.sensor = sensor
        # The part that `part` returned last is kept, because consecutive calls ask for the same one.
        self._part: FleetPart | None = None
        self._hashes: dict[tuple[bytes, int, int], tuple[Integers, Integers]] = {}

    def cohort_hashes(self, seed: bytes, first: int, stop: int) -> tuple[Integers, Integers]:
        """Return `device_names.cohort_hashes`, cached."""
        key = (seed, first, stop)
        if key not in self._hashes:
            self._hashes[key] = cohort_hashes(seed, self.sensor, self.count, first, stop)
        return self._hashes[key]

    def part(self, first: int, stop: int) -> "FleetPart":
        """Return the devices first <= i < stop."""
        if self._part is None or (self._part.first, self._part.stop) != (first, stop):
            self._part = FleetPart(self, first, stop)
        return self._part


class FleetPart:
    """Devices first <= i < stop of a fleet."""

    def __init__(self, fleet: SimulatedFleet, first: int, stop: int) -> None:
        self.first = first
        self.stop = stop
        self.devices = np.arange(first, stop)
        # Positions of the devices in the source of random words, the same in every slot.
        self.positions = positions(self.devices)
        self.per_day = fleet.source.per_day
        self._fleet = fleet
        self._lying = fleet.behaviour.lying(self.devices)
        self._schedule: Schedule | None = None

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def _names(self) -> list[str]:
        return device_names(self._fleet.sensor, self._fleet.count, self.first, self.stop)

    @cached_property
    def _groups(self) -> list[tuple[str, Flags]]:
        registry = self._fleet.groups
        assert registry is not None
        groups = np.array([registry.get(name, UNGROUPED) for name in self._names])
        return [(str(group), groups == group) for group in np.unique(groups)]

    def measured(self, campaign: Campaign, columns: Sequence[int]) -> tuple[Integers, Flags | None]:
        """Return (readings minus the offset, mask of those that exist or None for all); both [columns, devices]."""
        readings, present = self._fleet.source.part(self.first, self.stop, columns)
        return (readings - campaign.offset if campaign.offset else readings), present

    def turns(self, schedule: Schedule, slot: int) -> tuple[Flags, Flags]:
        """Return masks of the devices whose turn it is in ``slot``, and of those in the threshold's cohort."""
        stride, cohort = schedule.stride, schedule.cohort_stride
        if stride == 1 and cohort < 2:
            # Every device reports in every slot, and all or none report for the threshold: no hash of a device is
            # needed.
            return np.ones(len(self), dtype=np.bool_), np.full(len(self), cohort == 1)
        if schedule is not self._schedule:
            # One hash per device and campaign is computed, and then one comparison per device and slot.
            self._schedule = schedule
            first, second = self._fleet.cohort_hashes(schedule.seed, self.first, self.stop)
            self._places: Integers = np.asarray(schedule.place_of(first, second))  # type: ignore[arg-type]
            self._phases = self._places % stride if stride > 1 else self._places
        turn = self._phases == -slot % stride if stride > 1 else np.ones(len(self), dtype=np.bool_)
        return turn, self._places == -slot % (stride * cohort) if cohort else np.zeros(len(self), dtype=np.bool_)

    def reporting(self, slot: int, start: int) -> Flags:
        """Return a mask of devices whose report of ``slot`` is sent; ``start`` is the campaign's first slot."""
        return self._fleet.behaviour.reporting(self.devices, slot, start)

    def joined(self, slot: int, start: int) -> Flags:
        """Return a mask of devices that have joined by ``slot``."""
        return self._fleet.behaviour.joined(self.devices, slot, start)

    def struck(self, slot: int, begins: int | None) -> tuple[Flags | None, Flags]:
        """Return two masks for ``slot``: of the devices that a fault silences, and of the liars.

        The first one is None if no fault silences a device. ``begins``: the first report slot, from which faults are
        counted; None before there is one.
        """
        silent, lying = None, self._lying
        for device, fault in self._fleet.faults if begins is not None else ():
            since = slot - (begins or 0) - fault.slot
            place = device - self.first
            if not 0 <= place < len(self.devices):
                continue
            if since in fault.silences:
                silent = np.zeros(len(self.devices), dtype=np.bool_) if silent is None else silent
                silent[place] = True
            if fault.name == "lie" and since >= -1:
                lying = lying.copy()
                lying[place] = True
        return silent, lying

    def groups(self) -> list[tuple[str, Members]]:
        """Return (group, its devices) of each group; all devices are one group if the fleet has none."""
        if self._fleet.groups is None:
            return [(EVERYBODY, slice(None))]
        return [(group, np.flatnonzero(flags)) for group, flags in self._groups]

    def members(self, mask: Flags) -> Iterator[tuple[str, Members]]:
        """Yield (group, its devices in ``mask``) for each group that has such devices."""
        pairs = [(EVERYBODY, mask)] if self._fleet.groups is None else [(g, m & mask) for g, m in self._groups]
        for group, flags in pairs:
            if flags.all():
                yield group, slice(None)
            elif flags.any():
                yield group, np.flatnonzero(flags)

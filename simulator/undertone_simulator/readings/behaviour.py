"""Devices that are sometimes absent, or dishonest, in the same way in all simulators.

Their behaviour is a function of (seed, device, slot) alone.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_simulator.seeded import Memory, Seeded

Flags = NDArray[np.bool_]
Devices = NDArray[np.integer]

_WORDS = 1 << 32


@dataclass(frozen=True)
class Behaviour:
    """Shares of devices and reports that are absent, late or false.

    ``drop_out``: share of (device, slot) whose report is never sent.
    ``late``: share of devices that join late, each in a random one of the first ``late_slots`` slots (device 0 is never
    late). ``liars``: share of devices that always send the largest symbol. Raises Invalid for shares outside [0, 1].
    """

    seed: int = 0
    drop_out: float = 0.0
    late: float = 0.0
    late_slots: int = 48
    liars: float = 0.0

    def __post_init__(self) -> None:
        for name in ("drop_out", "late", "liars"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise Invalid(f"{name} is {getattr(self, name)!r}, expected a share from 0 to 1")
        check_integer("late_slots", self.late_slots, 1, 1 << 20)

    def reporting(self, devices: Devices, slot: int, first_slot: int) -> Flags:
        """Return a mask of devices whose report of ``slot`` is sent; ``first_slot``: the campaign's first slot."""
        present = self.joined(devices, slot, first_slot)
        if self.drop_out:
            present &= self._words("drop out", devices, slot) >= int(self.drop_out * _WORDS)
        return present

    def joined(self, devices: Devices, slot: int, first_slot: int) -> Flags:
        """Return a mask of devices that have joined the campaign by ``slot``."""
        if not self.late:
            return np.ones(len(devices), dtype=np.bool_)
        return self.joins(devices) <= slot - first_slot

    def joins(self, devices: Devices) -> NDArray[np.int64]:
        """Return the slot of the campaign in which each device joins, 0 for the first."""
        if not self.late:
            return np.zeros(len(devices), dtype=np.int64)
        late = (self._words("late", devices) < int(self.late * _WORDS)) & (devices != 0)
        when = self._words("joins", devices) * np.uint64(self.late_slots) // np.uint64(_WORDS)
        return np.where(late, when.astype(np.int64), 0)

    def lying(self, devices: Devices) -> Flags:
        """Return a mask of the devices that lie, which is the same in every slot."""
        if not self.liars:
            return np.zeros(len(devices), dtype=np.bool_)
        return self._words("liars", devices) < int(self.liars * _WORDS)

    def _words(self, what: str, devices: Devices, slot: int = 0) -> NDArray[np.uint64]:
        words = np.empty(len(devices), dtype=np.uint32)
        self._seeded[what].words(slot, devices).column(0, Memory(), words)
        return words.astype(np.uint64)

    @cached_property
    def _seeded(self) -> dict[str, Seeded]:
        def seed(what: str) -> int:
            digest = hashlib.sha256(f"undertone behaviour {what} {self.seed}".encode()).digest()
            return int.from_bytes(digest[:8], "big")

        return {what: Seeded(seed(what)) for what in ("drop out", "late", "joins", "liars")}


HONEST = Behaviour()

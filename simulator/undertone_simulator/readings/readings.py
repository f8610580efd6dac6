"""Readings of a population: the values that simulated meters measure, in integer natural units."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid

Integers = NDArray[np.int64]

# Number of devices that are transposed at a time, so that their readings fit in a processor's cache.
_TILE = 1024


class ReadingSource(Protocol):
    """Source of devices' readings. Any part of them can be read, and repeated reads return the same values."""

    @property
    def unit(self) -> str: ...

    @property
    def per_day(self) -> int: ...

    @property
    def start(self) -> str:
        """The local time of the first reading as text, empty if unknown."""

    def part(self, first: int, stop: int, columns: Sequence[int]) -> tuple[Integers, NDArray[np.bool_] | None]:
        """Return (readings, mask of existing ones or None for all) of devices first <= i < stop; [columns, devices]."""


def check_some(readings: NDArray[np.generic]) -> None:
    """Check that some reading is above 0, because errors are given as shares of the mean. Raises Invalid."""
    if not np.any(readings):
        raise Invalid("no reading is above 0 in the first days of the readings: there is nothing to plan for")


@dataclass(frozen=True)
class Readings:
    """Readings: `values` [households, slots] int64 in `unit`; where `present` is False there was no measurement.

    `step_seconds` is the time that one slot covers in the data, `start` the local time of the first one as text (0 and
    empty if unknown). `notes` are sentences about values that were left out or changed when reading.
    """

    values: NDArray[np.int64]
    present: NDArray[np.bool_]
    unit: str
    start: str = ""
    step_seconds: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def households(self) -> int:
        """Number of households: the rows of ``values``."""
        return int(self.values.shape[0])

    @property
    def slots(self) -> int:
        """Number of slots: the columns of ``values``."""
        return int(self.values.shape[1])

    @property
    def per_day(self) -> int:
        """Number of slots in one day of the data, 48 if the step is unknown or longer than a day."""
        return 86400 // self.step_seconds if 0 < self.step_seconds <= 86400 else 48

    def at(self, device: int, slot: int) -> int | None:
        """Return the reading of device number `device` in slot number `slot`, or None for a gap; both wrap around.

        If there are more devices than households, they repeat the households, one week later each time. So no two
        devices share a reading if the data are long enough.
        """
        turn, row = divmod(device, self.households)
        column = (slot + 7 * self.per_day * turn) % self.slots
        return int(self.values[row, column]) if self.present[row, column] else None

    def part(self, first: int, stop: int, columns: Sequence[int]) -> tuple[Integers, NDArray[np.bool_] | None]:
        """Return the values of `at` for devices first <= i < stop in these columns, and a mask of those that exist.

        The mask is None if none is missing.
        """
        values = np.empty((len(columns), stop - first), dtype=np.int64)
        present = None if self._complete else np.empty(values.shape, dtype=np.bool_)
        # Runs of devices that are neighbours in the data are copied as blocks.
        for start in range(first - first % self.households, stop, self.households):
            turn = start // self.households
            low, high = max(first, start), min(stop, start + self.households)
            taken = _steps([(column + 7 * self.per_day * turn) % self.slots for column in columns])
            for tile in range(low, high, _TILE):
                end = min(tile + _TILE, high)
                rows, place = slice(tile - start, end - start), slice(tile - first, end - first)
                values[:, place] = self.values[rows, taken].T
                if present is not None:
                    present[:, place] = self.present[rows, taken].T
        return values, present

    @cached_property
    def _complete(self) -> bool:
        return bool(self.present.all())

    def save(self, path: Path) -> None:
        """Write all but the notes to an NPZ file. Raises OSError."""
        np.savez(
            path,
            values=self.values,
            present=self.present,
            unit=np.array(self.unit),
            start=np.array(self.start),
            step_seconds=np.array(self.step_seconds),
        )

    @staticmethod
    def saved(path: Path) -> "Readings":
        """Read the file that `save` wrote. Raises OSError."""
        with np.load(path, allow_pickle=False) as file:
            return Readings(
                file["values"], file["present"], str(file["unit"]), str(file["start"]), int(file["step_seconds"])
            )


def _steps(columns: list[int]) -> slice | list[int]:
    """Return ``columns``, as a slice if they are consecutive, because numpy copies slices faster."""
    first, n = columns[0], len(columns)
    return slice(first, first + n) if columns == list(range(first, first + n)) else columns


def dealt(stream: NDArray[np.int64], devices: int, unit: str) -> Readings:
    """Deal one stream to devices in its own order: reading i goes to device i mod devices, slot i // devices.

    Raises Invalid for a stream shorter than one slot.
    """
    slots = len(stream) // devices
    if slots < 1:
        raise Invalid(f"the stream has {len(stream)} readings, expected at least {devices}, one per device")
    values = np.ascontiguousarray(stream[: slots * devices].reshape(slots, devices).T, dtype=np.int64)
    return Readings(values, np.ones(values.shape, dtype=np.bool_), unit)

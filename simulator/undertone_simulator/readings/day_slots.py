"""A population's readings by slot of the day. Such a slot joins one or several slots of the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from undertone_simulator.readings.readings import ReadingSource, check_some

Vector = NDArray[np.float64]

DAYS = 28
DEVICES = 2048
_CELLS = 400


@dataclass(frozen=True)
class Joined:
    """Readings of ``source``, each clipped to [0, bound], summed over ``span`` slots, which divides those of a day.

    A missing reading is replaced as by `DaySlots.of`.
    """

    source: ReadingSource
    bound: int
    span: int

    @property
    def unit(self) -> str:
        """The unit of the readings."""
        return self.source.unit

    @property
    def per_day(self) -> int:
        """Number of sums in a day."""
        return self.source.per_day // self.span

    @property
    def start(self) -> str:
        """The local time of the first reading, as `ReadingSource.start`."""
        return self.source.start

    def part(self, first: int, stop: int, columns: Sequence[int]) -> tuple[NDArray[np.int64], None]:
        """Return the sums of devices first <= i < stop; shape [columns, devices]. None is missing."""
        single = [column * self.span + i for column in columns for i in range(self.span)]
        read, present = self.source.part(first, stop, single)
        values = np.clip(read, 0, self.bound)
        if present is not None:
            _fill(values, present)
        return values.reshape(len(columns), self.span, -1).sum(axis=1), None


@dataclass(frozen=True)
class DaySlots:
    """Readings of a population by slot of the day, each the sum over ``span`` slots of the data.

    ``bound``: bound of one slot of the data. ``density`` [slots of a day, d]: the distribution over cells with the
    ``edges`` [d + 1]; ``means`` [days × slots]; ``values`` [days × slots, devices]; ``ordered`` [slots of a day, days ×
    devices]: the values, sorted in each slot.
    """

    span: int
    bound: int
    density: Vector
    edges: tuple[int, ...]
    means: Vector
    values: NDArray[np.int64]
    ordered: NDArray[np.int64]

    @staticmethod
    def of(source: ReadingSource, bound: int, span: int, days: int = DAYS, devices: int = DEVICES) -> "DaySlots":
        """Read the first days of the first devices; single readings are clipped to [0, bound].

        A missing reading is replaced by that of another device in the same slot, so that each slot keeps its
        distribution. Raises Invalid.
        """
        values = np.empty((days * source.per_day, devices), dtype=np.int64)
        for day in range(days):
            columns = range(day * source.per_day, (day + 1) * source.per_day)
            read, present = source.part(0, devices, columns)
            np.clip(read, 0, bound, out=values[columns.start : columns.stop])
            if present is not None:
                _fill(values[columns.start : columns.stop], present)
        check_some(values)
        return DaySlots._made(values, source.per_day, bound, span)

    def joined(self, span: int) -> "DaySlots":
        """Return the readings with ``span`` slots merged into one; ``span`` divides the number of slots in a day."""
        return self if span == 1 else DaySlots._made(self.values, self.per_day, self.bound, span)

    @staticmethod
    def _made(single: NDArray[np.int64], per_day: int, bound: int, span: int) -> "DaySlots":
        per_day //= span
        values = single if span == 1 else single.reshape(-1, span, single.shape[1]).sum(axis=1)
        inner = np.rint(np.geomspace(1, bound * span + 1, _CELLS)).astype(np.int64)
        edges = np.append(0, np.unique(inner))
        ordered = np.sort(_by_slot(values, per_day), axis=1)
        density = np.stack([np.diff(np.searchsorted(row, edges)) for row in ordered]) / ordered.shape[1]
        return DaySlots(span, bound, density, tuple(edges.tolist()), values.mean(axis=1), values, ordered)

    @property
    def per_day(self) -> int:
        """Number of slots of a day."""
        return len(self.density)

    @cached_property
    def raw(self) -> Vector:
        """The mean reading in each slot of the day; shape [slots]."""
        return np.asarray(self.means.reshape(-1, self.per_day).mean(axis=0))

    def moments(self, thetas: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Return (mean, variance) of min(x, θ) in each slot of the day; shape [θ, slots]."""
        count = self.ordered.shape[1]
        means, variances = np.empty((2, len(thetas), self.per_day))
        for slot, row in enumerate(self.ordered):
            below = np.searchsorted(row, thetas, side="right")
            above = count - below
            sums = np.append(0, np.cumsum(row))[below] + thetas * above
            squares = np.append(0.0, np.cumsum(np.square(row, dtype=np.float64)))[below] + np.square(thetas) * above
            means[:, slot] = sums / count
            variances[:, slot] = np.maximum(squares / count - np.square(means[:, slot]), 0.0)
        return means, variances

    def slewed_means(self, theta: int, step: float) -> Vector:
        """Return each slot's mean of truncated readings whose steps from slot to slot are clipped.

        Readings are truncated at ``theta``. A device's value in a slot is within ``step`` of its value in the slot
        before; the first slot of the day begins anew.
        """
        day = _by_slot(self.values, self.per_day)
        before = np.minimum(day[0], theta).astype(np.float64)
        means = np.empty(self.per_day)
        means[0] = before.mean()
        for slot in range(1, self.per_day):
            reading = np.minimum(day[slot], theta)
            np.clip(reading, before - step, before + step, out=before)
            means[slot] = before.mean()
        return means


def _fill(values: NDArray[np.int64], present: NDArray[np.bool_]) -> None:
    """Replace missing readings [slots, devices] by the reading of the nearest earlier device in the same slot.

    The search wraps around from the first device to the last. A slot without any reading is left 0.
    """
    devices = np.where(present, np.arange(values.shape[1]), -1)
    nearest = np.maximum.accumulate(devices, axis=1)
    nearest = np.where(nearest < 0, nearest[:, -1:], nearest)
    values[:] = np.where(nearest < 0, 0, np.take_along_axis(values, nearest, axis=1))


def _by_slot(values: NDArray[np.int64], per_day: int) -> NDArray[np.int64]:
    """Rearrange [days × slots, devices] to [slots of a day, days × devices]."""
    days = values.reshape(-1, per_day, values.shape[1])
    return days.transpose(1, 0, 2).reshape(per_day, -1)

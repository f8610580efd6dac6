"""Base of the synthetic populations: any part of one, at any time, is the same however the rest is divided.

A population consists of blocks of `BLOCK` devices and of days: the traits of a block's devices come from a generator
seeded by (seed, population, block), the events of a day from one seeded by (seed, population, block, day).
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from undertone_shared.checks import check_integer
from undertone_simulator.readings.readings import Readings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK = 1024
LARGEST_SEED = (1 << 63) - 1
_TRAITS, _DAY = 1, 2
# Number of blocks whose traits stay in memory, at most half a megabyte each.
_KEPT = 32


class Synthetic:
    """A population of unlimited size; subclasses generate a day of a block of devices.

    ``bound``: the public upper bound B. ``start``: the local time of column 0. Raises Invalid for a seed out of range.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]
    bound: ClassVar[int]
    step_seconds: ClassVar[int]
    start: ClassVar[str] = "2024-04-01 00:00:00"

    def __init__(self, seed: int) -> None:
        self.seed = check_integer("seed", seed, 0, LARGEST_SEED)
        self._kept_traits: dict[int, dict[str, Floats]] = {}

    @property
    def per_day(self) -> int:
        """Number of columns of one day."""
        return 86400 // self.step_seconds

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        """Return the permanent traits of `BLOCK` devices; arrays of shape [BLOCK, ...]."""
        raise NotImplementedError

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        """Return the readings of `BLOCK` devices on a day, before rounding and the bound; shape [BLOCK, per_day]."""
        raise NotImplementedError

    def day(self, block: int, day: int) -> Integers:
        """Return the integer readings of one block on one day; shape [BLOCK, per_day]."""
        values = self._day(self._generator(_DAY, block, day), self._block_traits(block), day)
        np.rint(values, out=values)
        return np.clip(values, 0, self.bound, out=values).astype(np.int64)

    def _generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *self.name.encode(), *purpose])

    def _block_traits(self, block: int) -> dict[str, Floats]:
        """Return the traits of a block, cached for the first blocks."""
        if block in self._kept_traits:
            return self._kept_traits[block]
        traits = self._traits(self._generator(_TRAITS, block))
        if len(self._kept_traits) < _KEPT:
            self._kept_traits[block] = traits
        return traits

    def part(self, first: int, stop: int, columns: Sequence[int]) -> tuple[Integers, None]:
        """Return readings of devices first <= i < stop in these columns, shape [columns, devices].

        There are no gaps.
        """
        values = np.empty((len(columns), stop - first), dtype=np.int64)
        days = [divmod(column, self.per_day) for column in columns]
        for block in range(first // BLOCK, -(-stop // BLOCK)):
            start = block * BLOCK
            low, high = max(first, start), min(stop, start + BLOCK)
            of_day = {day: self.day(block, day) for day in dict.fromkeys(day for day, _ in days)}
            for row, (day, step) in enumerate(days):
                values[row, low - first : high - first] = of_day[day][low - start : high - start, step]
        return values, None

    def readings(self, devices: int, days: int) -> Readings:
        """Return the first ``days`` days of the first ``devices`` devices. Raises ValueError for fewer than one."""
        if devices < 1 or days < 1:
            raise ValueError("a population needs at least one device and one day")
        values, _ = self.part(0, devices, range(days * self.per_day))
        values = np.ascontiguousarray(values.T)
        return Readings(values, np.ones(values.shape, dtype=np.bool_), self.unit, self.start, self.step_seconds)


def lognormal(rng: np.random.Generator, sd: float, shape: int | tuple[int, ...] = BLOCK) -> Floats:
    """Draw lognormal factors of mean 1 whose logarithms have standard deviation ``sd``."""
    return np.exp(sd * rng.standard_normal(shape) - sd * sd / 2)


def is_weekend(day: int) -> bool:
    """Return True for a Saturday or Sunday; day 0 is a Monday."""
    return day % 7 >= 5

"""Synthetic populations by name, for simulations and demonstrations without a data file."""

from undertone_shared.errors import Invalid
from undertone_simulator.readings.populations.households import BOUND, HALF_HOURS, Households
from undertone_simulator.readings.populations.loads import (
    Bimodal,
    Charging,
    HeatWave,
    Holiday,
    NightHeating,
    Offices,
    Pareto,
    Retail,
    Rise,
    Solar,
    Star,
    Zeros,
)
from undertone_simulator.readings.populations.others import HeavyTail, Phones, Temperature, TimeInState
from undertone_simulator.readings.populations.synthetic import Synthetic
from undertone_simulator.readings.readings import Readings

_KINDS: tuple[type[Synthetic], ...] = (
    *(Households, Phones, TimeInState, HeavyTail, Temperature),
    *(Charging, NightHeating, Solar, Retail, Zeros, Star, Rise, Bimodal, HeatWave, Offices, Holiday, Pareto),
)
POPULATIONS = {kind.name: kind for kind in _KINDS}

__all__ = ["BOUND", "HALF_HOURS", "POPULATIONS", "Synthetic", "households", "population"]


def population(name: str, seed: int) -> Synthetic:
    """Return the population of this name. Raises Invalid."""
    if name not in POPULATIONS:
        raise Invalid(f"population is {name!r}, expected one of {', '.join(POPULATIONS)}")
    return POPULATIONS[name](seed)


def households(count: int, days: int, seed: int) -> Readings:
    """Make `count` households over `days` days of half-hours from a Monday on, determined by the seed.

    Raises Invalid for a seed out of range, ValueError for a count or number of days below 1.
    """
    return Households(seed).readings(count, days)

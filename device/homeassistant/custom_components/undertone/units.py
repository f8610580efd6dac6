"""Exact conversion of Home Assistant's states to integers in the campaign's unit. No float is involved."""

import re
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?", re.ASCII)
_LARGEST = (1 << 30) - 1


@dataclass(frozen=True)
class Unit:
    """A unit: a value x in it is ``factor`` x + ``offset`` in the base unit of its quantity."""

    quantity: str
    factor: Fraction
    offset: Fraction = Fraction(0)


UNITS = {
    "Wh": Unit("energy", Fraction(1)),
    "kWh": Unit("energy", Fraction(1000)),
    "MWh": Unit("energy", Fraction(10**6)),
    "J": Unit("energy", Fraction(1, 3600)),
    "kJ": Unit("energy", Fraction(10, 36)),
    "MJ": Unit("energy", Fraction(10**4, 36)),
    "GJ": Unit("energy", Fraction(10**7, 36)),
    "mW": Unit("power", Fraction(1, 1000)),
    "W": Unit("power", Fraction(1)),
    "kW": Unit("power", Fraction(1000)),
    "MW": Unit("power", Fraction(10**6)),
    "mL": Unit("volume", Fraction(1, 1000)),
    "L": Unit("volume", Fraction(1)),
    "l": Unit("volume", Fraction(1)),
    "m³": Unit("volume", Fraction(1000)),
    "ft³": Unit("volume", Fraction(28316846592, 10**9)),
    "K": Unit("temperature", Fraction(1)),
    "°C": Unit("temperature", Fraction(1), Fraction(27315, 100)),
    "dC": Unit("temperature", Fraction(1, 10), Fraction(27315, 100)),
    "°F": Unit("temperature", Fraction(5, 9), Fraction(45967, 180)),
}


def convertible(unit: str | None, wanted: str) -> bool:
    """Return True if values in ``unit`` can be converted to ``wanted``."""
    if unit == wanted:
        return True
    return unit in UNITS and wanted in UNITS and UNITS[unit].quantity == UNITS[wanted].quantity


def units_for(wanted: str) -> list[str]:
    """Return every unit that can be converted to ``wanted``."""
    return sorted({wanted, *(unit for unit in UNITS if convertible(unit, wanted))})


def sample(state: str, unit: str | None, wanted: str) -> int:
    """Return the state as an integer in the unit ``wanted``, rounded half up.

    Raises ValueError for a state that is no number, for a unit that cannot be converted, and for an integer that does
    not fit 30 bits and a sign. No message contains the state, because it is a reading.
    """
    if _NUMBER.fullmatch(state) is None:
        raise ValueError("the state is no number")
    value = Fraction(state)
    if unit != wanted:
        if unit is None or not convertible(unit, wanted):
            raise ValueError(f"the unit is {unit or 'missing'}, expected one that converts to {wanted}")
        source, target = UNITS[unit], UNITS[wanted]
        value = (source.factor * value + source.offset - target.offset) / target.factor
    result = (2 * value.numerator + value.denominator) // (2 * value.denominator)
    if not -_LARGEST <= result <= _LARGEST:
        raise ValueError(f"the state is beyond ±{_LARGEST} {wanted}")
    return result

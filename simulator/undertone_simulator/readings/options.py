"""Options that a plan and a simulation share: the fleet, and the readings of its devices."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

POPULATION = "households"
COLLECT = ("reports", "stream")
LARGEST_BOUND = (1 << 22) - 1
DAY = 86400


def check_bound(bound: int) -> int:
    """Check a stated bound. Raises Invalid for one out of range."""
    return check_integer("bound", bound, 2, LARGEST_BOUND)


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """A fleet and its readings, which are synthetic or come from a file.

    The text beside each type is the help of the command line's option of the same name. An option that is None was not
    given. Raises Invalid for options that exclude each other and for a ``bound`` out of range.
    """

    devices: Annotated[int, "Number of devices."]
    epsilon: Annotated[Fraction | float | str | None, "Privacy of one reading (event level), or of a whole stream."]
    collect: Annotated[
        str | None,
        "How to collect: reports (the default; epsilon is for each reading), or stream (one budget for all reports).",
    ] = None
    population: Annotated[
        str | None,
        "Synthetic readings: households, phones, time-in-state, heavy-tail, temperature, charging, night-heating, "
        f"solar, retail, zeros, star, rise, bimodal, heat-wave, offices, holiday or pareto (default {POPULATION}).",
    ] = None
    data: Annotated[Path | str | None, "File of readings to use instead: .npz, .csv or .parquet."] = None
    unit: Annotated[str | None, "Unit of the readings, such as kwh, if the file does not name it."] = None
    slot_seconds: Annotated[
        int | None,
        "Seconds between two readings, if the file does not tell them (default 1800; give 86400 for daily readings).",
    ] = None
    bound: Annotated[int | None, "Public upper bound of a reading, in whole units."] = None

    def __post_init__(self) -> None:
        if self.collect is not None and self.collect not in COLLECT:
            raise Invalid(f"collect is {self.collect!r}, expected one of {', '.join(COLLECT)}")
        if self.population is not None and self.data is not None:
            raise Invalid("population and data exclude each other")
        if self.unit is not None and self.data is None:
            raise Invalid(f"unit is {self.unit!r}, expected none: a synthetic population has its own")
        if self.slot_seconds is not None:
            check_integer("slot_seconds", self.slot_seconds, 1, DAY)
            if self.data is None:
                raise Invalid(f"slot_seconds is {self.slot_seconds}, expected none: a synthetic population has its own")
        if self.bound is not None:
            check_bound(self.bound)

    def given(self, names: Iterable[str]) -> list[str]:
        """Return those of the options ``names`` that were given; a flag is given if it is set."""
        return [name for name in names if getattr(self, name) is not None and getattr(self, name) is not False]

    def refuse(self, names: Iterable[str], condition: str) -> None:
        """Raise Invalid if one of these options was given; ``condition`` says when, for example "with window"."""
        given = self.given(names)
        if given:
            raise Invalid(f"{', '.join(given)} cannot be given {condition}")

"""The readings that options select: a synthetic population, or a file."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from undertone_shared.errors import Invalid
from undertone_simulator.readings.bounds import public_bound
from undertone_simulator.readings.loaders import load
from undertone_simulator.readings.options import POPULATION, FleetOptions
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import ReadingSource


class ChosenReadings(NamedTuple):
    """A source of readings with its public bound.

    ``households`` and ``days``: numbers of households and whole days in a file; None for a synthetic population, which
    is unlimited. ``notes``: sentences about a file's readings and about the origin of their bound.
    """

    source: ReadingSource
    bound: int
    households: int | None
    days: int | None
    notes: list[str]


def open_source(options: FleetOptions, devices: int, seed: int) -> ChosenReadings:
    """Open the readings. ``devices``: number of devices that share a file's single stream.

    Raises Invalid for an unknown population, a file that holds no readings, and options that do not fit the readings.
    Raises OSError for a file that cannot be read.
    """
    if options.data is None:
        synthetic = population(POPULATION if options.population is None else options.population, seed)
        bound = synthetic.bound if options.bound is None else options.bound
        return ChosenReadings(synthetic, bound, None, None, [])
    readings = load(Path(options.data), options.unit, devices)
    if options.slot_seconds is not None:
        if readings.step_seconds:
            raise Invalid(
                f"slot_seconds is {options.slot_seconds}, expected none: {Path(options.data).name} tells that its"
                f" readings are {readings.step_seconds} s apart"
            )
        readings = replace(readings, step_seconds=options.slot_seconds)
    bound, note = public_bound(readings, options.bound)
    days = readings.slots // readings.per_day
    notes = [*readings.notes, *([note] if note else [])]
    if readings.households < options.devices:
        notes.append(
            f"{Path(options.data).name} has {readings.households} series of readings for {options.devices} devices:"
            " the other devices are taken to repeat these series"
        )
    return ChosenReadings(readings, bound, readings.households, days, notes)

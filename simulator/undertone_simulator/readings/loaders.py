"""Readings from files: an NPZ archive is read by numpy, CSV and Parquet files are tables.

Readings become integers in a natural unit: kWh are counted in Wh, every other unit stays as it is.
"""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_central.feed import arrays_of
from undertone_shared.campaign import LONGEST_UNIT
from undertone_shared.checks import check_text
from undertone_shared.errors import Invalid
from undertone_simulator.readings.readings import Readings, dealt
from undertone_simulator.readings.tables import Faults, arrange, read_table, time_text

# Natural unit and factor for the units that a file may name.
UNITS = {"wh": ("Wh", 1), "kwh": ("Wh", 1000)}
LARGEST_READING = (1 << 30) - 1


def load(path: Path, unit: str | None = None, devices: int = 1) -> Readings:
    """Read the readings in `path`; the suffix gives the format (.npz, .csv, .parquet or .pq).

    `unit`: the file's own unit (kWh becomes Wh, others are kept); None: the unit that the file's header names.
    `devices`: number of devices to which a single stream is dealt. Bad rows and cells of tables are left out, and
    `notes` names the first of them; for an NPZ file it counts missing readings. A single stream must have no gaps.
    Raises Invalid for another kind of file or one without readings, OSError if it cannot be read.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        raise Invalid(f"{path.name} is a folder, expected a file that ends in .npz, .csv or .parquet")
    if suffix == ".npz":
        return _archive(path, unit, devices)
    if suffix in (".csv", ".parquet", ".pq"):
        return _table(path, unit)
    raise Invalid(f"{path.name} ends in {suffix or 'nothing'!r}, expected .npz, .csv or .parquet")


def natural_unit(name: str) -> tuple[str, int]:
    """Return (natural unit, factor): kWh are counted in Wh, every other unit is unchanged.

    Raises Invalid for a name with more than 16 characters, or with an invisible character.
    """
    check_text("unit", name, LONGEST_UNIT)
    return UNITS.get(name.lower(), (name, 1))


def _archive(path: Path, unit: str | None, devices: int) -> Readings:
    arrays = arrays_of(path)
    tables = [n for n, a in arrays.items() if a.ndim in (1, 2) and a.size and a.dtype.kind in "iuf"]
    expected = [n for n in ("wh", "kwh", "values", "v") if n in tables]
    if not expected and len(tables) != 1:
        names = ", ".join(arrays) or "nothing"
        raise Invalid(f"{path.name} holds {names}, expected an array of numbers named wh, kwh, values or v")
    name = expected[0] if expected else tables[0]
    named = unit if unit is not None else (name if name in UNITS else "")
    natural, factor = natural_unit(named)
    values, present, notes = _integers(arrays[name], factor, named, f"{path.name}, array {name}")
    if values.ndim == 1:
        if not present.all():
            raise Invalid(f"{path.name}, array {name}: a single stream must have no gaps")
        return dealt(values, devices, natural)
    start = arrays.get("t0")
    return Readings(
        values,
        present,
        natural,
        str(start) if start is not None and start.ndim == 0 else "",
        _step_seconds(arrays.get("step_min")),
        notes,
    )


def _step_seconds(minutes: NDArray[np.generic] | None) -> int:
    """Return the length of an archive's slots in seconds, 0 if it has no valid one."""
    if minutes is None or minutes.ndim or minutes.dtype.kind not in "iuf" or not 0 < float(minutes) < 1e6:
        return 0
    return round(60 * float(minutes))


def _table(path: Path, unit: str | None) -> Readings:
    faults = Faults(path.name)
    table = read_table(path, faults)
    named = unit if unit is not None else _unit_in(table.header)
    grid = arrange(path, table, faults)
    natural, factor = natural_unit(named)
    values, present, notes = _integers(grid.numbers, factor, named, path.name)
    start = "" if grid.start is None else time_text(grid.start)
    return Readings(values, present, natural, start, grid.step, faults.notes() + notes)


def _unit_in(header: list[str]) -> str:
    """Return kwh if a column's name contains it, wh if one has it as a word, as in energy_wh or load (Wh); else ''."""
    text = " ".join(header).lower()
    return "kwh" if "kwh" in text else "wh" if "wh" in re.findall("[a-z]+", text) else ""


def _integers(
    array: NDArray[np.generic], factor: int, unit: str, where: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[str]]:
    """Convert a numeric array to natural units with a mask of valid values, and sentences about the others."""
    numbers = np.asarray(array, dtype=np.float64) * factor
    present = np.isfinite(numbers) & (np.abs(numbers) <= LARGEST_READING)
    if not present.any():
        raise Invalid(f"{where}: there is no usable reading in it: each is missing or too large")
    whole = np.rint(np.where(present, numbers, 0.0))
    if not unit and np.any(np.abs(numbers[present] - whole[present]) > 1e-6):
        raise Invalid(f"{where}: readings have fractions: give their unit with --unit, such as kwh")
    gaps = int(present.size - np.count_nonzero(present))
    notes = [f"{where}: {gaps} of {present.size} readings are missing or too large"] if gaps else []
    return whole.astype(np.int64), present, notes

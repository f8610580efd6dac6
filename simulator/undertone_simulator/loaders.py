"""Data files as `Readings`: NPZ, CSV and Parquet, in integer natural units, every bad row named.

NPZ: an array households × slots called ``wh``, ``kwh``, ``values`` or the only one in the file, or a single stream
``v``; optional ``t0`` (text) and ``step_min``. CSV and Parquet: *wide*, one column per household and perhaps a
first column of times, or *long*, the three columns household, time, value. A header is detected.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid
from undertone_simulator.readings import Readings, dealt

# Natural unit and factor for the units that a file may name.
UNITS = {"wh": ("Wh", 1), "kwh": ("Wh", 1000)}
LARGEST_READING = (1 << 30) - 1
_NAMED_ROWS = 20
_LARGEST_GRID = 1 << 27
_EPOCH = datetime(1970, 1, 1)


def load(path: Path, unit: str | None = None, devices: int = 1) -> Readings:
    """The readings in `path`, the kind told by its suffix (.npz, .csv, .parquet).

    `unit` is the file's own unit where its header does not say (kWh becomes Wh, any other is kept as it is);
    `devices` deals a single stream to that many. Bad rows become gaps and are named in `notes`. Raises Invalid
    for a file that is none of these or holds no reading, OSError where it cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _load_npz(path, unit, devices)
    if suffix == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return _load_table(path, csv.reader(lines), unit)
    if suffix in (".parquet", ".pq"):
        return _load_table(path, _parquet_rows(path), unit)
    raise Invalid(f"{path.name} ends in {suffix or 'nothing'!r}, expected .npz, .csv or .parquet")


def natural_unit(name: str) -> tuple[str, int]:
    """(natural unit, factor): kWh are counted in Wh, every other unit is its own. Raises Invalid beyond 16 letters."""
    if len(name) > 16:
        raise Invalid(f"unit is {name!r}, expected at most 16 characters")
    return UNITS.get(name.lower(), (name, 1))


def _load_npz(path: Path, unit: str | None, devices: int) -> Readings:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError) as error:
        raise Invalid(f"{path.name} is not a NumPy archive: {error}") from None
    except Exception as error:
        if type(error).__name__ != "BadZipFile":
            raise
        raise Invalid(f"{path.name} is not a NumPy archive: {error}") from None
    tables = [n for n, a in arrays.items() if a.ndim in (1, 2) and a.size and a.dtype.kind in "iuf"]
    known = [n for n in ("wh", "kwh", "values", "v") if n in tables]
    if not known and len(tables) != 1:
        names = ", ".join(arrays) or "nothing"
        raise Invalid(f"{path.name} holds {names}, expected an array wh, kwh, values or v of numbers")
    name = known[0] if known else tables[0]
    named = unit if unit is not None else (name if name in UNITS else "")
    natural, factor = natural_unit(named)
    values, present, notes = _integers(arrays[name], factor, named, f"{path.name}, array {name}")
    if values.ndim == 1:
        if not present.all():
            raise Invalid(f"{path.name}, array {name}: a single stream must have no gaps")
        return dealt(values, devices, natural)
    step = arrays.get("step_min")
    start = arrays.get("t0")
    return Readings(
        values,
        present,
        natural,
        str(start) if start is not None and start.ndim == 0 else "",
        int(step) * 60 if step is not None and step.ndim == 0 else 0,
        notes,
    )


def _integers(
    array: NDArray[np.generic], factor: int, unit: str, where: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[str]]:
    """Natural units of a numeric array, where it is finite and in range; and sentences about the rest."""
    numbers = np.asarray(array, dtype=np.float64) * factor
    present = np.isfinite(numbers) & (np.abs(numbers) <= LARGEST_READING)
    if not present.any():
        raise Invalid(f"{where}: there is no reading in it")
    whole = np.rint(np.where(present, numbers, 0.0))
    if not unit and np.any(np.abs(numbers[present] - whole[present]) > 1e-6):
        raise Invalid(f"{where}: readings have fractions; name their unit, such as kwh")
    gaps = int(present.size - np.count_nonzero(present))
    notes = [f"{where}: {gaps} of {present.size} readings are missing"] if gaps else []
    return whole.astype(np.int64), present, notes


def _parquet_rows(path: Path) -> Iterator[list[str]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise Invalid(
            f"{path.name}: Parquet needs pyarrow, install it with: pip install 'undertone-ldp[all]'"
        ) from None
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise Invalid(f"{path.name} is not a Parquet file: {error}") from None
    yield list(table.column_names)
    for batch in table.to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield ["" if cell is None else str(cell) for cell in row]


@dataclass
class _Faults:
    """What is wrong with which rows."""

    where: str
    sentences: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, row: int, why: str) -> None:
        self.count += 1
        if self.count <= _NAMED_ROWS:
            self.sentences.append(f"{self.where}, row {row}: {why}")

    def notes(self) -> list[str]:
        more = self.count - len(self.sentences)
        return self.sentences + ([f"{self.where}: {more} more rows have the same faults"] if more else [])


def _load_table(path: Path, rows: Iterable[list[str]], unit: str | None) -> Readings:
    table = [(number, [cell.strip() for cell in row]) for number, row in enumerate(rows, 1)]
    table = [(number, row) for number, row in table if any(row)]
    if not table:
        raise Invalid(f"{path.name} is empty")
    header = table[0][1] if not any(_number(cell) is not None for cell in table[0][1][1:]) else []
    if header:
        table = table[1:]
    if not table:
        raise Invalid(f"{path.name} has a header and no row")
    columns = len(header or table[0][1])
    named = unit if unit is not None else _unit_in(header)
    faults = _Faults(path.name)
    complete = []
    for number, row in table:
        if len(row) == columns:
            complete.append((number, row))
        else:
            faults.add(number, f"it has {len(row)} columns, expected {columns}; left out")
    if not complete:
        raise Invalid(f"{path.name} has no row with {columns} columns")
    long = columns == 3 and _time(complete[0][1][1]) is not None and _number(complete[0][1][0]) is None
    read = _long if long else _wide
    return read(path, complete, header, named, faults)


def _unit_in(header: list[str]) -> str:
    """The unit that a header names, '' if none."""
    text = " ".join(header).lower()
    return "kwh" if "kwh" in text else "wh" if "wh" in text.replace("_", " ").split() else ""


def _long(path: Path, table: list[tuple[int, list[str]]], _: list[str], unit: str, faults: _Faults) -> Readings:
    """Rows household, time, value on the grid of their most frequent time step."""
    cells: dict[tuple[str, int], float] = {}
    source: list[tuple[int, str, int, float]] = []
    for number, (household, when, text) in table:
        value, second = _number(text), _time(when)
        if value is None:
            faults.add(number, f"the reading is {text!r}, expected a number; left out")
        elif second is None:
            faults.add(number, f"the time is {when!r}, expected a date and time; left out")
        else:
            source.append((number, household, second, value))
    if not source:
        raise Invalid(f"{path.name}: there is no reading in it")
    seconds = sorted({second for _, _, second, _ in source})
    steps = Counter(int(s) for s in np.diff(seconds))
    step = steps.most_common(1)[0][0] if steps else 0
    phase = Counter(second % step for second in seconds).most_common(1)[0][0] if step else 0
    for number, household, second, value in source:
        key = (household, second)
        if step and second % step != phase:
            faults.add(number, f"its time is not a multiple of the step of {step} seconds; left out")
        elif key in cells:
            same = "repeats an earlier row" if cells[key] == value else f"contradicts an earlier row, {cells[key]:g}"
            faults.add(number, f"{household} at {_text(second)} {same}; left out")
        else:
            cells[key] = value
    households = sorted({household for household, _ in cells})
    first = min(second for _, second in cells)
    last = max(second for _, second in cells)
    numbers = _empty(path, len(households), (last - first) // step + 1 if step else 1)
    place = {household: i for i, household in enumerate(households)}
    for (household, second), value in cells.items():
        numbers[place[household], (second - first) // step if step else 0] = value
    natural, factor = natural_unit(unit)
    values, present, notes = _integers(numbers, factor, unit, path.name)
    return Readings(values, present, natural, _text(first), step, faults.notes() + notes)


def _wide(path: Path, table: list[tuple[int, list[str]]], header: list[str], unit: str, faults: _Faults) -> Readings:
    """One column per household; a first column of times, where there is one, gives the grid."""
    timed = _number(table[0][1][0]) is None and _time(table[0][1][0]) is not None
    times: list[int] = []
    rows: list[list[float]] = []
    for number, row in table:
        second = _time(row[0]) if timed else 0
        if second is None:
            faults.add(number, f"the time is {row[0]!r}, expected a date and time; left out")
            continue
        if timed and times and second <= times[-1]:
            faults.add(number, f"its time {row[0]} is not after the row before; left out")
            continue
        times.append(second)
        rows.append([])
        for column, text in enumerate(row[1:] if timed else row):
            value = _number(text)
            if value is None and text:
                name = header[column + timed] if header else f"column {column + 1 + timed}"
                faults.add(number, f"{name} is {text!r}, expected a number; a gap")
            rows[-1].append(math.nan if value is None else value)
    if not rows or not rows[0]:
        raise Invalid(f"{path.name}: there is no reading in it")
    step = Counter(int(s) for s in np.diff(times)).most_common(1)[0][0] if len(times) > 1 and timed else 0
    place = [(second - times[0]) // step for second in times] if step else list(range(len(rows)))
    numbers = _empty(path, len(rows[0]), place[-1] + 1)
    for slot, cells in zip(place, rows, strict=True):
        numbers[:, slot] = cells
    natural, factor = natural_unit(unit)
    values, present, notes = _integers(numbers, factor, unit, path.name)
    return Readings(values, present, natural, _text(times[0]) if timed else "", step, faults.notes() + notes)


def _empty(path: Path, households: int, slots: int) -> NDArray[np.float64]:
    if households * slots > _LARGEST_GRID:
        raise Invalid(
            f"{path.name} spans {slots} time steps for {households} households, expected fewer; is a time wrong?"
        )
    return np.full((households, slots), np.nan)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _time(text: str) -> int | None:
    """Seconds since 1970 of a local date and time (a UTC offset, where given, is applied)."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    offset = when.utcoffset() or timedelta(0)
    return int((when.replace(tzinfo=None) - offset - _EPOCH).total_seconds())


def _text(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat(sep=" ")

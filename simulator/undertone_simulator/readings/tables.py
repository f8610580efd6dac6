"""Readings from tables, CSV or Parquet, read by pyarrow.

A table has a column per household, or three columns, in any order: household, time and reading. A row or a cell with an
error is left out; `Faults` counts these errors, and names the first of them with the row's number in the file.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

Floats = NDArray[np.float64]

_NAMED_ROWS = 20
_LARGEST_GRID = 1 << 27
_EPOCH = datetime(1970, 1, 1)


@dataclass
class Faults:
    """Errors in the rows of a file."""

    where: str
    sentences: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, row: int, why: str) -> None:
        """Record an error."""
        self.count += 1
        if self.count <= _NAMED_ROWS:
            self.sentences.append(f"{self.where}, row {row}: {why}")

    def notes(self) -> list[str]:
        """Return sentences about the first `_NAMED_ROWS` faults, and one with the number of the others."""
        more = self.count - len(self.sentences)
        others = many(more, "more fault is", "more faults are")
        return self.sentences + ([f"{self.where}: {others} not listed"] if more else [])


@dataclass(frozen=True)
class Table:
    """Rows of cells with their numbers in the file; ``header`` is empty if there is none."""

    header: list[str]
    rows: list[tuple[int, tuple[str, ...]]]


@dataclass(frozen=True)
class Grid:
    """A table's readings: ``numbers`` [households, slots], nan for gaps.

    The first slot begins at second ``start`` since 1970, and slots are ``step`` seconds long.

    ``start`` is None and ``step`` 0 if they are unknown.
    """

    numbers: Floats
    start: int | None
    step: int


def read_table(path: Path, faults: Faults) -> Table:
    """Read the cells of a CSV or Parquet file. Raises Invalid, or OSError."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        need = "tables need pyarrow, install it with: pip install 'undertone-ldp[simulator]'"
        raise Invalid(f"{path.name}: {need}") from None
    try:
        header, rows = _parquet(path) if path.suffix.lower() != ".csv" else _csv(path, faults)
    except pyarrow.ArrowInvalid as wrong:
        reason = str(wrong).splitlines()[0]
        raise Invalid(f"{path.name} is empty" if "Empty CSV" in reason else f"{path.name}: {reason}") from None
    if not rows:
        raise Invalid(f"{path.name} has a header and no row")
    return Table(header, rows)


def _parquet(path: Path) -> tuple[list[str], list[tuple[int, tuple[str, ...]]]]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in table.columns]
    return list(table.column_names), list(enumerate(zip(*columns, strict=True), 2))


def _csv(path: Path, faults: Faults) -> tuple[list[str], list[tuple[int, tuple[str, ...]]]]:
    from pyarrow import csv, string

    left_out: set[int] = set()

    def other_width(row: Any) -> str:
        left_out.add(row.number)
        if row.text.strip():
            found = many(row.actual_columns, "column")
            faults.add(row.number, f"the row has {found}, expected {row.expected_columns}; left out")
        return "skip"

    with path.open("rb") as file:
        # All columns that a row may have are declared as text.
        types = {f"f{i}": string() for i in range(1 << 14)}
        table = csv.read_csv(
            file,
            csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            csv.ParseOptions(invalid_row_handler=other_width, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
    columns = [[str(cell).strip() for cell in column.to_pylist()] for column in table.columns]
    total = table.num_rows + len(left_out)
    numbers = [number for number in range(1, total + 1) if number not in left_out]
    rows = [row for row in zip(numbers, zip(*columns, strict=True), strict=True) if any(row[1])]
    if not rows:
        raise Invalid(f"{path.name} is empty")
    first = [cell.lstrip("\ufeff") for cell in rows[0][1]]
    headed = not any(number(cell) is not None for cell in (first[1:] or first))
    return (first, rows[1:]) if headed else ([], rows)


def arrange(path: Path, table: Table, faults: Faults) -> Grid:
    """Arrange the table's readings on the grid of their most frequent time step. Raises Invalid."""
    first = table.rows[0][1]
    roles = _roles(first) if len(first) == 3 else None
    # A wide table has each time once, except for the times of the hour that is repeated when summer time ends. A table
    # in which most times repeat has rows of household, time and reading.
    timed = number(first[0]) is None and second_of(first[0]) is not None
    if roles is None and len(first) == 3 and timed and 2 * len({row[0] for _, row in table.rows}) <= len(table.rows):
        raise Invalid(
            f"{path.name} has several rows with the same time, so it seems to have the columns time, household and"
            " reading; the households are numbers, expected names with a letter, such as h7"
        )
    return _long(path, table, roles, faults) if roles is not None else _wide(path, table, faults)


def _roles(row: Sequence[str]) -> tuple[int, int, int] | None:
    """Return the positions of household, time and reading in a row of three cells; None for another kind of row."""
    times = [i for i, cell in enumerate(row) if second_of(cell) is not None and number(cell) is None]
    if len(times) != 1:
        return None
    others = [i for i in range(3) if i != times[0]]
    names = [i for i in others if number(row[i]) is None]
    if not names:
        return None
    # If two cells are words, such as a name and the state of a sensor, the first is the name.
    return names[0], times[0], next(i for i in others if i != names[0])


def _long(path: Path, table: Table, roles: tuple[int, int, int], faults: Faults) -> Grid:
    """Read rows of household, time, value."""
    source: list[tuple[int, str, int, float]] = []
    for row, cells in table.rows:
        household, when, text = (cells[i] for i in roles)
        value, second = number(text), second_of(when)
        if value is None:
            faults.add(row, f"the reading is {text!r}, expected a number; left out")
        elif second is None:
            faults.add(row, f"the time is {when!r}, expected a date and time; left out")
        else:
            source.append((row, household, second, value))
    if not source:
        raise Invalid(f"{path.name}: no row has both a time and a reading that is a number")
    step = _step(sorted({second for _, _, second, _ in source}))
    phase = Counter(second % step for _, _, second, _ in source).most_common(1)[0][0] if step else 0
    readings: dict[tuple[str, int], float] = {}
    for row, household, second, value in source:
        key = (household, second)
        if step and second % step != phase:
            faults.add(row, f"its time does not fit the step of {step} seconds; left out")
        elif key in readings:
            earlier = readings[key]
            same = "repeats an earlier row" if earlier == value else f"contradicts an earlier row with {earlier:g}"
            faults.add(row, f"{household} at {time_text(second)} {same}; left out")
        else:
            readings[key] = value
    place = {household: i for i, household in enumerate(sorted({household for household, _ in readings}))}
    first, last = min(second for _, second in readings), max(second for _, second in readings)
    numbers = _empty(path, len(place), (last - first) // step + 1 if step else 1)
    for (household, second), value in readings.items():
        numbers[place[household], (second - first) // step if step else 0] = value
    return Grid(numbers, first, step)


def _wide(path: Path, table: Table, faults: Faults) -> Grid:
    """Read one column per household. If the first column has times, it gives the grid."""
    timed = number(table.rows[0][1][0]) is None and second_of(table.rows[0][1][0]) is not None
    names = table.header or [f"column {i + 1}" for i in range(len(table.rows[0][1]))]
    times: list[int] = []
    rows: list[list[float]] = []
    for row, cells in table.rows:
        second = second_of(cells[0]) if timed else 0
        if second is None:
            faults.add(row, f"the time is {cells[0]!r}, expected a date and time; left out")
            continue
        if timed and times and second <= times[-1]:
            faults.add(row, f"its time {cells[0]} is not after that of an earlier row; left out")
            continue
        times.append(second)
        values = [number(text) for text in cells[timed:]]
        for name, text, value in zip(names[timed:], cells[timed:], values, strict=True):
            if value is None and text:
                faults.add(row, f"{name} is {text!r}, expected a number; it becomes a gap")
        rows.append([math.nan if value is None else value for value in values])
    if not rows or not rows[0] or all(math.isnan(value) for row in rows for value in row):
        raise Invalid(f"{path.name}: there is no reading in it")
    for name, column in zip(names[timed:], np.isnan(np.array(rows)).all(axis=0).tolist(), strict=True):
        if column and any(cells[names.index(name)] for _, cells in table.rows):
            raise Invalid(
                f"{path.name}: {name} has no number in it, expected readings in every column, except for times in the"
                " first"
            )
    step = _step(times) if len(times) > 1 and timed else 0
    place = [(second - times[0]) // step for second in times] if step else list(range(len(rows)))
    numbers = _empty(path, len(rows[0]), place[-1] + 1)
    numbers[:, place] = np.array(rows).T
    return Grid(numbers, times[0] if timed else None, step)


def _step(seconds: Sequence[int]) -> int:
    """Return the most frequent difference of increasing times, 0 for fewer than two."""
    steps = Counter(int(step) for step in np.diff(seconds))
    return steps.most_common(1)[0][0] if steps else 0


def _empty(path: Path, households: int, slots: int) -> Floats:
    if households * slots > _LARGEST_GRID:
        raise Invalid(
            f"{path.name} spans {slots} time steps for {many(households, 'household')}, expected fewer; is a time"
            " wrong?"
        )
    return np.full((households, slots), np.nan)


def number(text: str) -> float | None:
    """Parse a cell as a finite number; None for other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def second_of(text: str) -> int | None:
    """Parse a local date and time to seconds since 1970 (a UTC offset is applied); None for other text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    offset = when.utcoffset() or timedelta(0)
    return int((when.replace(tzinfo=None) - offset - _EPOCH).total_seconds())


def time_text(second: int) -> str:
    """Return the local date and time of a second since 1970 as text."""
    return (_EPOCH + timedelta(seconds=second)).isoformat(sep=" ")

"""Input streams of values from files and pipes, in batches: CSV, NPZ, Parquet, or lines of text.

A cell that is empty, or not a whole number after scaling, counts as 0, and so keeps its place in the stream. A message
names each such cell or, for NPZ files, their number.
"""

import csv
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

BATCH = 1 << 16
_LARGEST = 1 << 53
_LONGEST_TEXT = 40
# A cell with at most this many digits is certainly below _LARGEST.
_PLAIN = 15

Say = Callable[[str], None]


def batches(path: Path, column: str | None, scale: Fraction, say: Say) -> Iterator[Integers]:
    """Yield the values of a file, times ``scale``, in file order, in batches of at most 65536.

    ``column``: for text, the name or the number (from 0) of the column; for Parquet, its name; None means the last one.
    For NPZ, it is the name of the array; None means the only array of numbers. Raises Invalid, OSError.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        yield from _npz(path, column, scale, say)
    elif suffix in (".parquet", ".pq"):
        yield from _parquet(path, column, scale, say)
    else:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            yield from _grouped(text_values(lines, column, scale, say, path.name), BATCH)


def expected(path: Path) -> int | None:
    """Estimate the number of rows of a text file from its size and its first 64 KiB.

    Return None for NPZ and Parquet files, and if there is no end of a line in these 64 KiB.
    """
    if path.suffix.lower() in (".npz", ".parquet", ".pq"):
        return None
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return int(path.stat().st_size * start.count(b"\n") / len(start)) if b"\n" in start else None


def text_values(lines: Iterable[str], column: str | None, scale: Fraction, say: Say, name: str) -> Iterator[int]:
    """Yield one value for each line of comma-separated text that is not empty.

    The first line is skipped as a header if ``column`` is a name, or if its cell in that column is no number. Raises
    Invalid.
    """
    place: int | None = int(column) if column is not None and column.isdecimal() else None
    for number, row in enumerate(_rows(lines, name), 1):
        if not row:
            continue
        if number == 1 and place is not None and place >= len(row):
            raise Invalid(f"column is {place}, expected 0 to {len(row) - 1}: {name} has no other columns")
        if column is not None and place is None:
            if column not in row:
                raise Invalid(f"{name} has the columns {', '.join(row)}, expected one named {column!r}")
            place = row.index(column)
            continue
        cell = row[-1] if place is None else row[place] if place < len(row) else ""
        value = parse(cell, scale)
        if value is None and number == 1 and not _is_number(cell):
            continue
        if value is None:
            say(f"{name}, row {number}: {not_whole(cell, scale)}")
        yield value or 0


def _rows(lines: Iterable[str], name: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as wrong:
        raise Invalid(f"{name} cannot be read as comma-separated text: {wrong}") from None


def parse(cell: str, scale: Fraction) -> int | None:
    """Return the number in the cell times ``scale``.

    Return None if the product is no whole number or is 2^53 or larger in size, or if the cell is too long.
    """
    if cell.isdecimal() and len(cell) <= _PLAIN:
        # Plain digits are converted here, with the same result as by the general code below, but faster.
        value, rest = divmod(int(cell) * scale.numerator, scale.denominator)
        return value if rest == 0 and value < _LARGEST else None
    try:
        if len(cell) > _LONGEST_TEXT or not abs(float(cell)) < _LARGEST:
            return None
        scaled = Fraction(cell.strip()) * scale
    except ValueError:
        return None
    return int(scaled) if scaled.denominator == 1 and abs(scaled) < _LARGEST else None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def not_whole(cell: str, scale: Fraction) -> str:
    """Return the sentence about a cell for which `parse` returns None."""
    if len(cell) > _LONGEST_TEXT:
        return f"{cell[:_LONGEST_TEXT]!r}… has more than {_LONGEST_TEXT} characters, and counts as 0"
    return f"{cell!r} is not a whole number between -2^53 and 2^53{_scaled(scale)}, and counts as 0"


def _scaled(scale: Fraction) -> str:
    return "" if scale == 1 else f" after scaling by {scale}"


class PipeLines:
    """The lines that arrive at a file descriptor, as an iterator."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._ended = False

    @property
    def drained(self) -> bool:
        """True if every whole line that was read from the descriptor has been handed out."""
        return not self._lines

    def __iter__(self) -> Iterator[str]:
        while True:
            while not self._lines and not self._ended:
                data = os.read(self._descriptor, 1 << 16)
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._lines.extend(whole)
                if not data:
                    self._ended = True
                    self._lines.append(self._rest)
            if not self._lines:
                return
            yield self._lines.popleft().decode("utf-8", "replace")


def as_they_come(lines: PipeLines, values: Iterator[int]) -> Iterator[Integers]:
    """Yield the values of a pipe in batches: all that have arrived, but at most `BATCH` at a time."""
    held: list[int] = []
    for value in values:
        held.append(value)
        if lines.drained or len(held) == BATCH:
            yield np.array(held, dtype=np.int64)
            held.clear()
    if held:
        yield np.array(held, dtype=np.int64)


def _grouped(values: Iterator[int], size: int) -> Iterator[Integers]:
    held: list[int] = []
    for value in values:
        held.append(value)
        if len(held) == size:
            yield np.array(held, dtype=np.int64)
            held.clear()
    if held:
        yield np.array(held, dtype=np.int64)


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file by name. Raises Invalid, or OSError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as wrong:
        if isinstance(wrong, OSError):
            raise
        raise Invalid(f"{path.name} is not a NumPy archive of plain arrays") from None


def _npz(path: Path, column: str | None, scale: Fraction, say: Say) -> Iterator[Integers]:
    arrays = arrays_of(path)
    usable = [n for n, a in arrays.items() if a.ndim in (1, 2) and a.size and a.dtype.kind in "iuf"]
    name = column if column is not None else usable[0] if len(usable) == 1 else None
    if not usable:
        raise Invalid(f"{path.name} holds no array of one or two dimensions with numbers in it")
    if name is None or name not in usable:
        raise Invalid(f"{path.name} holds the arrays of numbers {', '.join(usable)}: name one with --column")
    array = arrays[name]
    stream = array.T.reshape(-1) if array.ndim == 2 else array
    for start in range(0, len(stream), BATCH):
        values, fine = _whole(stream[start : start + BATCH], scale)
        if wrong := int((~fine).sum()):
            are, count = ("is not a whole number", "counts") if wrong == 1 else ("are not whole numbers", "count")
            say(
                f"{path.name}, values {start} to {start + len(values) - 1}: {wrong} of these {are} between -2^53 and"
                f" 2^53{_scaled(scale)}, and {count} as 0"
            )
        yield values


def _whole(
    values: "np.ndarray[tuple[int], np.dtype[np.generic]]", scale: Fraction
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return (values times ``scale``, mask of the valid ones).

    A value that is not finite, differs from a whole number by 1e-6 or more, or is 2^53 or larger in size, is not valid,
    and becomes 0.
    """
    numbers = np.asarray(values, dtype=np.float64) * float(scale)
    whole = np.rint(np.where(np.isfinite(numbers), numbers, 0.0))
    fine = (np.abs(numbers - whole) < 1e-6) & (np.abs(whole) < _LARGEST)
    return np.where(fine, whole, 0.0).astype(np.int64), fine


def _parquet(path: Path, column: str | None, scale: Fraction, say: Say) -> Iterator[Integers]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise Invalid(f"{path.name}: Parquet needs pyarrow: pip install 'undertone-ldp[all]'") from None
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as wrong:
        raise Invalid(f"{path.name} is not a Parquet file: {wrong}") from None
    names = list(file.schema_arrow.names)
    name = column if column is not None else names[-1]
    if name not in names:
        raise Invalid(f"{path.name} has the columns {', '.join(names)}, expected one named {name!r}")
    row = 0
    for batch in file.iter_batches(batch_size=BATCH, columns=[name]):
        held = []
        for cell in batch.column(0).to_pylist():
            row += 1
            value = parse(str(cell), scale)
            if value is None:
                say(f"{path.name}, row {row}: {not_whole('' if cell is None else str(cell), scale)}")
            held.append(value or 0)
        yield np.array(held, dtype=np.int64)

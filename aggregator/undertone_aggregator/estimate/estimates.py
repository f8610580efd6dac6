"""Rows of results. Each row holds the estimate of one series in one slot, or over slots, with its errors."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, get_args, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import EVERYBODY

# Quantile of the normal distribution for nominal 95 % intervals.
Z = 1.959963984540054
# Kinds of estimate (see `Estimate`): from reports of single slots, from reports of streams, or fitted to a threshold
# round.
MEASURED = "report"
RELEASED = "stream"
MODEL = "model"
Vector = NDArray[np.float64]
# Kind of a row without a number: nobody reported, or too few did for a published one.
ABSENT = "absent"
# Largest number of consecutive slots without a number that get rows: more than a year of half-hours. A longer gap gets
# no rows, because the campaign was paused and continued later.
LONGEST_GAP = 20_000


class Series(NamedTuple):
    """One series of a campaign: a group, one coordinate of its readings (from 1 on), raw or filtered."""

    group: str = EVERYBODY
    coordinate: int = 1
    filtered: bool = False

    @property
    def topic(self) -> str:
        """The levels of the series' topic below ``aggregate/``."""
        levels = [self.group, "filtered" if self.filtered else "raw"]
        return "/".join(levels if self.coordinate == 1 else [*levels, str(self.coordinate)])

    def __str__(self) -> str:
        words = [self.group]
        if self.coordinate > 1:
            words.append(f"coordinate {self.coordinate}")
        return ", ".join([*words, "filtered"] if self.filtered else words)


class Row:
    """Base of the rows of a table: a frozen dataclass whose fields are the table's columns.

    ``plural``: the name of the table. A field of type `Series` gives three columns. ``derived``: the names of
    properties that are further columns, after those of the fields.
    """

    plural: ClassVar[str]
    derived: ClassVar[tuple[str, ...]] = ()

    def row(self) -> dict[str, Any]:
        """Return the row as a flat dictionary: column -> value."""
        columns: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            columns |= value._asdict() if isinstance(value, Series) else {field.name: value}
        return columns | {name: getattr(self, name) for name in self.derived}

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns of ``row``."""
        names = [Series._fields if field.type is Series else (field.name,) for field in fields(cls)]  # type: ignore[arg-type]
        return (*(name for some in names for name in some), *cls.derived)

    @classmethod
    def types(cls) -> dict[str, type]:
        """Return the type of each column: int, float, str or bool. For a type T | None it is T."""
        hints = {field.name: field.type for field in fields(cls)}  # type: ignore[arg-type]
        hints |= {name: get_type_hints(getattr(cls, name).fget)["return"] for name in cls.derived}
        hints |= Series.__annotations__ if "series" in hints else {}
        return {name: _without_none(hints[name]) for name in cls.columns()}

    @classmethod
    def table(cls, rows: Sequence[Any]) -> dict[str, list[Any]]:
        """Return ``row()`` of many rows of this class by column: column -> values."""
        table: dict[str, list[Any]] = {}
        for field in fields(cls):  # type: ignore[arg-type]
            values = list(map(attrgetter(field.name), rows))
            if field.type is Series:
                table |= {name: [series[i] for series in values] for i, name in enumerate(Series._fields)}
            else:
                table[field.name] = values
        return table | {name: list(map(attrgetter(name), rows)) for name in cls.derived}


def _without_none(hint: Any) -> type:
    """Return the type T of a hint T or T | None."""
    kind: type
    (kind,) = {*(get_args(hint) or (hint,))} - {type(None)}
    return kind


class MeanRow(Row):
    """A row whose ``estimate`` is the mean of the readings themselves, with its 95 % interval [low, high].

    The estimate is the mean of the truncated readings plus ``bias``, what truncation removes by a model: estimate =
    truncated_mean + bias, and standard_error² = truncated_se² + bias_se². Without such a model ``bias`` is None, and
    the estimate is the truncated mean.
    """

    derived: ClassVar[tuple[str, ...]] = ("truncated_mean", "truncated_se")
    series: Series
    estimate: float
    standard_error: float | None
    bias: float | None
    bias_se: float | None

    @property
    def group(self) -> str:
        """The name of the group of devices that the series is about."""
        return self.series.group

    @property
    def truncated_mean(self) -> float:
        """The estimated mean of the truncated readings."""
        return self.estimate - (self.bias or 0.0)

    @property
    def truncated_se(self) -> float | None:
        """The standard error of the truncated mean; None if the row has no standard error."""
        if self.standard_error is None:
            return None
        return math.sqrt(max(self.standard_error**2 - (self.bias_se or 0.0) ** 2, 0.0))


class Load(NamedTuple):
    """The fields of a `MeanRow` that follow from a truncated mean and from what truncation removes."""

    estimate: float
    standard_error: float
    low: float
    high: float
    bias: float | None
    bias_se: float | None

    @classmethod
    def of(cls, truncated: float, error: float, bias: float | None = None, bias_se: float | None = None) -> "Load":
        """Return the fields for a truncated mean and a bias, each with its standard error.

        ``bias`` is None if it is unknown.
        """
        mean, both = truncated + (bias or 0.0), math.hypot(error, bias_se or 0.0)
        return cls(mean, both, mean - Z * both, mean + Z * both, bias, bias_se)


@dataclass(frozen=True)
class Estimate(MeanRow):
    """One slot of one series, in the reading's unit.

    ``kind`` is one of four words. ``report``: the estimate is the mean of the readings of ``reports`` devices, which
    were truncated at ``theta``, with a 95 % interval [low, high]: see `MeanRow`. ``stream``: the same for a stream's
    clipped readings, where "truncated" means clipped. ``model``: a slot of a threshold round, while θ is learnt; the
    field ``model`` is the mean of a fitted distribution. It can be far off, and has no standard error. ``absent``: a
    slot without a number, because nobody reported, or, in published rows, because too few did; its ``reports`` are 0.
    Slots of the last two kinds have no ``estimate``: it is nan here, and None in what ``row`` returns.

    ``cohort``: reports for the threshold in the slot. ``start``: Unix second. ``bias`` with its ``bias_se``: what
    truncation removes from the mean, by a model; None without such a model. ``misfit``: log10 of the evidence that the
    histogram is not from honest devices; a slot of honest devices has a misfit of m > 0 or more with probability at
    most 10^-m, and 6 or more is an alarm. ``manipulation``: how far the mean of the honest reports can be from
    ``estimate`` if 1 % of the reports are fake. ``carried``: the noise of this slot contains this share of the noise of
    the slot before it on its chain; None if the noise of slots is independent.
    """

    plural: ClassVar[str] = "slots"
    slot: int
    start: int
    series: Series
    kind: str
    reports: int
    cohort: int
    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None
    theta: int | None
    bias: float | None = None
    bias_se: float | None = None
    misfit: float | None = None
    manipulation: float | None = None
    carried: float | None = None
    model: float | None = None

    @property
    def is_learning(self) -> bool:
        """True if the slot belongs to a threshold round, which estimates no mean."""
        return self.kind == MODEL

    @property
    def is_absent(self) -> bool:
        """True if nobody reported in the slot, or too few did for a published number."""
        return self.kind == ABSENT

    def row(self) -> dict[str, Any]:
        """Return a flat map: column -> value."""
        return {name: values[0] for name, values in self.table([self]).items()}

    @classmethod
    def table(cls, rows: Sequence[Any]) -> dict[str, list[Any]]:
        """Return ``row()`` of many rows by column: column -> values."""
        return Estimates.of(rows).table()

    @classmethod
    def of_row(cls, columns: Mapping[str, Any]) -> "Estimate":
        """Make the estimate from the columns that ``row`` returned. Raises KeyError if a column is missing."""
        values = {name: columns[name] for name in cls.columns()}
        values = {name: value for name, value in values.items() if name not in cls.derived}
        series = Series(*(values.pop(name) for name in Series._fields))
        if values["kind"] in (MODEL, ABSENT):
            values["estimate"] = math.nan
        return cls(**values, series=series)


@dataclass(frozen=True, eq=False)
class Estimates(Sequence[Estimate]):
    """Estimates by column, [n] each: the fields are those of `Estimate`, nan where a row has None.

    A long series in this form needs much less memory and time than one object for each row. It can be used as a
    sequence of rows, which are made only when somebody asks for them.
    """

    slot: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.object_]
    coordinate: NDArray[np.int64]
    filtered: NDArray[np.bool_]
    kind: NDArray[np.object_]
    reports: NDArray[np.int64]
    cohort: NDArray[np.int64]
    estimate: Vector
    standard_error: Vector
    low: Vector
    high: Vector
    theta: Vector
    bias: Vector
    bias_se: Vector
    misfit: Vector
    manipulation: Vector
    carried: Vector
    model: Vector

    @classmethod
    def of(cls, rows: Sequence[Estimate]) -> "Estimates":
        """Return ``rows`` by column; an object of this class is returned as it is."""
        if isinstance(rows, cls):
            return rows
        series = [row.series for row in rows]
        columns: dict[str, Any] = {name: [getattr(each, name) for each in series] for name in Series._fields}
        for name, kind in _COLUMNS.items():
            values = columns[name] if name in columns else list(map(attrgetter(name), rows))
            columns[name] = np.array(values, dtype=kind)
        return cls(**columns)

    @classmethod
    def each(cls, n: int, *, group: str, kind: str, **columns: Any) -> "Estimates":
        """Return ``n`` rows of a group. Each of ``columns`` is an array [n] or one value for all rows.

        Rows are raw and of coordinate 1, unless columns say otherwise. Other columns that are not given are nan.
        """
        given = {"coordinate": 1, "filtered": False, "group": group, "kind": kind, **columns}
        made = {}
        for name, dtype in _COLUMNS.items():
            value = given.get(name, math.nan)
            made[name] = np.full(n, value, dtype=dtype)
        return cls(**made)

    @classmethod
    def together(cls, parts: Sequence["Estimates"]) -> "Estimates":
        """Return the rows of all parts, by slot, then series."""
        if not parts:
            return cls.of([])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        both = cls(**columns)
        groups = np.unique(both.group.astype(str), return_inverse=True)[1]
        return both.take(np.lexsort((both.filtered, both.coordinate, groups, both.slot)))

    def take(self, places: NDArray[Any]) -> "Estimates":
        """Return the rows at these places, or the rows for which an array of booleans is true."""
        return Estimates(**{name: getattr(self, name)[places] for name in _COLUMNS})

    def with_load(self, truncated: Vector, error: Vector, bias: Vector, bias_se: Vector) -> "Estimates":
        """Return the rows with the fields of `Load`, computed from truncated means and biases with their standard
        errors.
        """
        mean = truncated + np.nan_to_num(bias)
        both = np.hypot(error, np.nan_to_num(bias_se))
        columns = {"estimate": mean, "standard_error": both, "low": mean - Z * both, "high": mean + Z * both}
        return replace(self, **columns, bias=bias, bias_se=bias_se)

    @property
    def truncated_mean(self) -> Vector:
        """See `MeanRow.truncated_mean`."""
        return self.estimate - np.nan_to_num(self.bias)

    @property
    def truncated_se(self) -> Vector:
        """See `MeanRow.truncated_se`; nan if there is none."""
        squared = np.square(self.standard_error) - np.square(np.nan_to_num(self.bias_se))
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))

    def table(self) -> dict[str, list[Any]]:
        """Return the values by column as `Estimate.row` does; None stands for a missing value."""
        return {name: _listed(name, getattr(self, name)) for name in Estimate.columns()}

    def __len__(self) -> int:
        return len(self.slot)

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of rows. A missing number equals a missing number."""
        if not isinstance(other, Sequence) or not all(isinstance(row, Estimate) for row in other):
            return NotImplemented
        return self.table() == Estimates.of(other).table()

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, place: int) -> Estimate: ...

    @overload
    def __getitem__(self, place: slice) -> "Estimates": ...

    def __getitem__(self, place: int | slice) -> "Estimate | Estimates":
        if isinstance(place, slice):
            return Estimates(**{name: getattr(self, name)[place] for name in _COLUMNS})
        at = range(len(self))[place]
        return next(iter(self[at : at + 1]))

    def __iter__(self) -> Iterator[Estimate]:
        columns = {name: _listed(name, getattr(self, name)) for name in _COLUMNS}
        # The same object `math.nan` is put in each row, so that rows without a number are equal.
        columns["estimate"] = [math.nan if value is None else value for value in columns["estimate"]]
        series = map(Series, *(columns.pop(name) for name in Series._fields))
        for of_series, values in zip(series, zip(*columns.values(), strict=True), strict=True):
            slot, start, *others = values
            yield Estimate(slot, start, of_series, *others)


# Column of `Estimates` -> type of its array.
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("slot", "start", "coordinate", "reports", "cohort"), np.int64),
    **dict.fromkeys(("group", "kind"), np.object_),
    "filtered": np.bool_,
}
_COLUMNS = {field.name: _COLUMNS.get(field.name, np.float64) for field in fields(Estimates)}


def _listed(name: str, column: NDArray[Any]) -> list[Any]:
    """Return the values of a column of `Estimates`; None stands for a missing value."""
    values = column.tolist()
    if column.dtype != np.float64 or not np.isnan(column).any():
        return list(map(int, values)) if name == "theta" else values
    if name == "theta":
        return [None if value != value else int(value) for value in values]
    return [None if value != value else value for value in values]


def with_absent(
    estimates: Estimates, first: int, last: int, slot_seconds: int, groups: Iterable[str], dimension: int = 1
) -> Estimates:
    """Return the rows, and for each slot first..last in which a series has no raw row, a row without a number.

    The result is sorted by slot, then series. ``groups``: the groups whose series are completed, each in all
    coordinates that a raw row of any group has; in 1..``dimension`` if there is no raw row. A gap of more than
    `LONGEST_GAP` slots gets no rows.
    """
    raw = estimates.take(~estimates.filtered)
    parts = [estimates]
    coordinates = np.flatnonzero(np.bincount(raw.coordinate)).tolist() or range(1, dimension + 1)
    for group in groups:
        for coordinate in coordinates:
            present = np.sort(raw.slot[(raw.group == group) & (raw.coordinate == coordinate)])
            before, after = np.append(first - 1, present), np.append(present, last + 1)
            gaps = (after - before > 1) & (after - before - 1 <= LONGEST_GAP)
            pairs = zip(before[gaps].tolist(), after[gaps].tolist(), strict=True)
            slots = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(low + 1, high) for low, high in pairs)])
            empty = {"reports": 0, "cohort": 0, "coordinate": coordinate}
            parts.append(
                Estimates.each(len(slots), group=group, kind=ABSENT, slot=slots, start=slots * slot_seconds, **empty)
            )
    return Estimates.together(parts)


@dataclass(frozen=True)
class RangeEstimate(MeanRow):
    """The mean over the slots first..last of the slots' means, in the reading's unit; see `MeanRow`.

    ``slots``: number of these slots that had reports and are in the mean. ``bias_se`` takes into account that one model
    gives the biases of all slots, see `undertone_aggregator.estimate.removed`. ``spread``: the standard deviation
    between the slots' means, without their noise; None for a single slot.
    """

    plural: ClassVar[str] = "ranges"

    first: int
    last: int
    start: int
    series: Series
    slots: int
    reports: int
    estimate: float
    standard_error: float
    low: float
    high: float
    bias: float | None = None
    bias_se: float | None = None
    spread: float | None = None

"""Rows of results: an estimate of one series in one slot is always given with its errors."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, get_args, get_type_hints

from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key

# Quantile of the normal distribution for nominal 95 % intervals.
Z = 1.959963984540054
# Kinds of estimate: measured by the report mechanism, released by streams, or fitted to a threshold round.
MEASURED = "report"
RELEASED = "stream"
MODEL = "model"
# Kind of a row without an estimate: nobody reported, or too few did for a published number.
ABSENT = "absent"


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
        """Return a map: column -> value as a flat dictionary."""
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
        """Return the type of each column: int, float, str or bool; every column may lack a value."""
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

    It is the mean of the truncated readings, which reports show without bias, and ``bias``, a model of what truncation
    removes: estimate = truncated_mean + bias, and standard_error² = truncated_se² + bias_se². Where there is no such
    model (bias None) the number is the truncated mean.
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
        """The mean of the truncated readings: unbiased, whatever the readings are."""
        return self.estimate - (self.bias or 0.0)

    @property
    def truncated_se(self) -> float | None:
        """The standard error of the truncated mean."""
        if self.standard_error is None:
            return None
        return math.sqrt(max(self.standard_error**2 - (self.bias_se or 0.0) ** 2, 0.0))


class Load(NamedTuple):
    """The fields of a `MeanRow` that follow from a truncated mean and what truncation removes."""

    estimate: float
    standard_error: float
    low: float
    high: float
    bias: float | None
    bias_se: float | None

    @classmethod
    def of(cls, truncated: float, error: float, bias: float | None = None, bias_se: float | None = None) -> "Load":
        """Return the fields for a truncated mean and a bias with their standard errors; a bias None is unknown."""
        mean, both = truncated + (bias or 0.0), math.hypot(error, bias_se or 0.0)
        return cls(mean, both, mean - Z * both, mean + Z * both, bias, bias_se)


@dataclass(frozen=True)
class Estimate(MeanRow):
    """One slot of one series, in the reading's unit.

    ``kind`` ``report``: the mean of the readings of ``reports`` devices, which were truncated at ``theta``, with a 95 %
    interval [low, high]: see `MeanRow`. ``stream``: the same of a stream's clipped readings, where "truncated" means
    clipped. ``model``: a slot of a threshold round, while θ is learnt: the mean of a fitted distribution, which can be
    far off and has no standard error. No outlet shows it as an estimate: in rows it is the column ``model``, and
    ``estimate`` is None.
    ``absent``: a slot without a number, because nobody reported, or (of what is published) because too few did: no
    reports are counted in the row, and its ``estimate`` is nan here and None in rows.
    ``cohort``: reports for the threshold in the slot. ``start``: Unix second.
    ``bias`` with its ``bias_se``: what truncation removes from the mean, a model; None where no threshold round came
    before.
    ``misfit``: log10 of the evidence that the histogram is not from honest devices, who reach m > 0 with probability at
    most 10^-m; 6 and more is an alarm. ``manipulation``: the largest distance from ``estimate`` of the honest reports'
    mean if 1 % of the reports are fake.
    ``carried``: the share of the noise of the chain's last slot that the noise of this slot contains; None if the noise
    of slots is independent.
    """

    plural: ClassVar[str] = "slots"
    derived: ClassVar[tuple[str, ...]] = (*MeanRow.derived, "model")

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

    @property
    def is_learning(self) -> bool:
        """True if the slot belongs to a threshold round, which estimates no mean."""
        return self.kind == MODEL

    @property
    def model(self) -> float | None:
        """The fitted mean of a slot of a threshold round; None for every other slot."""
        return self.estimate if self.is_learning else None

    @property
    def is_absent(self) -> bool:
        """True if the slot has no number."""
        return self.kind == ABSENT

    @classmethod
    def absent(cls, slot: int, start: int, series: Series) -> "Estimate":
        """Return the row of a slot without a number."""
        return cls(slot, start, series, ABSENT, 0, 0, math.nan, None, None, None, None)

    def row(self) -> dict[str, Any]:
        """Return a flat map: column -> value. A threshold round's number is in the column ``model`` only."""
        return {name: values[0] for name, values in self.table([self]).items()}

    @classmethod
    def table(cls, rows: Sequence[Any]) -> dict[str, list[Any]]:
        """Return ``row()`` of many rows by column: column -> values."""
        table = super().table(rows)
        for i, kind in enumerate(table["kind"]):
            if kind in (MODEL, ABSENT):
                table["estimate"][i] = table["truncated_mean"][i] = None
        return table

    @classmethod
    def of_row(cls, columns: Mapping[str, Any]) -> "Estimate":
        """Make the estimate from the columns that ``row`` returned. Raises KeyError if one is missing."""
        values = {name: columns[name] for name in cls.columns()}
        model = values["model"]
        values = {name: value for name, value in values.items() if name not in cls.derived}
        series = Series(*(values.pop(name) for name in Series._fields))
        if values["kind"] in (MODEL, ABSENT):
            values["estimate"] = math.nan if model is None else model
        return cls(**values, series=series)


@dataclass(frozen=True)
class RangeEstimate(MeanRow):
    """The mean over the slots first..last of the slots' means, in the reading's unit; see `MeanRow`.

    ``slots``: number of these slots that had reports and are in the mean. ``bias_se`` knows that one model is behind
    the biases of all slots, see `undertone_aggregator.estimate.bias`. ``spread``: the standard deviation between the
    slots' means, less their noise; None for a single slot.
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


class Estimator(Protocol):
    """Estimator of one way of collecting: it computes raw series from Partials, fast enough for every slot."""

    @property
    def memory(self) -> int:
        """Number of preceding slots whose Partials the estimate of a slot needs."""

    @property
    def chains(self) -> int:
        """Number of chains of correlated noise that alternate by slot; 1 also if the noise of slots is independent."""

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """Return an estimate per slot and series with reports, by slot, then series.

        ``groups``: only these (``all``: every device).
        """

    def warnings(self, estimates: Sequence[Estimate]) -> list[str]:
        """Return plain sentences about problems of the campaign's settings that raw estimates show."""

    def ranges(
        self, partial: Mapping[Key, Counts], every: int, groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Return means over runs of ``every`` slots, counted from slot 0 of Unix time, by run, then series."""

    def means(
        self, partial: Mapping[Key, Counts], slots: Collection[int], groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Return the mean over the given slots that have a number, by series; no row for a series without one."""

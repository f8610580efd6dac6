"""Rows of results: an estimate of one series in one slot is always given with its errors."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol

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
    """Base of rows: a frozen dataclass whose fields are the columns of a table named ``plural``.

    A `Series` makes three.
    """

    plural: ClassVar[str]

    def row(self) -> dict[str, Any]:
        """Return column -> value as a flat dictionary."""
        columns: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            columns |= value._asdict() if isinstance(value, Series) else {field.name: value}
        return columns

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns of ``row``."""
        names = [Series._fields if field.type is Series else (field.name,) for field in fields(cls)]  # type: ignore[arg-type]
        return tuple(name for some in names for name in some)


@dataclass(frozen=True)
class Estimate(Row):
    """One slot of one series, in the reading's unit.

    ``kind`` ``report``: the mean over ``reports`` devices, unbiased for their readings truncated at ``theta``, and a 95
    % interval [low, high]; ``stream``: the same for clipped readings. ``model``: a slot of a threshold round, in which
    θ is estimated: the mean of a fitted distribution, which can be far off and has no standard error. No output shows
    it as an estimate: in rows it is the column ``model``, and ``estimate`` is None.
    ``absent``: a slot without a number, because nobody reported, or (for published results) because too few did: the
    row counts no reports, and its ``estimate`` is nan here and None in rows.
    ``cohort``: number of reports for the threshold in the slot. ``start``: Unix second.
    ``bias`` with its ``bias_se``: estimate by a model of what truncation removes from the mean, and [low_raw, high_raw]
    the 95 % interval that includes it; None if no threshold round came before.
    ``misfit``: log10 of the evidence that the histogram does not come from honest devices, who reach m > 0 with
    probability at most 10^-m; 6 or more raises an alarm. ``manipulation``: largest distance of the honest devices' mean
    from ``estimate`` if 1 % of the reports are fake.
    ``carried``: the share of the noise of the chain's last slot that is in this one's; None: noise is independent.
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
    low_raw: float | None = None
    high_raw: float | None = None
    misfit: float | None = None
    manipulation: float | None = None
    carried: float | None = None

    @property
    def group(self) -> str:
        """The series' group."""
        return self.series.group

    @property
    def is_learning(self) -> bool:
        """True if the slot belongs to a threshold round, which estimates no mean."""
        return self.kind == MODEL

    @property
    def is_absent(self) -> bool:
        """True if the slot has no number."""
        return self.kind == ABSENT

    @classmethod
    def absent(cls, slot: int, start: int, series: Series) -> "Estimate":
        """Return the row of a slot without a number."""
        return cls(slot, start, series, ABSENT, 0, 0, math.nan, None, None, None, None)

    def row(self) -> dict[str, Any]:
        """Return column -> value; a threshold round's number is in ``model``, and its ``estimate`` is None."""
        columns = super().row() | {"model": self.estimate if self.is_learning else None}
        return columns | ({"estimate": None} if self.is_learning or self.is_absent else {})

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        return (*super().columns(), "model")

    @classmethod
    def of_row(cls, columns: Mapping[str, Any]) -> "Estimate":
        """Make the estimate from the columns that ``row`` returned. Raises KeyError if one is missing."""
        values = {name: columns[name] for name in cls.columns()}
        model, series = values.pop("model"), Series(*(values.pop(name) for name in Series._fields))
        if values["kind"] in (MODEL, ABSENT):
            values["estimate"] = math.nan if model is None else model
        return cls(**values, series=series)


@dataclass(frozen=True)
class RangeEstimate(Row):
    """The mean over the slots first..last of the slots' means, in the reading's unit.

    ``slots``: number of slots with reports, over which the mean is taken. [low, high] covers the mean of the truncated
    readings of the devices that reported (95 %); [low_raw, high_raw] is meant to cover that of the untruncated
    readings. Bias and its error are averages over the slots, because one model is used for all.
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
    low_raw: float | None = None
    high_raw: float | None = None

    @property
    def group(self) -> str:
        """The series' group."""
        return self.series.group


class Estimator(Protocol):
    """Estimator of one way of collecting: it computes raw series from Partials, fast enough for every slot."""

    @property
    def memory(self) -> int:
        """Number of slots before a slot whose Partials its estimate needs."""

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

"""What the server says about a slot: an estimate of one series, never a bare number."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol

from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key

# Nominal 95 %.
Z = 1.959963984540054
# Kinds of estimate: measured by the report mechanism, released by streams, or fitted to a threshold round.
MEASURED = "report"
RELEASED = "stream"
MODEL = "model"
# No estimate: nobody reported, or too few did for a published number.
ABSENT = "absent"


class Series(NamedTuple):
    """Which of a campaign's series: of a group, of one coordinate of its readings from 1 on, raw or filtered."""

    group: str = EVERYBODY
    coordinate: int = 1
    filtered: bool = False

    @property
    def topic(self) -> str:
        """Its levels below ``aggregate/``."""
        levels = [self.group, "filtered" if self.filtered else "raw"]
        return "/".join(levels if self.coordinate == 1 else [*levels, str(self.coordinate)])

    def __str__(self) -> str:
        words = [self.group]
        if self.coordinate > 1:
            words.append(f"coordinate {self.coordinate}")
        return ", ".join([*words, "filtered"] if self.filtered else words)


class Row:
    """A frozen dataclass whose fields are the columns of a table, called ``plural``; a `Series` is three of them."""

    plural: ClassVar[str]

    def row(self) -> dict[str, Any]:
        """Column -> value, flat."""
        columns: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            columns |= value._asdict() if isinstance(value, Series) else {field.name: value}
        return columns

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The names of ``row``'s columns."""
        names = [Series._fields if field.type is Series else (field.name,) for field in fields(cls)]  # type: ignore[arg-type]
        return tuple(name for some in names for name in some)


@dataclass(frozen=True)
class Estimate(Row):
    """One slot of one series, in the reading's unit.

    ``kind`` ``report``: the mean over ``reports`` devices, unbiased for their readings truncated at ``theta``, and a
    95 % interval [low, high]; ``stream``: the same for clipped readings. ``model``: a slot of a threshold round, while
    θ is learnt: the mean of a fitted distribution, which can be far off and has no standard error. No outlet shows it
    as an estimate: in rows it is the column ``model``, and ``estimate`` is None.
    ``absent``: a slot without a number, because nobody reported, or (of what is published) because too few did: no
    reports are counted in the row, and its ``estimate`` is nan here and None in rows.
    ``cohort``: reports for the threshold in the slot. ``start``: Unix second.
    ``bias`` with its ``bias_se``: what truncation removes from the mean, a model, and [low_raw, high_raw] the 95 %
    interval that adds it; None where no threshold round came before.
    ``misfit``: log10 of the evidence that the histogram is not from honest devices, who reach m > 0 with probability at
    most 10^-m; 6 and more is an alarm. ``manipulation``: if 1 % of the reports are fake, the mean of the others is at
    most so far from ``estimate``.
    ``carried``: the share of the noise of the last slot on its chain that is in this one's; None: noise is independent.
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
        """Whether the slot is of a threshold round, which estimates no mean."""
        return self.kind == MODEL

    @property
    def is_absent(self) -> bool:
        """Whether the slot has no number."""
        return self.kind == ABSENT

    @classmethod
    def absent(cls, slot: int, start: int, series: Series) -> "Estimate":
        """Return the row of a slot without a number."""
        return cls(slot, start, series, ABSENT, 0, 0, math.nan, None, None, None, None)

    def row(self) -> dict[str, Any]:
        """Column -> value, flat; a threshold round's number is ``model``, and its ``estimate`` None."""
        columns = super().row() | {"model": self.estimate if self.is_learning else None}
        return columns | ({"estimate": None} if self.is_learning or self.is_absent else {})

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        return (*super().columns(), "model")

    @classmethod
    def of_row(cls, columns: Mapping[str, Any]) -> "Estimate":
        """The estimate that ``row`` made these columns of. Raises KeyError where one is missing."""
        values = {name: columns[name] for name in cls.columns()}
        model, series = values.pop("model"), Series(*(values.pop(name) for name in Series._fields))
        if values["kind"] in (MODEL, ABSENT):
            values["estimate"] = math.nan if model is None else model
        return cls(**values, series=series)


@dataclass(frozen=True)
class RangeEstimate(Row):
    """The mean over the slots first..last of the slots' means, in the reading's unit.

    ``slots``: how many of them had reports, and are in it. [low, high] covers the mean of the truncated readings of
    the devices that reported (95 %), [low_raw, high_raw] is meant to cover that of the readings: bias and its error are
    the slots' averages, for one model is behind them all.
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
    """What a way of collecting says of its Partials: raw series, cheap enough for every slot."""

    @property
    def memory(self) -> int:
        """Slots before a slot whose Partials its estimate needs."""

    @property
    def chains(self) -> int:
        """Chains of correlated noise that take turns by slot; 1 where each slot's noise is its own, too."""

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """One per slot and series that has reports, by slot, then series; ``groups``: only these, ``all`` everybody."""

    def warnings(self, estimates: Sequence[Estimate]) -> list[str]:
        """Plain sentences about what raw estimates show of the campaign's choices."""

    def ranges(
        self, partial: Mapping[Key, Counts], every: int, groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """Means over runs of ``every`` slots, counted from slot 0 of Unix time, by run, then series."""

    def means(
        self, partial: Mapping[Key, Counts], slots: Collection[int], groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """The mean over those of these slots that have a number, by series; none for a series without one."""


def plain(value: Any) -> Any:
    """A value as JSON can carry it: numbers that are not finite become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value

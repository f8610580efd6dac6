"""The mean over a selection of slots, such as yesterday evening, with its error, and the total over a whole fleet."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import ClassVar

from undertone_aggregator.estimate.estimates import MeanRow, RangeEstimate, Series
from undertone_shared.errors import Invalid

_DAY_MINUTES = 24 * 60
_BETWEEN = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True)
class Hours:
    """Times of day from ``begin`` to before ``end``, in minutes after midnight; across midnight if end <= begin."""

    begin: int
    end: int

    @classmethod
    def parse(cls, name: str, text: str) -> "Hours":
        """Parse hours such as ``18:00-23:00``. Raises Invalid naming the option."""
        match = _BETWEEN.fullmatch(text)
        begin, end = (60 * int(match[i]) + int(match[i + 1]) for i in (1, 3)) if match else (0, 0)
        if match is None or max(begin, end) > _DAY_MINUTES or begin in (end, _DAY_MINUTES):
            raise Invalid(f"{name} is {text!r}, expected two times of day such as 18:00-23:00")
        return cls(begin, end)

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def hold(self, second: int, zone: tzinfo) -> bool:
        """Return True if a Unix second is within these hours by the clock of a zone."""
        local = datetime.fromtimestamp(second, UTC).astimezone(zone)
        minute = 60 * local.hour + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


@dataclass(frozen=True)
class Selection(MeanRow):
    """The mean of the means of a group's selected slots, in the reading's unit.

    ``slots``: number of selected slots that have a mean; ``absent``: number of those without one, because nobody
    reported, too few did, or θ was being learnt. The mean, its interval, ``bias`` and ``bias_se`` are defined as in
    `RangeEstimate`.

    ``total`` is the sum of the readings of all ``devices`` that are registered and active over all selected slots, the
    absent ones included: devices · (slots + absent) · estimate. ``total_se`` includes the error of the mean, and the
    error of assuming that the other devices are like those that reported. If n of N devices report in a slot, and the
    range has the width w, the variance of readings is at most (w/2)² (Popoviciu, 1935), and the second error of a
    slot's mean has a variance of at most (1 - n/N)(w/2)²/n. We assume that the same devices are silent in all slots, so
    that this error does not average out. ``total`` is None without an inventory of devices.
    """

    plural: ClassVar[str] = "selections"

    first: int
    last: int
    start: int
    series: Series
    slots: int
    absent: int
    reports: int
    estimate: float
    standard_error: float
    low: float
    high: float
    bias: float | None = None
    bias_se: float | None = None
    devices: int | None = None
    total: float | None = None
    total_se: float | None = None

    @property
    def group(self) -> str:
        """The name of the group of devices that the series is about."""
        return self.series.group


def chosen_slots(first: int, last: int, slot_seconds: int, hours: Hours | None, zone: tzinfo) -> list[int]:
    """Return the slots first..last that start within the hours; all slots if ``hours`` is None."""
    return [slot for slot in range(first, last + 1) if hours is None or hours.hold(slot * slot_seconds, zone)]


def selection(
    mean: RangeEstimate, slots: Collection[int], width: int | None, devices_of: Callable[[str], int | None]
) -> Selection:
    """Make the selection with this mean. ``width``: width of the readings' range.

    ``devices_of``: devices of a group.
    """
    devices = devices_of(mean.group)
    total = total_se = None
    if devices is not None and width is not None:
        reports = min(mean.reports / mean.slots, devices)
        others = (1 - reports / devices) * (width / 2) ** 2 / reports
        number = devices * len(slots)
        total = number * mean.estimate
        total_se = number * math.sqrt(mean.standard_error**2 + others)
    return Selection(
        first=min(slots),
        last=max(slots),
        start=mean.start,
        series=mean.series,
        slots=mean.slots,
        absent=len(slots) - mean.slots,
        reports=mean.reports,
        estimate=mean.estimate,
        standard_error=mean.standard_error,
        low=mean.low,
        high=mean.high,
        bias=mean.bias,
        bias_se=mean.bias_se,
        devices=devices,
        total=total,
        total_se=total_se,
    )

"""The mean over a selection of slots, such as yesterday evening, with its error, and the total over a whole fleet."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from typing import ClassVar, NamedTuple

from undertone_aggregator.estimate.calendar import Days
from undertone_aggregator.estimate.estimates import MeanRow, RangeEstimate, Series
from undertone_shared.errors import Invalid

WORKDAYS, DAYS_OFF = "workdays", "days-off"
_WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_BETWEEN = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True)
class Hours:
    """Times of day from ``begin`` to before ``end``, in minutes after midnight; across midnight if end <= begin."""

    begin: int
    end: int

    @classmethod
    def parse(cls, name: str, text: str) -> "Hours":
        """Parse hours such as ``18:00-23:00``. Raises Invalid, which names the option."""
        match = _BETWEEN.fullmatch(text)
        begin, end = (60 * int(match[i]) + int(match[i + 1]) for i in (1, 3)) if match else (0, 0)
        if match is None or max(begin, end) > _DAY_MINUTES or begin in (end, _DAY_MINUTES):
            raise Invalid(
                f"{name} is {text!r}, expected two different times of day, HH:MM-HH:MM, the first before 24:00"
            )
        return cls(begin, end)

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def hold(self, local: datetime) -> bool:
        """Return True if a local time is within these hours."""
        minute = 60 * local.hour + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


@dataclass(frozen=True)
class OnDays:
    """Days of a selection: ``words`` are "workdays" or "days-off", by the campaign's calendar, or days of the week."""

    words: str

    @classmethod
    def parse(cls, name: str, text: str) -> "OnDays":
        """Parse "workdays", "days-off", or days such as "mon,sat". Raises Invalid, which names the option."""
        if text not in (WORKDAYS, DAYS_OFF) and not set(text.split(",")) <= set(_WEEK):
            raise Invalid(f"{name} is {text!r}, expected {WORKDAYS}, {DAYS_OFF}, or days such as mon,sat")
        return cls(text)

    def __str__(self) -> str:
        return self.words

    def hold(self, day: date, calendar: Days) -> bool:
        """Return True if a local day is among these days."""
        if self.words in (WORKDAYS, DAYS_OFF):
            return calendar.is_off(day) is (self.words == DAYS_OFF)
        return _WEEK[day.weekday()] in self.words.split(",")


class RegisteredFleet(NamedTuple):
    """What a total needs of a group: its registered and active ``devices``; None if the inventory has none.

    ``share``: share of the participating devices whose reading is in a slot's mean. It is less than 1 if devices take
    turns, or if some of them report for the threshold. ``variance``: of single readings.
    """

    devices: int | None
    share: float
    variance: float


@dataclass(frozen=True)
class Selection(MeanRow):
    """The mean of the means of a group's selected slots, in the reading's unit.

    ``slots``: number of selected slots that have a mean. ``absent``: number of selected slots without a mean, because
    nobody reported, too few did, or θ was being learnt. The mean, its interval, ``bias`` and ``bias_se`` are defined as
    in `RangeEstimate`.

    ``total`` is the sum of the readings of all ``devices`` that are registered and active over all selected slots,
    including the absent ones: devices · (slots + absent) · estimate. It is None without an inventory of devices. Its
    error ``total_se`` is devices · (slots + absent) · √(a² + b² + c²), with these errors a, b, c:

    - the standard error of the estimate,
    - the error of assuming that devices which do not take part are like those that do. If n of N devices take part,
      its variance is (1 - n/N) σ²/n, with σ² the variance of single readings. It does not average out, because the
      same devices may be silent in all slots.
    - the error of assuming that absent slots are like the others. It is the standard deviation between slots times
      the share of absent slots, because all absent slots may be alike. If only one slot has a mean, σ replaces that
      deviation.
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


def chosen_slots(
    first: int, last: int, slot_seconds: int, hours: Hours | None, on: OnDays | None, calendar: Days
) -> list[int]:
    """Return the slots among first..last that start within the hours and on the days, by the clock of the calendar's
    zone.
    """
    if hours is None and on is None:
        return list(range(first, last + 1))

    def starts(local: datetime) -> bool:
        return (hours is None or hours.hold(local)) and (on is None or on.hold(local.date(), calendar))

    zone: tzinfo = calendar.zone
    slots = range(first, last + 1)
    return [slot for slot in slots if starts(datetime.fromtimestamp(slot * slot_seconds, UTC).astimezone(zone))]


def selection(mean: RangeEstimate, slots: Collection[int], fleet: RegisteredFleet) -> Selection:
    """Make the selection of ``slots`` with this mean, and the total of the group's ``fleet``."""
    devices, absent = fleet.devices, len(slots) - mean.slots
    total = total_se = None
    if devices is not None:
        part = min(mean.reports / mean.slots / fleet.share, devices)
        others = (1 - part / devices) * fleet.variance / part
        spread = math.sqrt(fleet.variance) if mean.spread is None else mean.spread
        gaps = absent / len(slots) * spread
        number = devices * len(slots)
        total = number * mean.estimate
        total_se = number * math.sqrt(mean.standard_error**2 + others + gaps**2)
    return Selection(
        first=min(slots),
        last=max(slots),
        start=mean.start,
        series=mean.series,
        slots=mean.slots,
        absent=absent,
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

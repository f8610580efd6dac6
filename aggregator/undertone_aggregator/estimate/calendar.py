"""The calendar of slots: local time of day with daylight saving time, weekends, holidays.

Slots are numbered in absolute time, but people live by a local clock. So the time of day is local, and stays right when
the clocks change. A cycle that is not one day (a week of days, a demo's twenty seconds) is counted from slot 0 instead,
and has no days off.
"""

from calendar import day_name
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.zones import AUTO, weekend_of, zone
from undertone_aggregator.estimate.seasonal import Calendar
from undertone_shared.errors import Invalid

DAY = 86400
SATURDAY_AND_SUNDAY = frozenset({5, 6})


@dataclass(frozen=True)
class Days:
    """Local time zone and days off of the population.

    ``holidays``: None if the filter must not treat days off apart, not even weekends. ``weekend``: days of the week, 0
    for Monday.
    """

    zone: tzinfo = UTC
    holidays: Collection[date] | None = frozenset()
    weekend: frozenset[int] = SATURDAY_AND_SUNDAY

    @property
    def words(self) -> str:
        """The days off in words, such as "Saturday, Sunday and public holidays"; "" if there are none."""
        if self.holidays is None:
            return ""
        names = [day_name[day] for day in sorted(self.weekend)]
        *first, last = [*names, *([] if isinstance(self.holidays, frozenset) else ["public holidays"])] or [""]
        return f"{', '.join(first)} and {last}" if first else last

    def is_off(self, day: date) -> bool:
        """Return True for a day of the weekend and for a holiday; without holidays (None), for the weekend alone."""
        # The holidays object is empty until a day is looked up in it, so its truth value must not be tested before
        # that.
        return day.weekday() in self.weekend or (self.holidays is not None and day in self.holidays)


def days_of(time_zone: str = "UTC", country: str | None = None, weekend: str = AUTO) -> Days:
    """Make the days of ``time_zone`` (tz database, such as Europe/London) and ``country`` (GB or GB-SCT for its
    holidays).

    ``weekend``: days such as "friday, saturday"; "none"; or "auto" for the country's weekend (Saturday and Sunday
    without a country). Raises Invalid for an unknown zone, country or day, or if the package ``holidays`` is needed and
    missing.
    """
    free = _holidays(country) if country else frozenset()
    days = weekend_of("weekend", weekend)
    if days is None:
        days = frozenset(getattr(free, "weekend", SATURDAY_AND_SUNDAY))
    return Days(zone("time_zone", time_zone), free, days)


def _holidays(country: str) -> Collection[date]:
    try:
        import holidays
    except ModuleNotFoundError:
        raise Invalid("holidays need the package holidays: pip install 'undertone-ldp[calendar]'") from None
    name, _, part = country.partition("-")
    try:
        # The holidays object computes the holidays of a year when one of the year's days is looked up.
        listed: Collection[date] = holidays.country_holidays(name, subdiv=part or None)
    except NotImplementedError:
        raise Invalid(f"holidays is {country!r}, expected a country such as GB, or GB-SCT") from None
    return listed


def calendar(slots: NDArray[np.int64], slot_seconds: int, cycle: int, days: Days | None = None) -> Calendar:
    """Return the calendar of slots; ``cycle`` is in slots.

    If the cycle is a day, slots have their local time of day, and the days off of ``days``.
    """
    days = days or Days()
    if cycle * slot_seconds != DAY:
        return Calendar(cycle, (slots % cycle) / cycle, long=cycle * slot_seconds > DAY)
    shift, off = _local(slots * slot_seconds, days)
    second = (slots * slot_seconds + shift) % DAY
    return Calendar(cycle, second / DAY, None if days.holidays is None else off)


def _local(seconds: NDArray[np.int64], days: Days) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return two arrays for Unix seconds: the seconds to add for local time, and True on a local day off.

    Time zone offsets change only at quarters of an hour, so each distinct quarter is looked up once.
    """
    quarters, place = np.unique(seconds // 900, return_inverse=True)
    shift, off = np.empty(len(quarters), dtype=np.int64), np.empty(len(quarters), dtype=bool)
    is_off: dict[date, bool] = {}
    for i, quarter in enumerate(quarters.tolist()):
        local = datetime.fromtimestamp(quarter * 900, days.zone)
        day = local.date()
        if day not in is_off:
            is_off[day] = days.is_off(day)
        shift[i] = (local.utcoffset() or timedelta()).total_seconds()
        off[i] = is_off[day]
    return shift[place], off[place]

"""Local time, days off, and the day that clocks change."""

from datetime import UTC, datetime

import numpy as np
import pytest

from support.refusal import refused
from undertone_aggregator.estimate.calendar import calendar, days_of
from undertone_shared.errors import Invalid

HALF_HOUR = 1800


def slots(year, month, day, count):
    first = int(datetime(year, month, day, tzinfo=UTC).timestamp()) // HALF_HOUR
    return np.arange(first, first + count)


def test_local_time_of_day_in_summer_and_winter():
    london = days_of("Europe/London")
    winter = calendar(slots(2026, 1, 15, 48), HALF_HOUR, 48, london)
    summer = calendar(slots(2026, 7, 15, 48), HALF_HOUR, 48, london)
    assert np.allclose(winter.phase, np.arange(48) / 48)
    assert np.allclose(summer.phase, (np.arange(48) + 2) % 48 / 48)


def test_phases_jump_with_the_clock():
    # Clocks go forward at 01:00 UTC on 29 March 2026: no local time between 01:00 and 02:00.
    day = calendar(slots(2026, 3, 29, 48), HALF_HOUR, 48, days_of("Europe/London"))
    hours = day.phase * 24
    assert not np.any((hours >= 1) & (hours < 2))
    assert hours[2] == pytest.approx(2.0)


def test_weekends_and_holidays_are_local_days():
    # Saturday 3 January 2026 begins in Auckland at 11:00 UTC on Friday.
    friday = calendar(slots(2026, 1, 2, 48), HALF_HOUR, 48, days_of("Pacific/Auckland"))
    assert friday.off.tolist() == [False] * 22 + [True] * 26
    christmas = slots(2026, 12, 25, 48)
    assert not calendar(christmas, HALF_HOUR, 48, days_of("Europe/London")).off.any()
    pytest.importorskip("holidays")
    assert calendar(christmas, HALF_HOUR, 48, days_of("Europe/London", "GB")).off.all()


def test_weekends_that_are_not_saturday_and_sunday():
    # The days are Friday 2 January 2026 and the Saturday and Sunday after it.
    days = slots(2026, 1, 2, 144)

    def off(*words):
        return calendar(days, HALF_HOUR, 48, days_of("UTC", *words)).off[::48].tolist()

    assert off() == [False, True, True]
    assert off(None, "Friday, saturday") == [True, True, False]
    assert off(None, "none") == [False, False, False]
    pytest.importorskip("holidays")
    # Without `weekend`, Egypt's weekend in the library applies; `weekend` replaces it.
    assert off("EG") == [True, True, False]
    assert off("EG", "sunday") == [False, False, True]


def test_days_off_are_told_in_words():
    assert days_of("UTC").words == "Saturday and Sunday"
    assert days_of("UTC", None, "friday").words == "Friday"
    assert days_of("UTC", None, "none").words == ""
    pytest.importorskip("holidays")
    assert days_of("UTC", "GB").words == "Saturday, Sunday and public holidays"
    assert days_of("UTC", "GB", "none").words == "public holidays"


@pytest.mark.parametrize("words", ["", "frieday", "saturday none", "5"])
def test_an_unknown_weekend_is_refused(words):
    with refused("weekend", "'friday, saturday'"):
        days_of("UTC", weekend=words)


def test_a_cycle_that_is_no_day_counts_slots():
    week = calendar(np.arange(100, 120), 86400, 7)
    assert week.off is None
    assert np.allclose(week.phase, (np.arange(100, 120) % 7) / 7)


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "../etc/passwd"])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(Invalid, match="time_zone is"):
        days_of(zone)


def test_an_unknown_country_is_refused():
    pytest.importorskip("holidays")
    with pytest.raises(Invalid, match="holidays is"):
        days_of("UTC", "XX")


def test_a_cycle_longer_than_a_day_is_known_as_such():
    days = np.arange(100)
    assert calendar(days, 86400, 7).long
    assert calendar(days, 86400, 7).part(3, 9).long
    assert not calendar(days, 1800, 48).long
    assert not calendar(days, 1, 20).long

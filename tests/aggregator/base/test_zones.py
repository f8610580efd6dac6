"""Names of time zones, also on a machine that has no list of them; durations of too many digits."""

import pytest

from undertone_aggregator.base import zones
from undertone_aggregator.base.durations import seconds_of
from undertone_shared.errors import Invalid


def test_a_machine_without_time_zones_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="time_zone is 'Europe/Nowhere', expected a name such as Europe/London"):
        zones.zone("time_zone", "Europe/Nowhere")
    monkeypatch.setattr(zones, "available_timezones", set)
    with pytest.raises(Invalid, match="this machine has no list of time zones: pip install tzdata"):
        zones.zone("time_zone", "Europe/Nowhere")


def test_a_duration_has_at_most_eleven_digits() -> None:
    assert seconds_of("every", "99999999999s") == 99_999_999_999
    with pytest.raises(Invalid, match="expected a number of at most 11 digits"):
        seconds_of("every", "100000000000s")

"""Time zones and weekends by name."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from undertone_shared.errors import Invalid

AUTO = "auto"
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def zone(name: str, value: object) -> ZoneInfo:
    """Return the zone ``value`` of the tz database. ``name``: the option's name in the error. Raises Invalid."""
    try:
        if isinstance(value, str):
            return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    if not available_timezones():
        raise Invalid(f"{name} is {value!r}, but this machine has no list of time zones: pip install tzdata")
    raise Invalid(f"{name} is {value!r}, expected a name such as Europe/London")


def weekend_of(name: str, value: object) -> frozenset[int] | None:
    """Return the days of the week, 0 for Monday, in text such as "friday, saturday" or "none"; None for "auto".

    Raises Invalid.
    """
    words = value.replace(",", " ").lower().split() if isinstance(value, str) else []
    if words == [AUTO]:
        return None
    if words != ["none"] and not (words and all(word in _WEEK for word in words)):
        raise Invalid(f"{name} is {value!r}, expected days such as 'friday, saturday', auto or none")
    return frozenset(_WEEK.index(word) for word in words if word != "none")

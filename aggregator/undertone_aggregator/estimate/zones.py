"""Time zones by name; apart from the calendar, for ingest workers start without the numerics."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from undertone_shared.errors import Invalid


def zone(name: str, value: object) -> ZoneInfo:
    """The zone ``value`` of the tz database; ``name`` is what it is called in the message. Raises Invalid."""
    try:
        if isinstance(value, str):
            return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise Invalid(f"{name} is {value!r}, expected a name such as Europe/London")

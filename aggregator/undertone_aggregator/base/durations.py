"""Durations and moments as people write them in options and plans: 90s, 15m, 24h, 7d, 2w; 2026-03-01T18:00."""

import time
from datetime import datetime, tzinfo

from undertone_shared.errors import Invalid

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST_DIGITS = 11
YEAR_SECONDS = 366 * 86400


def seconds_of(name: str, value: object, most: int | None = None) -> int:
    """Return a duration in seconds: text such as "24h", or a number of seconds.

    ``name`` is what the option is called in the error. Raises Invalid for other forms, for 0, and for more than
    ``most`` seconds.
    """
    text = f"{value}s" if isinstance(value, int) and not isinstance(value, bool) else value
    number, unit = (text[:-1], text[-1:]) if isinstance(text, str) else ("", "")
    if unit not in _UNITS or not number.isascii() or not number.isdigit():
        raise Invalid(f'{name} is {value!r}, expected a whole number and s, m, h, d or w, such as "24h"')
    if len(number) > _MOST_DIGITS:
        raise Invalid(f"{name} is {value!r}, expected a number of at most {_MOST_DIGITS} digits")
    seconds = int(number) * _UNITS[unit]
    if seconds < 1 or (most is not None and seconds > most):
        expected = "at least 1 second" if most is None else f"1 second to {most // 86400} days"
        raise Invalid(f"{name} is {value!r}, expected {expected}")
    return seconds


def moment_of(name: str, text: str, zone: tzinfo) -> datetime:
    """Return a date and time, in ``zone`` unless the text names its own.

    ``name`` is what the option is called in the error. Raises Invalid for other forms.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{name} is {text!r}, expected a date and time such as 2026-03-01T18:00") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def utc(second: float) -> str:
    """Return a Unix second as a date and a time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(second))

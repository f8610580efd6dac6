"""Notices of an end, such as that of a campaign or a certificate: 60 days before it, and again 7 days before it."""

from undertone_aggregator.base.plural import many

NOTICE_DAYS = (60, 7)


def days_left(end: float, now: float) -> int:
    """Return the whole days until Unix second ``end``; negative after it."""
    return int((end - now) // 86400)


def time_left(end: float, now: float) -> str:
    """Return the time until Unix second ``end``, which is after ``now``, in whole days: "5 days", "less than a day"."""
    days = days_left(end, now)
    return many(days, "day") if days else "less than a day"


def notice(end: float, now: float, start: float = 0) -> int | None:
    """Return which of `NOTICE_DAYS` is due at ``now``: the smallest that is more than the days left until ``end``.

    All times are Unix seconds. A notice of n days is given only if at least 2n days lie between ``start`` and ``end``.
    Return None if no notice is due.
    """
    begun = [days for days in NOTICE_DAYS if end - now < 86400 * days and end - start >= 2 * 86400 * days]
    return min(begun) if begun else None

"""Notices of an end, such as that of a campaign or a certificate: 60 days before it, and again 7 days before it."""

NOTICE_DAYS = (60, 7)


def days_left(end: float, now: float) -> int:
    """Return the whole days until Unix second ``end``; negative after it."""
    return int((end - now) // 86400)


def notice(end: float, now: float, start: float = 0) -> int | None:
    """Return the least of `NOTICE_DAYS` that is more than the time from ``now`` to ``end``, in Unix seconds.

    Return None if none is. A notice of n days is given only if the time from ``start`` to ``end`` is at least 2n days.
    """
    begun = [days for days in NOTICE_DAYS if end - now < 86400 * days and end - start >= 2 * 86400 * days]
    return min(begun) if begun else None

"""Notice of what ends one day, such as a campaign or a certificate: 60 days before, and again 7 days before."""

NOTICE_DAYS = (60, 7)


def days_left(end: float, now: float) -> int:
    """Return the whole days until Unix second ``end``; negative after it."""
    return int((end - now) // 86400)


def notice(end: float, now: float, start: float = 0) -> int | None:
    """Return the nearest of `NOTICE_DAYS` that has begun at Unix second ``now``; None before the first.

    What lasts less than twice as long, from Unix second ``start`` on, is not announced so early.
    """
    begun = [days for days in NOTICE_DAYS if end - now < 86400 * days and end - start >= 2 * 86400 * days]
    return min(begun) if begun else None

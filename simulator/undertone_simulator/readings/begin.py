"""When simulated and planned campaigns begin."""

from datetime import datetime

from undertone_simulator.readings.readings import ReadingSource

# A Monday at midnight in UTC (Unix seconds), and a multiple of every usual slot length.
START = 1_798_416_000


def cycle_of(source: ReadingSource) -> int:
    """Return the number of slots after which the readings repeat: a day, or a week of daily readings."""
    return source.per_day if source.per_day > 1 else 7


def begin(source: ReadingSource) -> int:
    """Return the first time from `START` on with the readings' own day of the week and time of day, in Unix seconds.

    The time is rounded down to a whole slot. Readings that name no start begin at `START`.
    """
    try:
        first = datetime.fromisoformat(source.start)
    except ValueError:
        return START
    seconds = 86400 // source.per_day
    since = 86400 * first.weekday() + 3600 * first.hour + 60 * first.minute
    return START + since // seconds * seconds

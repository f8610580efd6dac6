"""Truncation of a reading in natural units, the first step of its processing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Range(Protocol):
        """The parts of a campaign that a rule needs."""

        offset: int
        bound: int
        cycle: int


def truncate(reading: int, offset: int, low: int, high: int) -> int:
    """Return min(max(reading - offset, low), high) - low: an integer in [0, high - low].

    ``offset`` shifts the sensor's range to start at 0; ``low`` is 0 for the one-sided truncation of ToPL. A later
    rounding to levels is exactly unbiased for this result, not for what was cut off.
    """
    reading -= offset
    if reading < low:
        return 0
    if reading > high:
        return high - low
    return reading - low

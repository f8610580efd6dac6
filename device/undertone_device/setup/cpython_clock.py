"""CPython's clocks in MicroPython's form, for `clock`. No board carries this."""

import time

# Linux's monotonic clock stops during suspend; CLOCK_BOOTTIME, where it exists, does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def ticks_ms() -> int:
    """Return monotonic milliseconds."""
    nanoseconds = time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
    return nanoseconds // 1_000_000


def sleep_ms(milliseconds: int) -> None:
    """Wait for ``milliseconds``."""
    time.sleep(milliseconds / 1000)

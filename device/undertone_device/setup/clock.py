"""The machine's clocks as three functions with the same meaning under CPython and every MicroPython port."""

import time

from undertone_device.core.slot_value import TICKS_MASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# MicroPython counts seconds from 1970 or from 2000, depending on the port.
_EPOCH = 946684800 if time.gmtime(0)[0] == 2000 else 0


def unix_time() -> int:
    """Return the seconds since 1970-01-01 UTC, by the machine's clock."""
    return int(time.time()) + _EPOCH


def _milliseconds() -> int:
    nanoseconds = time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
    return nanoseconds // 1_000_000


# A phone's monotonic clock stops during suspend; CLOCK_BOOTTIME, if it exists, does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
_counter: "Callable[[], int]" = getattr(time, "ticks_ms", _milliseconds)
_sleep: "Callable[[int], None] | None" = getattr(time, "sleep_ms", None)


def ticks() -> int:
    """Return monotonic milliseconds modulo 2^30."""
    return _counter() & TICKS_MASK


def sleep_ms(milliseconds: int) -> None:
    """Wait for ``milliseconds``."""
    if _sleep is None:
        time.sleep(milliseconds / 1000)
    else:
        _sleep(milliseconds)

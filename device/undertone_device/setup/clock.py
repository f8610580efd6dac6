"""The machine's clocks as three functions with the same meaning under CPython and every MicroPython port."""

import time

from undertone_device.core.slot_value import TICKS_MASK

try:
    from time import sleep_ms as sleep_ms  # type: ignore[attr-defined]
    from time import ticks_ms  # type: ignore[attr-defined]
except ImportError:  # CPython, whose module time lacks both
    from undertone_device.setup.cpython_clock import sleep_ms as sleep_ms
    from undertone_device.setup.cpython_clock import ticks_ms as ticks_ms

# MicroPython counts seconds from 1970 or from 2000, depending on the port.
_EPOCH = 946684800 if time.gmtime(0)[0] == 2000 else 0


def unix_time() -> int:
    """Return the seconds since 1970-01-01 UTC, by the machine's clock."""
    return int(time.time()) + _EPOCH


def ticks() -> int:
    """Return monotonic milliseconds modulo 2^30."""
    return int(ticks_ms()) & TICKS_MASK

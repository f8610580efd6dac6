"""A clock that a test sets and that all its processes read, so that commands and servers run through years in minutes.

``python -m support.fast_clock FILE WORDS`` runs ``undertone WORDS`` with the clock in FILE. The functions of `time` and
`datetime.now`, with which the product reads the wall clock, read the file instead. Monotonic time, which waits and
timeouts use, stays real. OpenSSL has its own clock.
"""

import datetime
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

_SECOND = struct.Struct("<d")


class FastClock:
    """Unix seconds in a file. Only the test sets them."""

    def __init__(self, path: Path, start: float | None = None) -> None:
        if start is not None:
            path.write_bytes(_SECOND.pack(start))
        self.path = path
        with path.open("r+b") as file:
            self._second = mmap.mmap(file.fileno(), _SECOND.size)

    def now(self) -> float:
        return float(_SECOND.unpack(self._second[:])[0])

    def set(self, second: float) -> None:
        assert second >= self.now()
        self._second[:] = _SECOND.pack(second)


def install(clock: FastClock) -> None:
    """Make the file's clock this process's wall clock. Call this function before anything else is imported."""
    real = datetime.datetime

    class _Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class FastDatetime(real, metaclass=_Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(clock.now(), tz)

    datetime.datetime = FastDatetime  # type: ignore[misc]
    time.time = clock.now
    time.time_ns = lambda: int(clock.now() * 1e9)
    for name in ("gmtime", "localtime"):
        broken_down = getattr(time, name)
        setattr(time, name, lambda second=None, call=broken_down: call(clock.now() if second is None else second))


if __name__ == "__main__":
    install(FastClock(Path(sys.argv[1])))
    from undertone.__main__ import main

    sys.argv[:2] = ["undertone"]
    sys.exit(main())

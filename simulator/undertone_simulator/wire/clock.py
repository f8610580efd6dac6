"""The clock of a simulated fleet: the machine's, or one that runs faster for tests of long slots."""

import asyncio
import time

TICKS_MASK = (1 << 30) - 1


class Clock:
    """A clock `speed` times as fast as the machine's, with Unix seconds and ticks, that begins at `start` (None: now).

    Seconds and ticks advance together, so the device's rate limit needs no change. Raises ValueError for a speed below
    1.
    """

    def __init__(self, start: float | None = None, speed: float = 1.0):
        if speed < 1.0:
            raise ValueError(f"speed is {speed}, expected 1 or more: a slower clock would make reports from the future")
        self._began = time.monotonic()
        self._start = time.time() if start is None else start
        self.speed = speed

    def now(self) -> float:
        """Unix seconds."""
        return self._start + (time.monotonic() - self._began) * self.speed

    def ticks(self) -> int:
        """Monotonic milliseconds modulo 2^30."""
        return int(time.monotonic() * self.speed * 1000) & TICKS_MASK

    async def until(self, moment: float) -> None:
        """Wait until Unix second `moment`; return at once if it has passed."""
        await asyncio.sleep(max(0.0, (moment - self.now()) / self.speed))


def real_ticks() -> int:
    """Return the machine's monotonic milliseconds modulo 2^30, for network timeouts."""
    return time.monotonic_ns() // 1_000_000 & TICKS_MASK

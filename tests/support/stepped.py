"""Clocks that wait for all processes, so that no machine is too slow."""

import asyncio
import threading
import time

from support.waiting import PATIENCE_SECONDS
from undertone_simulator.wire.clock import TICKS_MASK, Clock


class SteppedClock:
    """Stands still until somebody waits for a moment, and moves to that moment once ``ready`` says that it may."""

    def __init__(self, start):
        self.moment = float(start)
        self.ready = lambda: True

    def now(self):
        return self.moment

    def ticks(self):
        return int(self.moment * 1000) & TICKS_MASK

    async def until(self, moment):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.ready():
            assert time.monotonic() < deadline, "the fleet never came to rest"
            await asyncio.sleep(0.002)
        self.moment = max(self.moment, moment)


class PatientClock(Clock):
    """Runs `speed` times as fast as the machine's clock, but never past the moment for which a fleet waits next.

    If the fleet is held up, everybody waits, and no slot is skipped.
    """

    def __init__(self, speed):
        super().__init__(speed=speed)
        self._next = None
        self._lost = 0.0
        self._lock = threading.Lock()

    def now(self):
        with self._lock:
            moment = super().now() - self._lost
            if self._next is not None and moment > self._next:
                self._lost += moment - self._next
                moment = self._next
            return moment

    async def until(self, moment):
        # First, the clock is stopped at the moment that was waited for before. Then it may run to the next moment.
        self.now()
        with self._lock:
            self._next = moment if self._next is None else max(self._next, moment)
        while (left := moment - self.now()) > 0:
            await asyncio.sleep(left / self.speed)


def at_rest(fleet):
    """Whether every running device has the campaign, and every report that it means to send is acknowledged."""
    return all(
        device.reporter is None
        or (device.reporter.campaign is not None and (device.held is not None or not device.unacknowledged))
        for device in fleet.devices
    )

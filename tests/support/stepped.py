"""A clock that waits for everybody, so that no machine is too slow."""

import asyncio
import time

from undertone_simulator.clock import TICKS_MASK

PATIENCE_SECONDS = 60


class SteppedClock:
    """Stands still until somebody waits for a moment, and then until ``ready`` says that the moment may come."""

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


def at_rest(fleet):
    """Whether every device that lives has the campaign, and no report that it means to send is unacknowledged."""
    return all(
        device.reporter is None
        or (device.reporter.campaign is not None and (device.held is not None or not device.unacknowledged))
        for device in fleet.devices
    )

"""Live updates for open pages. A campaign is polled once for all its open pages; a slow page loses its oldest
messages.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from undertone_aggregator.mqtt.endpoint.shares import Shares, network_of
from undertone_aggregator.web.site import Mark
from undertone_shared.errors import Invalid

LOOK_SECONDS = 0.5
# Least seconds between two messages that report only more deliveries; and the largest number of such messages a second
# to all pages together. With many pages, each gets them more rarely, because they cost processor time that reports
# need.
COUNT_SECONDS = 2.0
COUNTS_PER_SECOND = 100
LARGEST_AUDIENCE = 2000
_WAITING = 4
_log = logging.getLogger(__name__)


class Full(Exception):
    """The largest number of listeners is reached. So this listener is refused, or its place was given to another
    address.
    """


class OpenPage:
    """One open page's queue of the newest messages."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque(maxlen=_WAITING)
        self._news = asyncio.Event()
        self._ended = False

    def end(self) -> None:
        """Make ``next`` raise Full, because another address needs the place."""
        self._ended = True
        self._news.set()

    def tell(self, message: bytes) -> None:
        """Add a message; the oldest one is dropped when the queue is full."""
        self._messages.append(message)
        self._news.set()

    async def next(self) -> bytes:
        """Return the oldest message in the queue; wait for one if it is empty. Raises Full once `end` was called."""
        while not (self._messages or self._ended):
            self._news.clear()
            await self._news.wait()
        if self._ended:
            raise Full
        return self._messages.popleft()


class Live:
    """Polls a campaign while pages listen to it, and sends them a message when its mark (`Site.mark`) has changed.

    A message is made once, as the bytes that every listener receives. A settled slot or a new epoch is sent as soon as
    the poll finds it; more deliveries alone are sent less often.
    ``look`` returns a campaign's mark, ``message`` the message to send. ``clock``: seconds of a monotonic clock.
    """

    def __init__(
        self,
        look: Callable[[str], Mark],
        message: Callable[[str], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._message = message
        self._clock = clock
        self._listeners: dict[str, set[OpenPage]] = {}
        self._shares: Shares[OpenPage] = Shares()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, Mark] = {}

    @property
    def audience(self) -> int:
        """The number of pages that listen."""
        return len(self._shares)

    @property
    def _count_seconds(self) -> float:
        return max(COUNT_SECONDS, self.audience / COUNTS_PER_SECOND)

    def check_room(self, address: str) -> None:
        """Raise Full if all places are taken and every other address has at most as many of them as this one."""
        own = self._shares.count(network_of(address))
        if self.audience >= LARGEST_AUDIENCE and own >= self._shares.largest:
            raise Full(f"{self.audience} pages listen already, {own} of them from your address: close one of these")

    async def begin(self, name: str) -> None:
        """Record the campaign's present mark before the response begins, so that every later change is sent."""
        if name not in self._tasks:
            with contextlib.suppress(Invalid, OSError):
                self._begun.setdefault(name, await asyncio.to_thread(self._look, name))

    async def listen(self, name: str, address: str = "") -> AsyncIterator[bytes]:
        """Yield the messages about a campaign from now on.

        If all places are taken, the oldest listener of the address with the most listeners is ended. Raises Full as
        `check_room` does, and for a listener that is ended in this way.
        """
        self.check_room(address)
        network = network_of(address)
        if self.audience >= LARGEST_AUDIENCE:
            self._shares.most_crowded().end()
        listener = OpenPage()
        self._shares.add(network, listener)
        self._listeners.setdefault(name, set()).add(listener)
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._watch(name))
        try:
            while True:
                yield await listener.next()
        finally:
            self._shares.remove(network, listener)
            self._listeners[name].discard(listener)
            if not self._listeners[name]:
                self._tasks.pop(name).cancel()

    async def _watch(self, name: str) -> None:
        before = self._begun.pop(name, None)
        told, failed = -math.inf, ""
        while True:
            try:
                mark = await asyncio.to_thread(self._look, name)
                now = self._clock()
                if before is None:
                    before = mark
                elif mark[:-1] != before[:-1] or (mark != before and now >= told + self._count_seconds):
                    message = await asyncio.to_thread(self._message, name)
                    before, told = mark, now
                    for listener in tuple(self._listeners[name]):
                        listener.tell(message)
                failed = ""
            except (Invalid, OSError):
                # Requests for this campaign report the error themselves.
                pass
            except Exception as wrong:
                # An unexpected error must not end the updates. It is logged once, and polling continues.
                if failed != repr(wrong):
                    failed = repr(wrong)
                    _log.error("open pages get no news of %s: %s", name, failed, exc_info=True)
            await asyncio.sleep(LOOK_SECONDS)

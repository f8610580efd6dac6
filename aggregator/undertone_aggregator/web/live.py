"""What is new, told to every open page: one look at the store for all of them, the oldest dropped for a slow one."""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from undertone_aggregator.web.site import Mark
from undertone_shared.errors import Invalid

LOOK_SECONDS = 0.5
# Between two messages that tell of nothing but more deliveries.
COUNT_SECONDS = 2.0
LARGEST_AUDIENCE = 2000
_WAITING = 4
_log = logging.getLogger(__name__)


class Full(Exception):
    """There are as many listeners as there may be."""


class OpenPage:
    """One open page's newest messages."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque(maxlen=_WAITING)
        self._news = asyncio.Event()

    def tell(self, message: bytes) -> None:
        """Add a message; the oldest goes when the page does not take them."""
        self._messages.append(message)
        self._news.set()

    async def next(self) -> bytes:
        """The oldest message that waits."""
        while not self._messages:
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()


class Live:
    """Looks at a campaign while somebody listens. ``look`` gives its mark, ``message`` what is told of a change.

    A message is made once, as the bytes that every listener is sent. A settled slot or a new epoch is told at once.
    ``clock``: seconds of a monotonic clock, which may start at any number.
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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, Mark] = {}

    @property
    def audience(self) -> int:
        """How many pages listen."""
        return sum(map(len, self._listeners.values()))

    async def begin(self, name: str) -> None:
        """Look at a campaign before it is said that somebody listens: whatever is new after that is told."""
        if name not in self._tasks:
            with contextlib.suppress(Invalid, OSError):
                self._begun.setdefault(name, await asyncio.to_thread(self._look, name))

    async def listen(self, name: str) -> AsyncIterator[bytes]:
        """The messages about a campaign from now on. Raises Full."""
        if self.audience >= LARGEST_AUDIENCE:
            raise Full
        listener = OpenPage()
        self._listeners.setdefault(name, set()).add(listener)
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._watch(name))
        try:
            while True:
                yield await listener.next()
        finally:
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
                elif mark[:-1] != before[:-1] or (mark != before and now >= told + COUNT_SECONDS):
                    message = await asyncio.to_thread(self._message, name)
                    before, told = mark, now
                    for listener in tuple(self._listeners[name]):
                        listener.tell(message)
                failed = ""
            except (Invalid, OSError):
                # Said wherever the campaign is asked for.
                pass
            except Exception as wrong:
                # A mistake of ours costs these news, and not all that come after them.
                if failed != repr(wrong):
                    failed = repr(wrong)
                    _log.error("no news of %s: %s", name, failed, exc_info=True)
            await asyncio.sleep(LOOK_SECONDS)

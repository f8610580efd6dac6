"""Preparation of what a page shows first. It is computed when a slot settles, so that nobody has to wait for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from undertone_aggregator.web.site import Mark

_LOOK_SECONDS = 1.0


class Ready:
    """Calls ``prepare`` for a campaign when its mark (`Site.mark`) changes, for one campaign at a time.

    The last field of the mark, the number of deliveries, is ignored.
    """

    def __init__(
        self, names: Callable[[], Iterable[str]], mark: Callable[[str], Mark], prepare: Callable[[str], object]
    ) -> None:
        self._names = names
        self._mark = mark
        self._prepare = prepare
        self._marks: dict[str, tuple[int, ...]] = {}

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Any) -> AsyncIterator[None]:
        """Run the preparation while the application runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            # Try again in the next round. Requests for the page report what is wrong with the folder.
            with contextlib.suppress(Exception):
                await asyncio.to_thread(self.look)
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Call ``prepare`` for every campaign whose mark has changed."""
        for name in self._names():
            # Skip a campaign that cannot be read. Requests for that campaign report the error.
            with contextlib.suppress(Exception):
                mark = self._mark(name)[:-1]
                if mark != self._marks.get(name):
                    self._prepare(name)
                    self._marks[name] = mark

"""Quantiles for many requests: computed one run at a time, outside the stores' locks, and cached."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import anyio.to_thread

from undertone_aggregator.estimate.distribution import Quantile, Run

# Largest number of requests that use the computing thread or wait for it; more are refused at once.
LARGEST_QUEUE = 16
# Largest number of cached answers, each for one run and a few shares.
_LARGEST_MEMORY = 4096

Key = tuple[str, tuple[float, ...]]


class Busy(Exception):
    """Too many requests are waiting already."""


class QuantileQueue:
    """Computes the quantiles of runs, which may take long, on one thread.

    A request for many runs takes a turn for each run, so a request for one run waits for at most one run of every other
    request. Answers are cached by their input, which does not change once it is published.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._known: OrderedDict[Key, list[Quantile]] = OrderedDict()

    async def of(self, runs: Sequence[Run], shares: Sequence[float]) -> list[Quantile]:
        """Return the quantiles of these runs. Raises Busy."""
        rows: list[Quantile] = []
        for run in runs:
            key = (run.key, tuple(shares))
            quantiles = self._known.get(key) or await self._work_out(key, run, shares)
            self._known[key] = quantiles
            self._known.move_to_end(key)
            rows += quantiles
        while len(self._known) > _LARGEST_MEMORY:
            self._known.popitem(last=False)
        return rows

    async def _work_out(self, key: Key, run: Run, shares: Sequence[float]) -> list[Quantile]:
        if self._waiting >= LARGEST_QUEUE:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn:
                # Another request for the same run may have computed it meanwhile.
                quantiles = self._known.get(key)
                if quantiles is None:
                    quantiles = self._known[key] = await anyio.to_thread.run_sync(_quantiles, run, shares)
                return quantiles
        finally:
            self._waiting -= 1


def _quantiles(run: Run, shares: Sequence[float]) -> list[Quantile]:
    return run.quantiles(shares, run.posterior())

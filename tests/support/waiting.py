"""Waiting for a fact.

Wait for exactly the fact that is asserted next, not for another sign of it, and not for a time. A test may show that
something does *not* happen. It then waits for a later event of the same channel, before which the forbidden event would
have come.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

# How long to wait at most. No test checks this limit: a busy machine may take ten times as long as a quiet one.
PATIENCE_SECONDS = 120.0
_STEP_SECONDS = 0.02


def wait_for(condition: Callable[[], _T], seconds: float = PATIENCE_SECONDS, what: str = "the event") -> _T:
    """Return the first true value of the condition. Raises AssertionError if none comes within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(_STEP_SECONDS)
    return value


async def wait_async(condition: Callable[[], _T], what: str = "the event", seconds: float = PATIENCE_SECONDS) -> _T:
    """Wait as `wait_for` does, while the event loop goes on."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(_STEP_SECONDS)
    return value

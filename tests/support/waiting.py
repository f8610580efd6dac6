"""Waiting for a fact. Wait for the very fact that is asserted next, never for another sign of it and never for a time.

A test that shows that something does *not* happen waits for a later event of the same channel, which the forbidden one
would have preceded.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

# Patience, never what is tested: a busy machine may take ten times as long as a quiet one.
PATIENCE_SECONDS = 120.0
_STEP_SECONDS = 0.02


def wait_for(condition: Callable[[], _T], seconds: float = PATIENCE_SECONDS, what: str = "it") -> _T:
    """Return the condition's first true value. Raises AssertionError if none comes within ``seconds`` of patience."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(_STEP_SECONDS)
    return value


async def wait_async(condition: Callable[[], _T], what: str = "it", seconds: float = PATIENCE_SECONDS) -> _T:
    """Like `wait_for`, while the event loop goes on."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(_STEP_SECONDS)
    return value

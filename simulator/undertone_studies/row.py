"""A row of a benchmark's result, and the timing of calls."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One measured number with its baseline from the same run.

    ``ratio`` > 1 means better than the baseline, for any unit; None if it is unknown. ``goal``: the ratio that we want
    to reach.
    """

    name: str
    value: float
    unit: str
    baseline: str | None = None
    baseline_value: float | None = None
    ratio: float | None = None
    goal: float | None = None


def rate(
    name: str, value: float, unit: str, baseline: str, baseline_value: float, goal: float | None = None
) -> Measured:
    """Make a row for a number where more is better."""
    return Measured(name, value, unit, baseline, baseline_value, _ratio(value, baseline_value), goal)


def duration(
    name: str, value: float, unit: str, baseline: str, baseline_value: float, goal: float | None = None
) -> Measured:
    """Make a row for a number where less is better."""
    return Measured(name, value, unit, baseline, baseline_value, _ratio(baseline_value, value), goal)


def _ratio(better: float, worse: float) -> float | None:
    """Return the ratio; None if a short run took less than the clock of processor time can show."""
    return better / worse if worse else None


def best_seconds(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the shortest processor time of each call over ``rounds``; in every round the calls alternate.

    The time is this thread's processor time, so that other processes affect it less.
    """
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[i] = min(best[i], time.thread_time() - start)
    return best

"""A row of a benchmark, and how its times are taken."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One figure beside its baseline from the same run.

    ``ratio`` > 1 means better than the baseline, whatever the unit; ``goal`` is what it is hoped to reach.
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
    """A row where more is better."""
    return Measured(name, value, unit, baseline, baseline_value, value / baseline_value, goal)


def duration(
    name: str, value: float, unit: str, baseline: str, baseline_value: float, goal: float | None = None
) -> Measured:
    """A row where less is better."""
    return Measured(name, value, unit, baseline, baseline_value, baseline_value / value, goal)


def best_seconds(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The shortest processor time of each call over ``rounds``, one call of each after the other in every round.

    Time of this thread, so that other processes on the machine weigh less.
    """
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[i] = min(best[i], time.thread_time() - start)
    return best

"""What θ by time of day would give for a population that is known: the blocks that the server would choose."""

import math
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.threshold import Query, Threshold, in_blocks
from undertone_aggregator.threshold.day import Day

MOST = 8


@dataclass(frozen=True)
class BlockPlan:
    """A block of the day: its first slot, its θ, and the standard error of a slot in it."""

    first: int
    theta: int
    standard_error: float


@dataclass(frozen=True)
class DayPlan:
    """Blocks with a θ of their own. ``standard_error``, ``error``: of a slot, root mean squares over the day;

    ``ratio``: the mean square error over that of one θ.
    """

    blocks: tuple[BlockPlan, ...]
    standard_error: float
    error: float
    ratio: float


def plan_day(day: Day, chosen: Threshold, variance: float, reports: int) -> DayPlan | None:
    """At most eight blocks in the place of the one θ of ``chosen``; None where one is as good.

    ``variance``: the mechanism's, in units of (θ/2)²; a block's readings fill its range as the day's fill the day's.
    """
    made = in_blocks(chosen, day, MOST, Query.fleet(reports), lambda _: variance)
    if not made.blocks:
        return None

    def noise(theta: int) -> float:
        return theta / 2 * math.sqrt(variance / reports)

    whole = noise(chosen.theta) ** 2 + float(day.shares @ np.square(day.excess(np.array([chosen.theta]))[:, 0, 0]))
    error = made.expected_mse / reports**2
    return DayPlan(
        tuple(BlockPlan(first, choice.theta, noise(choice.theta)) for first, _, choice in made.blocks),
        math.sqrt(sum(share * noise(choice.theta) ** 2 for _, share, choice in made.blocks)),
        math.sqrt(error),
        error / whole,
    )

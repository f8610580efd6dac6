"""Plan of θ by time of day: the blocks that the server would choose for known readings."""

import math
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.threshold import Query, Threshold
from undertone_aggregator.threshold.blocks import in_blocks
from undertone_simulator.planning.known import KnownPopulation

MOST = 8


@dataclass(frozen=True)
class BlockPlan:
    """A block of the day: its first slot, its θ, and the standard error of a slot in it."""

    first: int
    theta: int
    standard_error: float


@dataclass(frozen=True)
class DayPlan:
    """Blocks with different θ.

    ``standard_error``, ``error``: those of a slot's mean, as root mean squares over the day.

    ``ratio``: the mean square error, divided by that with one θ for the whole day.
    """

    blocks: tuple[BlockPlan, ...]
    standard_error: float
    error: float
    ratio: float


def plan_day(population: KnownPopulation, chosen: Threshold, variance: float, reports: int) -> DayPlan | None:
    """Plan at most eight blocks instead of the single θ of ``chosen``; return None if one θ is as good.

    ``variance``: the mechanism's, in units of (θ/2)²; it is assumed to be the same for each block as for the day.
    """
    blocks = in_blocks(chosen, population.day, MOST, Query.fleet(reports), lambda _: variance).blocks
    if not blocks:
        return None
    starts = [block.first for block in blocks]
    thetas = np.repeat([block.choice.theta for block in blocks], np.diff([*starts, population.per_day]))
    prediction, one = (
        population.predicted(thetas, variance, reports),
        population.predicted(chosen.theta, variance, reports),
    )
    return DayPlan(
        tuple(BlockPlan(i, int(thetas[i]), math.sqrt(prediction.variance[i])) for i in starts),
        prediction.standard_error,
        prediction.error,
        prediction.error**2 / one.error**2,
    )

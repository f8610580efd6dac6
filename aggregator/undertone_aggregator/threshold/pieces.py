"""Mean excess of the readings over every limit, by piece of the cycle. A choice of θ keeps it to describe times of
day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.objective import Excess

# Neighbouring limits differ by this factor.
_RATIO = 2.0 ** (1 / 6)
# Significant digits of the numbers that are kept.
_DIGITS = 5


@dataclass(frozen=True)
class Pieces:
    """The mean excess E[(x - t)⁺] of the readings x in each piece of the cycle, in the reading's unit.

    ``starts`` [pieces]: the first slot of the cycle of each piece; ``shares`` [pieces]: its share of the cycle's slots.
    ``limits`` [T]: the t, ascending from 0; ``excess`` [pieces, T]; ``error`` [pieces, T]: the standard error of the
    excess; ``shared`` [T]: the standard error of its mean over the cycle.
    """

    starts: Sequence[int]
    shares: Sequence[float]
    limits: Sequence[int]
    excess: Sequence[Sequence[float]]
    error: Sequence[Sequence[float]]
    shared: Sequence[float]

    @classmethod
    def of(cls, densities: Vector, edges: Sequence[int], starts: Sequence[int], shares: Sequence[float]) -> "Pieces":
        """Summarise equally likely densities [pieces, draws, d] over integer ``edges`` [d + 1]."""
        bound = edges[-1] - 1
        steps = np.arange(int(np.log(max(bound, 2)) / np.log(_RATIO)) + 1)
        limits = np.unique(np.rint(np.append(0.0, bound / _RATIO**steps)).astype(np.int64))
        excess = Excess(densities, edges).above(limits)
        # A few draws have a much heavier tail than the others. The median does not follow them, unless half of the
        # draws do.
        middle = np.median(excess, axis=1)
        of_cycle = np.tensordot(np.asarray(shares), excess - middle[:, None], 1)
        error = np.sqrt(np.square(excess - middle[:, None]).mean(axis=1))
        numbers = (middle, error, np.sqrt(np.square(of_cycle).mean(axis=0)))
        return cls([*map(int, starts)], [*map(float, shares)], limits.tolist(), *map(_rounded, numbers))


def _rounded(numbers: Vector) -> Any:
    """Return the numbers with `_DIGITS` significant digits, as lists."""
    sizes = np.floor(np.log10(np.maximum(np.abs(numbers), 1e-300)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - sizes, -300, 300)
    return np.where(np.abs(numbers) > 1e-12, np.rint(numbers * scale) / scale, 0.0).tolist()

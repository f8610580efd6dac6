"""The table designed for a population: its construction, its predicted variance and its gain over the Hybrid."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.levels import Vector
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.design.population import ReadingModel
from undertone_aggregator.design.reach import FALSE_SHARE, REACH, WIDE_REACH, largest_value
from undertone_aggregator.design.table import CELLS, LEVELS, NoTable, ideal_table, optimal_table
from undertone_aggregator.design.window import hybrid, most_levels
from undertone_shared.table import LARGEST_LEVEL

_COARSE_LEVELS = 12
_COARSE_CELLS = 33


def population_table(
    epsilon: Fraction | float | str, theta: int, population: ReadingModel, reach: float = REACH
) -> Mechanism:
    """Design the table of least mean variance for the readings truncated at ``theta``; see `design.reach`.

    Raises NoTable.
    """
    if theta > LARGEST_LEVEL:
        raise NoTable(f"theta = {theta} is above {LARGEST_LEVEL}, the largest theta of a table")
    density = population.levels(np.linspace(0.0, theta, LEVELS + 1), theta)
    largest = _largest(epsilon, reach)
    return optimal_table(epsilon, theta, levels=LEVELS, cells=CELLS, density=_probabilities(density), largest=largest)


def gain(mechanism: Mechanism, epsilon: Fraction | float | str, theta: int, population: ReadingModel) -> float:
    """Return the share by which the mechanism's mean variance over the readings is below the Hybrid's at the same θ."""
    baseline = hybrid(epsilon, most_levels(theta))
    return 1.0 - population.mean_variance(mechanism, theta) / population.mean_variance(baseline, theta)


class Promise:
    """The variances that tables of `population_table` would have for the readings, without designing the tables.

    They are predicted to about 2 %. Each variance is computed once. The computation starts from the cells that the one
    before it used, which saves time.
    """

    def __init__(self, epsilon: Fraction | float | str, population: ReadingModel) -> None:
        self._epsilon, self._population = epsilon, population
        self._variances: dict[tuple[int, float], float] = {}
        self._near: Sequence[int] | None = None

    def variance(self, theta: int, reach: float = REACH) -> float:
        """Return the variance at θ, in units of (θ/2)²; inf if there is no table."""
        if (theta, reach) not in self._variances:
            self._variances[theta, reach] = self._ideal(theta, reach)
        return self._variances[theta, reach]

    def _ideal(self, theta: int, reach: float) -> float:
        if theta > LARGEST_LEVEL:
            return float("inf")
        density = self._population.levels(np.linspace(0.0, theta, _COARSE_LEVELS + 1), theta)
        largest = _largest(self._epsilon, reach)
        try:
            ideal = ideal_table(self._epsilon, _probabilities(density), _COARSE_CELLS, largest=largest, near=self._near)
        except NoTable:
            return float("inf")
        self._near = ideal.cells
        return ideal.variance

    def usual_reach(self, theta: int, reports: float) -> float:
        """Return `WIDE_REACH` if it gives a mean of ``reports`` reports the smaller error, else `REACH`.

        The error is E = V/n + (s·L)², in units of (θ/2)²: V is the table's variance, n = ``reports``, s = `FALSE_SHARE`
        the share of false reports, L the distance from the lowest reading to the largest decoded value.
        """

        def error(reach: float) -> float:
            lies = FALSE_SHARE * (_largest(self._epsilon, reach) + 1.0)
            return self.variance(theta, reach) / reports + lies * lies

        return WIDE_REACH if error(WIDE_REACH) < error(REACH) else REACH


def _largest(epsilon: Fraction | float | str, reach: float) -> float:
    return largest_value(Budget.parse(epsilon).approximate[0], reach)


def _probabilities(density: Vector) -> tuple[float, ...]:
    return tuple(np.maximum(density, 0.0).tolist())

"""θ and the report mechanism together: θ for the variance that the mechanism designed at that θ would have.

The optimal table's variance among the readings changes slowly with θ, in units of θ/2: it is found at a few θ, by
small linear programmes, and interpolated. The table that reports is designed once, in full, at the θ that is chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from undertone_aggregator.design.population import Mechanism, Population, Vector
from undertone_aggregator.design.table import CELLS, LEVELS, NoTable, ideal_variance, optimal_table
from undertone_aggregator.design.window import hybrid, levels_for, piecewise, worst_variance
from undertone_aggregator.threshold.objective import Variance
from undertone_aggregator.threshold.result import Threshold
from undertone_shared.errors import Invalid
from undertone_shared.table import LARGEST_LEVEL

MECHANISMS = ("auto", "hybrid", "piecewise", "optimal")
# A table that lowers the mean variance by less than this is not worth its broadcast.
LEAST_GAIN = 0.005
_THETAS = 7
_SPREAD = 4.0
_COARSE_LEVELS = 12
_COARSE_CELLS = 33

Choose = Callable[[Variance], Threshold]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Design:
    """θ and what reports under it. ``reason``: a sentence, where the Hybrid reports although more was asked for."""

    threshold: Threshold
    mechanism: Mechanism
    reason: str | None = None


def choose_jointly(
    kind: str,
    epsilon: Fraction | float | str,
    levels: int,
    choose: Choose,
    progress: Progress = lambda _: None,
) -> Design:
    """θ and mechanism of one of `MECHANISMS`. ``choose``: θ for a variance as a function of θ; called once or twice.

    "optimal" takes the best table that can be made, "auto" only one that gains something on the Hybrid; where there
    is none, θ is the Hybrid's. ``levels``: at most so many input levels of the Hybrid and the piecewise mechanism.
    Raises Invalid for another kind, and as `hybrid` does.
    """
    if kind not in MECHANISMS:
        raise Invalid(f"mechanism is {kind!r}, expected one of {', '.join(MECHANISMS)}")
    worst = float(worst_variance(hybrid(epsilon)))
    plain = choose(lambda _: worst)
    fallback = Design(plain, hybrid(epsilon, levels_for(plain.theta, levels)))
    if kind == "hybrid":
        return fallback
    population = Population(plain.density, plain.edges)

    def variance_at(theta: int) -> float:
        if kind == "piecewise":
            return population.mean_variance(piecewise(epsilon, levels_for(theta, levels)), theta)
        return min(_table_variance(epsilon, theta, population), worst)

    chosen = choose(_interpolated(variance_at, plain, progress))
    if kind == "piecewise":
        return Design(chosen, piecewise(epsilon, levels_for(chosen.theta, levels)))
    progress(f"designing the table for theta = {chosen.theta}")
    try:
        table = population_table(epsilon, chosen.theta, population)
    except NoTable as none:
        return replace(fallback, reason=f"the Hybrid reports: {none}")
    gained = gain(table, epsilon, chosen.theta, population)
    if kind == "auto" and gained < LEAST_GAIN:
        return replace(fallback, reason=f"the Hybrid reports: the best table would lower the variance by {gained:.1%}")
    return Design(chosen, table)


def population_table(epsilon: Fraction | float | str, theta: int, population: Population) -> Mechanism:
    """The table of least mean variance among the readings truncated at ``theta``. Raises NoTable."""
    if theta > LARGEST_LEVEL:
        raise NoTable(f"theta = {theta} is above {LARGEST_LEVEL}, the largest of a table")
    density = population.levels(np.linspace(0.0, theta, LEVELS + 1), theta)
    return optimal_table(epsilon, theta, levels=LEVELS, cells=CELLS, density=_probabilities(density))


def gain(mechanism: Mechanism, epsilon: Fraction | float | str, theta: int, population: Population) -> float:
    """By which share the mechanism's mean variance among the readings is below the Hybrid's at the same θ."""
    baseline = hybrid(epsilon, levels_for(theta))
    return 1.0 - population.mean_variance(mechanism, theta) / population.mean_variance(baseline, theta)


def _table_variance(epsilon: Fraction | float | str, theta: int, population: Population) -> float:
    """What `population_table` will have, nearly: within a hundredth, in a tenth of the time; inf for none."""
    if theta > LARGEST_LEVEL:
        return float("inf")
    density = population.levels(np.linspace(0.0, theta, _COARSE_LEVELS + 1), theta)
    try:
        return ideal_variance(epsilon, _probabilities(density), _COARSE_CELLS)
    except NoTable:
        return float("inf")


def _interpolated(variance_at: Callable[[int], float], around: Threshold, progress: Progress) -> Variance:
    """The variance as a function of θ, linear in log θ between a few θ, constant outside them."""
    low, high = around.theta / _SPREAD, min(around.theta * _SPREAD, around.edges[-1] - 1)
    thetas = np.unique(np.maximum(np.rint(np.geomspace(low, high, _THETAS)), 1.0))
    found = []
    for number, theta in enumerate(thetas, 1):
        progress(f"variance at theta {number} of {len(thetas)}")
        found.append(variance_at(int(theta)))
    return lambda theta: float(np.interp(np.log(theta), np.log(thetas), found))


def _probabilities(density: Vector) -> tuple[float, ...]:
    return tuple(np.maximum(density, 0.0).tolist())

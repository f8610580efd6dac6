"""Joint choice of θ and the report mechanism: θ is chosen for the variance that the mechanism designed for it has.

The mean variance of the optimal table, in units of (θ/2)², changes slowly with θ. It is computed at a few θ by small
linear programmes and interpolated. The full table is designed once, at the θ that is chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from undertone_aggregator.design.fitted import Promise, gain, population_table
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.design.named import Fixed, reporting_as
from undertone_aggregator.design.reach import REACH
from undertone_aggregator.design.table import NoTable
from undertone_aggregator.design.window import hybrid, most_levels, worst_variance
from undertone_aggregator.threshold.objective import Variance
from undertone_aggregator.threshold.result import Threshold
from undertone_shared.checks import SMALL

_THETAS = 7
_SPREAD = 4.0

Choose = Callable[[Variance], Threshold]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Design:
    """θ and the mechanism that reports under it.

    ``reason``: why the Hybrid reports although another mechanism was asked for, or None. ``reach``: that of a table,
    else None.
    """

    threshold: Threshold
    mechanism: Mechanism
    reason: str | None = None
    reach: float | None = None


@dataclass(frozen=True)
class Undesigned:
    """A choice of θ, from which `design` makes the mechanism.

    The mechanism is made for the θ of ``threshold``. If no table can be made, or it gains too little, ``fallback`` is
    used.
    """

    kind: str
    epsilon: Fraction | float | str
    levels: int
    threshold: Threshold
    # The Hybrid with its own θ.
    fallback: Design
    reach: float
    progress: Progress

    def design(self) -> Design:
        """Design the mechanism. Raises Invalid for a kind that no campaign has."""
        reporting, chosen = reporting_as(self.kind), self.threshold
        if isinstance(reporting, Fixed):
            return Design(chosen, reporting.make(self.epsilon, most_levels(chosen.width, self.levels)))
        self.progress(f"designing the table for theta = {chosen.offset + chosen.bottom + chosen.width}")
        try:
            table = population_table(self.epsilon, _range(chosen), chosen.readings, self.reach)
        except NoTable as error:
            return replace(self.fallback, reason=f"devices add noise by the Hybrid: {error}")
        gained = gain(table, self.epsilon, chosen.width, chosen.readings)
        if reporting.least_gain is not None and gained < reporting.least_gain:
            lower = f"lower the variance by only {gained:.1%}" if gained > 0 else "not lower the variance"
            reason = f"devices add noise by the Hybrid: the best table would {lower}"
            return replace(self.fallback, reason=reason)
        return Design(chosen, table, reach=self.reach)


def choose_jointly(
    kind: str,
    epsilon: Fraction | float | str,
    levels: int,
    choose: Choose,
    progress: Progress = lambda _: None,
    reach: float | None = REACH,
    reports: float = 1.0,
) -> Design:
    """Choose θ and design the mechanism for it; see `choose_theta` and `Undesigned`."""
    return choose_theta(kind, epsilon, levels, choose, progress, reach, reports).design()


def choose_theta(
    kind: str,
    epsilon: Fraction | float | str,
    levels: int,
    choose: Choose,
    progress: Progress = lambda _: None,
    reach: float | None = REACH,
    reports: float = 1.0,
) -> Undesigned:
    """Choose θ for a mechanism of one kind, a name of `design.named`, with the variance that it would have at each θ.

    ``choose`` returns the threshold for a variance. The variance is a function of the width of the range, θ minus the
    bottom. ``choose`` is called once or twice.

    If no table can be made, or it gains too little, the design is the Hybrid with its own θ. ``levels``: largest number
    of input levels of a mechanism that does not depend on the readings. ``reach``: that of a table, see `design.reach`;
    with None it is `Promise.usual_reach` for a mean of ``reports`` reports. Raises Invalid for another kind, or if
    `hybrid` raises it.
    """
    reporting = reporting_as(kind)
    worst = float(worst_variance(hybrid(epsilon)))
    plain = choose(lambda _: worst)
    fallback = Design(plain, hybrid(epsilon, most_levels(plain.width, levels)))
    if isinstance(reporting, Fixed) and reporting.as_hybrid:
        return Undesigned(kind, epsilon, levels, plain, fallback, REACH, progress)
    population = plain.population
    promise = Promise(epsilon, population)
    of_table = promise.usual_reach(plain.width, reports) if reach is None else reach

    def variance_at(theta: int) -> float:
        if isinstance(reporting, Fixed):
            return population.mean_variance(reporting.make(epsilon, most_levels(theta, levels)), theta)
        return min(promise.variance(theta, of_table), worst)

    chosen = choose(_interpolated(variance_at, plain, progress))
    return Undesigned(kind, epsilon, levels, chosen, fallback, of_table, progress)


def _range(chosen: Threshold) -> int:
    """Return the width of the range that the table is designed for.

    With blocks, devices scale the readings of each block to this range. It is limited so that its product with the
    widest block's range stays below `SMALL`.
    """
    return min(chosen.width, (SMALL - 1) // chosen.width) if chosen.blocks else chosen.width


def _interpolated(variance_at: Callable[[int], float], around: Threshold, progress: Progress) -> Variance:
    """Return the variance as a function of θ: linear in log θ between a few θ, constant outside them."""
    low, high = around.width / _SPREAD, min(around.width * _SPREAD, around.edges[-1] - 1)
    thetas = np.unique(np.maximum(np.rint(np.geomspace(low, high, _THETAS)), 1.0))
    variances = []
    for number, theta in enumerate(thetas, 1):
        progress(f"computing the variance of the noise for value {number} of {len(thetas)} of theta")
        variances.append(variance_at(int(theta)))
    at = np.log(thetas)
    # Results are cached, because the choice of θ asks for the same candidates again for each shape of the readings.
    return lru_cache(maxsize=None)(lambda theta: float(np.interp(np.log(theta), at, variances)))

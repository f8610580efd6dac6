"""Design of mechanisms for an epsilon: integer weights, proven privacy, comparison with the papers' continuous
formulas.

May import: base.
"""

from undertone_aggregator.design.budget import Budget, best_fraction, exponential_below
from undertone_aggregator.design.window import (
    hybrid,
    most_levels,
    piecewise,
    piecewise_optimal,
    square_wave,
    stochastic_rounding,
    worst_variance,
)

__all__ = [
    "Budget",
    "best_fraction",
    "exponential_below",
    "hybrid",
    "most_levels",
    "piecewise",
    "piecewise_optimal",
    "square_wave",
    "stochastic_rounding",
    "worst_variance",
]

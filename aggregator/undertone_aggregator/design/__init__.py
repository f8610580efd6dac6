"""Design: mechanisms for a given epsilon, as integer weights whose privacy is proven from the integers alone.

Owns the mechanisms of the papers with their closed forms, tables designed for a population, streams, budgets,
certificates, and the table of all mechanisms.
May import: base.
Start reading: ``mechanisms.py``, the table; ``window.py`` makes the usual mechanisms, ``certificate.py`` checks any.
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

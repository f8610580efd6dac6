"""Choosing mechanisms for an epsilon: integers, proven and compared with the papers' continuous formulas."""

from undertone_aggregator.design.budget import best_fraction, exponential_below, parse_epsilon
from undertone_aggregator.design.window import (
    hybrid,
    levels_for,
    piecewise,
    piecewise_optimal,
    square_wave,
    stochastic_rounding,
    worst_variance,
)

__all__ = [
    "best_fraction",
    "exponential_below",
    "hybrid",
    "levels_for",
    "parse_epsilon",
    "piecewise",
    "piecewise_optimal",
    "square_wave",
    "stochastic_rounding",
    "worst_variance",
]

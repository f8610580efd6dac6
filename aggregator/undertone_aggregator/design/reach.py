"""Reach of a table that is designed for readings: how far its largest decoded value may lie from its readings.

If the symbols of a table decode to larger values, the table has less noise, but one false report moves a mean further.
For readings in [-1, 1], the largest decoded value is at least (e^ε + 1)/(e^ε - 1), that of stochastic rounding. A
table's reach is its largest decoded value, divided by this.
"""

import math

# A campaign that names no reach has one of these two: see `design.fitted.Promise.usual_reach`. A reach above WIDE_REACH
# would hardly lower the variance.
REACH, WIDE_REACH = 1.1, 1.25
# The limits of a reach that a campaign may name.
LEAST_REACH, LARGEST_REACH = 1.01, 2.0
# The share of false reports that is assumed if a campaign names no reach.
FALSE_SHARE = 0.01


def largest_value(epsilon: float, reach: float) -> float:
    """Return the largest decoded value of a table with this reach, for readings in [-1, 1]."""
    return reach / math.tanh(epsilon / 2)

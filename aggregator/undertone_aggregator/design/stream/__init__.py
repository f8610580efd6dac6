"""Design of stream mechanisms for a budget: calibration, exact sensitivity, filters, integers, comparison.

Start reading: ``plan.py``, which compares the ways; ``integers.py`` gives what a campaign carries.
"""

from undertone_aggregator.design.stream.integers import choose, epsilon_spent, release_variance, rho_for
from undertone_aggregator.design.stream.plan import StreamComparison, plan_stream

__all__ = ["StreamComparison", "choose", "epsilon_spent", "plan_stream", "release_variance", "rho_for"]

"""The designer's mechanisms without tables, as (name, epsilon, mechanism), in the sizes that devices use; and tables.

The tables are the frozen ones, as (epsilon, theta, table), and a small one.
"""

import sys
from pathlib import Path

from undertone_aggregator import design

sys.path.append(str(Path(__file__).parents[1] / "shared/both"))
from designed_tables import designed as frozen_tables
from proofs import check_all
from small_mechanisms import small_table

__all__ = ["DESIGNED", "EPSILONS", "MAKERS", "check_all", "frozen_tables", "small_table"]

EPSILONS = ("0.1", "0.5", "1", "2", "4", "8")
MAKERS = {
    "stochastic-rounding": design.stochastic_rounding,
    "piecewise": design.piecewise,
    "piecewise-optimal": design.piecewise_optimal,
    "hybrid": design.hybrid,
    "square-wave": lambda epsilon: design.square_wave(epsilon, range(0, 2570, 10)),
    "square-wave-few-bins": lambda epsilon: design.square_wave(epsilon, (0, 1, 2, 3, 5, 8, 13, 22)),
}
DESIGNED = [(name, epsilon, make(epsilon)) for name, make in MAKERS.items() for epsilon in EPSILONS]

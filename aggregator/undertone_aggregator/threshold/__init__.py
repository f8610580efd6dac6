"""Threshold: chooses the truncation threshold θ from locally private reports. Pure functions of histograms.

Owns the fit of a distribution to histograms, ToPL's objective, the edges of the next round, limits of θ, its interval.
May import: design.
Start reading: ``choose.py``, in which `next_range` gives the next round's edges, and `theta_from_reports` chooses. The
first round's edges come from `first_edges` of ``bin_edges.py``. This package exports what readers of a store need. What
only a decision on θ needs is imported from its own module, because that import takes long.
"""

from undertone_aggregator.threshold.bin_edges import first_edges, linear_edges, quantile, zoomed_edges
from undertone_aggregator.threshold.channel import (
    Channel,
    CoarseChannel,
    MatrixChannel,
    StackedChannel,
    WindowChannel,
)
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts
from undertone_aggregator.threshold.em import Fit, PseudoReports, ems_step, expectation_maximisation
from undertone_aggregator.threshold.objective import (
    Query,
    Variance,
    best_threshold,
    constant_variance,
    even_thetas,
    mean_excess,
    mean_square_error,
)
from undertone_aggregator.threshold.result import Threshold

__all__ = [
    "Channel",
    "CoarseChannel",
    "CohortCounts",
    "Fit",
    "MatrixChannel",
    "PseudoReports",
    "Query",
    "ReportCounts",
    "StackedChannel",
    "Threshold",
    "Variance",
    "WindowChannel",
    "best_threshold",
    "constant_variance",
    "ems_step",
    "even_thetas",
    "expectation_maximisation",
    "first_edges",
    "linear_edges",
    "mean_excess",
    "mean_square_error",
    "quantile",
    "zoomed_edges",
]

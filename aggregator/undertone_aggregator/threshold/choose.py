"""Choosing θ, and the next round's range, from the cohort's histograms."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from undertone_aggregator.threshold.channel import StackedChannel
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts, common_grid
from undertone_aggregator.threshold.em import Fit, expectation_maximisation, smooth
from undertone_aggregator.threshold.objective import (
    Query,
    Variance,
    best_threshold,
    candidates,
    mean_excess,
)
from undertone_aggregator.threshold.paper import white_box
from undertone_aggregator.threshold.result import Threshold
from undertone_aggregator.threshold.zoom import quantile, zoomed_edges

Method = Literal["robust", "ems", "sw-w"]


def choose_threshold(
    rounds: Sequence[CohortCounts],
    *,
    bound: int,
    variance: Variance,
    query: Query,
    method: Method = "robust",
    reports: Sequence[ReportCounts] = (),
) -> Threshold:
    """θ in 1..bound that minimises Eq. 8 under what the histograms say about the readings.

    `variance(θ)` is the variance of the mechanism that will report, in units of θ/2. `method`: "robust" (the
    default), "ems" (smoothed expectation maximisation) or "sw-w" (the paper's white box). `reports`:
    histograms of the stream phase, used by "robust" only. Raises ValueError for no reports at all, edges
    beyond the bound, or an unknown method.
    """
    if method not in ("robust", "ems", "sw-w"):
        raise ValueError(f"unknown method {method!r}")
    fit, grid = fitted_density(rounds, bound, smoothed=method != "sw-w")
    density = white_box(fit.density) if method == "sw-w" else fit.density
    thetas = candidates(bound)
    theta, expected = best_threshold(density, grid, thetas, query, variance)
    return Threshold(
        theta=theta,
        low=theta,
        high=theta,
        bias=float(mean_excess(density, grid, np.array([theta]))[0]),
        bias_se=float("nan"),
        expected_mse=expected,
        density=density,
        edges=grid,
        method=method,
    )


def next_range(rounds: Sequence[CohortCounts], *, bound: int, cells: int = 128) -> tuple[int, ...]:
    """Integer edges for the next round: linear from the 70 % to the 99 % quantile, later to the 99.5 %.

    Raises ValueError as `choose_threshold` does.
    """
    fit, grid = fitted_density(rounds, bound, smoothed=True)
    low = quantile(fit.density, grid, 0.7)
    high = quantile(fit.density, grid, 0.99 if len(rounds) == 1 else 0.995)
    return zoomed_edges(max(low, 1), max(high, 1), bound, cells)


def fitted_density(
    rounds: Sequence[CohortCounts], bound: int, *, smoothed: bool
) -> tuple[Fit, tuple[int, ...]]:
    """The paper's EM (or EMS) over all rounds together, on the common grid of their edges."""
    grid = common_grid(rounds, bound)
    channel = StackedChannel([one.channel(grid) for one in rounds])
    counts = np.concatenate([np.asarray(one.counts, dtype=np.float64) for one in rounds])
    fit = expectation_maximisation(channel, counts, stop="paper", smoother=smooth if smoothed else None)
    return fit, grid

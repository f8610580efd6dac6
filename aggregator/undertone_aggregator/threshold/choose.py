"""Choice of θ, and of the next round's range, from the histograms of the threshold cohort."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from undertone_aggregator.threshold.channel import StackedChannel, Vector
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts, common_grid
from undertone_aggregator.threshold.em import Fit, ems_step, expectation_maximisation
from undertone_aggregator.threshold.objective import (
    Integers,
    Query,
    Variance,
    best_threshold,
    even_thetas,
    mean_excess,
)
from undertone_aggregator.threshold.result import WHITE_BOX, Threshold
from undertone_aggregator.threshold.robust import choose_robustly, next_edges

Method = Literal["robust", "ems", "sw-w"]
# Constants of the white box: a bin with less mass than NEGLIGIBLE counts as zero, and so does every bin after a run of
# at least RUN zero bins.
NEGLIGIBLE, RUN = 1e-4, 5


def theta_from_reports(
    rounds: Sequence[CohortCounts],
    *,
    bound: int,
    variance: Variance,
    query: Query,
    method: Method = "robust",
    reports: Sequence[ReportCounts] = (),
    thetas: Integers | None = None,
    offset: int = 0,
) -> Threshold:
    """Choose θ in 1..bound by the mean square error, ToPL's Eq. 8, under the readings that histograms support.

    `variance(θ)` is the variance of the mechanism that will report, in units of (θ/2)². `method`: "robust" (the
    default), "ems" (smoothed expectation maximisation) or "sw-w" (the paper's white box). `reports`: histograms of the
    report phase, used by "robust" only. `thetas`: candidates, increasing; by default integers about 2.5 % apart for
    "robust", 1024 equally spaced ones for the paper's methods. `offset`: added to values in warnings, so that they are
    in the reader's units. Raises ValueError if there are no cohort reports, if edges lie beyond the bound, or for an
    unknown method.
    """
    if method not in ("robust", "ems", "sw-w"):
        raise ValueError(f"unknown method {method!r}")
    if method == "robust":
        return choose_robustly(rounds, reports, bound, variance, query, thetas, offset)
    fit, grid = fitted_density(rounds, bound, smoothed=method == "ems")
    density = white_box(fit.density) if method == WHITE_BOX else fit.density
    theta, expected = best_threshold(density, grid, even_thetas(bound) if thetas is None else thetas, query, variance)
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
        offset=offset,
    )


def with_tail(
    chosen: Threshold, rounds: Sequence[CohortCounts], *, bound: int, variance: Variance, query: Query
) -> Threshold:
    """Return a choice by the white box, with the distribution of readings that the robust method fits to the same
    reports.

    The white box removes the tail of its own density, which therefore cannot show what truncation at θ removes.
    θ and its expected error stay as they are.
    """
    at = np.array([chosen.theta], dtype=np.int64)
    fitted = choose_robustly(rounds, (), bound, variance, query, at, chosen.offset)
    return replace(fitted, method=chosen.method, expected_mse=chosen.expected_mse, warnings=chosen.warnings)


def next_range(
    rounds: Sequence[CohortCounts],
    *,
    bound: int,
    cells: int = 128,
    reports: Sequence[ReportCounts] = (),
) -> tuple[int, ...]:
    """Return integer edges for the next round: linear from the 70 % quantile to the 99 % quantile (99.5 % in later
    rounds).

    Above that they are logarithmic up to the bound. For readings far from zero see `next_edges`. Raises ValueError as
    `theta_from_reports` does.
    """
    return next_edges(rounds, reports, bound, cells)


def fitted_density(rounds: Sequence[CohortCounts], bound: int, *, smoothed: bool) -> tuple[Fit, tuple[int, ...]]:
    """Fit the paper's EM (or EMS) to all rounds together, on the common grid of their edges.

    Return the fit and the grid.
    """
    grid = common_grid(rounds, bound)
    channel = StackedChannel([asked.channel(grid) for asked in rounds])
    counts = np.concatenate([np.asarray(asked.counts, dtype=np.float64) for asked in rounds])
    fit = expectation_maximisation(channel, counts, stop="paper", smoother=ems_step if smoothed else None)
    return fit, grid


def white_box(density: Vector) -> Vector:
    """Return the density [d] without its tail, as ToPL's white box `sw-w` does (CCS 2021).

    Bins below 1e-4 are set to zero. If five zero bins in a row follow a bin with mass, everything after them is set to
    zero, too. The removed mass is added in equal parts to the remaining bins. Raises ValueError when no bin remains.
    """
    reduced = np.where(density < NEGLIGIBLE, 0.0, density)
    run = 0
    for index, value in enumerate(reduced):
        run = run + 1 if value == 0.0 else 0
        if run == RUN and np.any(reduced[: index - RUN + 1] > 0):
            reduced[index - RUN + 1 :] = 0.0
            break
    alive = reduced > 0
    if not alive.any():
        raise ValueError("no bin holds more than 1e-4: the density is too flat for the white-box rule")
    reduced[alive] += (1.0 - reduced.sum()) / alive.sum()
    return reduced

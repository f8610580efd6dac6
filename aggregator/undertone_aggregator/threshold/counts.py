"""Input of the threshold estimation: histograms of symbols and the channels that produced them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.levels import Rows, level_law, level_positions, weight_rows
from undertone_aggregator.threshold.channel import (
    Channel,
    CoarseChannel,
    MatrixChannel,
    Vector,
    Window,
    WindowChannel,
)


@dataclass(frozen=True)
class CohortCounts:
    """One round of the threshold cohort: its Square Wave mechanism with integer edges, and its histogram [cells].

    Raises ValueError for a mechanism without edges, a histogram of another length, or negative counts.
    """

    mechanism: Window
    counts: Sequence[int] | NDArray[np.int64]

    def __post_init__(self) -> None:
        edges = self.mechanism.edges
        if edges is None or len(edges) != self.mechanism.levels + 2:
            raise ValueError(f"there are {len(edges or ())} edges, expected levels + 2 = {self.mechanism.levels + 2}")
        _check_counts(self.counts, self.mechanism.cells)

    @property
    def edges(self) -> tuple[int, ...]:
        """The round's levels + 2 integer edges."""
        return tuple(self.mechanism.edges or ())

    @property
    def total(self) -> int:
        """Number of reports in this round."""
        return int(np.sum(self.counts))

    @property
    def epsilon(self) -> float:
        """ε of one report, ln(a/b)."""
        return float(np.log(self.mechanism.a / self.mechanism.b))

    def channel(self, grid: Sequence[int]) -> Channel:
        """Return the channel from the distribution over the cells of `grid` to this histogram. `grid` holds all inner
        edges.
        """
        window = WindowChannel(self.mechanism)
        starts = np.searchsorted(np.asarray(grid), self.edges[1:-1])
        return CoarseChannel(window, [0, *starts.tolist()], len(grid) - 1)


@dataclass(frozen=True)
class ReportCounts:
    """Reports of the report phase under one θ: each value min(x, θ) is randomly rounded to a level, then perturbed.

    `positions` [K + 1] are the levels in units of the reading (increasing, first <= 0, last >= θ). `rows` [K + 1,
    symbols] are the probabilities of the symbols. `counts` [symbols] is the histogram.
    """

    theta: int
    positions: Vector
    rows: Vector
    counts: Sequence[int] | NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.rows.shape[0] != len(self.positions) or np.any(np.diff(self.positions) <= 0):
            raise ValueError(
                f"positions has {len(self.positions)} numbers, expected {self.rows.shape[0]} that increase"
            )
        if self.positions[0] > 0 or self.positions[-1] < self.theta:
            raise ValueError(
                f"positions go from {self.positions[0]:g} to {self.positions[-1]:g}, expected 0 or less to"
                f" {self.theta} or more"
            )
        _check_counts(self.counts, self.rows.shape[1])

    @staticmethod
    def of(mechanism: Rows, theta: int, counts: Sequence[int] | NDArray[np.int64]) -> "ReportCounts":
        """Make the counts of a mechanism that has a row of weights for each level: window, Hybrid or table."""
        rows = weight_rows(mechanism)
        rows = rows / rows.sum(axis=1, keepdims=True)
        return ReportCounts(theta, level_positions(mechanism, theta), rows, counts)

    @property
    def total(self) -> int:
        """Number of reports."""
        return int(np.sum(self.counts))

    def channel(self, grid: Sequence[int]) -> MatrixChannel:
        """Return the channel from the distribution over the cells of `grid` to this histogram."""
        return MatrixChannel(self.rows.T @ level_law(self.positions, self.theta, grid))


def common_grid(rounds: Sequence[CohortCounts], bound: int) -> tuple[int, ...]:
    """Return increasing integers from 0 to bound + 1 that include every inner edge of the rounds.

    Raises ValueError if there are no rounds, or for an inner edge outside [1, bound].
    """
    if not rounds:
        raise ValueError("rounds is empty, expected at least one round")
    inner = {edge for asked in rounds for edge in asked.edges[1:-1]}
    if min(inner, default=1) < 1 or max(inner, default=1) > bound:
        raise ValueError(f"the inner edges go from {min(inner)} to {max(inner)}, expected 1 to {bound}")
    return (0, *sorted(inner), bound + 1)


def _check_counts(counts: Sequence[int] | NDArray[np.int64], cells: int) -> None:
    values = np.asarray(counts)
    if values.shape != (cells,):
        raise ValueError(f"counts has the shape {values.shape}, expected a histogram of {cells} cells")
    if np.any(values < 0):
        raise ValueError(f"counts contains {values.min()}, expected no negative number")

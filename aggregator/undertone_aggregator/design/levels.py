"""The levels of a mechanism in units of the reading, and how readings are spread over them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Rows(Protocol):
    """A report mechanism: `levels + 1` rows of integer weights over its symbols, and the readings they stand for."""

    @property
    def levels(self) -> int: ...

    def weights(self, level: int) -> list[int]: ...

    def value(self, level: int, theta: int) -> tuple[int, int]: ...


def level_positions(mechanism: Rows, theta: int) -> Vector:
    """The readings that a mechanism's levels stand for; shape [K + 1]."""
    values = [mechanism.value(level, theta) for level in range(mechanism.levels + 1)]
    return np.array([numerator / denominator for numerator, denominator in values])


def level_law(positions: Vector, theta: int, grid: Sequence[int]) -> Vector:
    """P(level k | reading uniform over the integers of cell i of `grid`); shape [K + 1, cells].

    Readings are truncated to [0, θ] and rounded at random between the `positions` [K + 1] beside them.
    """
    edges = np.asarray(grid, dtype=np.float64)
    beyond = _mean_part_above(edges, np.array([float(theta)]))
    above = _mean_part_above(edges, np.minimum(positions, theta)) - beyond
    step = np.diff(positions)[:, None]
    # share[k]: the mean part of the step from level k to k + 1 that min(x, θ) has climbed.
    share = (above[:-1] - above[1:]) / step
    law = np.zeros((len(positions), len(edges) - 1))
    law[:-1] -= share
    law[1:] += share
    law[0] += 1.0
    return law


def _mean_part_above(edges: Vector, points: Vector) -> Vector:
    """Mean over the integers x of each cell of (x - t)⁺; shapes edges [d + 1], points [c] → [c, d]."""
    low, high = edges[:-1], edges[1:] - 1.0
    t = points[:, None]
    first = np.maximum(low, np.floor(t) + 1.0)
    n = np.maximum(high - first + 1.0, 0.0)
    return np.asarray(n * ((first + high) / 2.0 - t) / (high - low + 1.0) * (n > 0))

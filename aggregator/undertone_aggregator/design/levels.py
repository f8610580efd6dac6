"""The levels of a mechanism in units of the reading, and the distribution of readings over them."""

import functools
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Rows(Protocol):
    """A report mechanism: `levels + 1` rows of integer weights over its symbols, and the readings that they
    represent.
    """

    @property
    def levels(self) -> int: ...

    def weights(self, level: int) -> list[int]: ...

    def value(self, level: int, theta: int) -> tuple[int, int]: ...


def weight_rows(mechanism: Rows) -> Vector:
    """Return the weights of a mechanism's symbols at each level; shape [K + 1, symbols].

    The array is cached, because a mechanism never changes, and is read-only.
    """
    return _weight_rows(cast(Any, mechanism))


@functools.lru_cache(maxsize=32)
def _weight_rows(mechanism: Any) -> Vector:
    rows = np.array([mechanism.weights(level) for level in range(mechanism.levels + 1)], dtype=np.float64)
    rows.flags.writeable = False
    return rows


def level_positions(mechanism: Rows, theta: int) -> Vector:
    """Return the readings that a mechanism's levels represent; shape [K + 1]."""
    values = [mechanism.value(level, theta) for level in range(mechanism.levels + 1)]
    return np.array([numerator / denominator for numerator, denominator in values])


def level_law(positions: Vector, theta: int, grid: Sequence[int]) -> Vector:
    """Return P(level k | reading uniform over the integers of cell i of `grid`); shape [K + 1, cells].

    Readings are truncated to [0, θ] and rounded at random to one of the two nearest `positions` [K + 1].
    """
    edges = np.asarray(grid, dtype=np.float64)
    beyond = _mean_part_above(edges, np.array([float(theta)]))
    above = _mean_part_above(edges, np.minimum(positions, theta)) - beyond
    step = np.diff(positions)[:, None]
    # share[k]: mean fraction of the step from level k to level k + 1 that lies below min(x, θ).
    share = (above[:-1] - above[1:]) / step
    law = np.zeros((len(positions), len(edges) - 1))
    law[:-1] -= share
    law[1:] += share
    law[0] += 1.0
    return law


def _mean_part_above(edges: Vector, points: Vector) -> Vector:
    """Return the mean of (x - t)⁺ over the integers x of each cell; shapes edges [d + 1], points [c] → [c, d]."""
    low, high = edges[:-1], edges[1:] - 1.0
    t = points[:, None]
    first = np.maximum(low, np.floor(t) + 1.0)
    n = np.maximum(high - first + 1.0, 0.0)
    return np.asarray(n * ((first + high) / 2.0 - t) / (high - low + 1.0) * (n > 0))

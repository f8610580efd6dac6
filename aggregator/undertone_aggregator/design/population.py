"""The variance of a mechanism averaged over a population of readings, as the threshold phase estimates it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from undertone_aggregator.design.levels import Vector, level_law, level_positions
from undertone_aggregator.design.mechanisms import Mechanism

_EVEN_CELLS = 64


@dataclass(frozen=True)
class Population:
    """Distribution of readings: mass ``density`` [d] on the integers of [edges[i], edges[i+1]), uniform within each
    cell.

    ``edges`` [d + 1].
    """

    density: Vector
    edges: Sequence[int]

    @staticmethod
    def even(theta: int) -> "Population":
        """Make a uniform distribution on [0, theta], for when nothing is known of the readings."""
        edges = np.unique(np.rint(np.linspace(0, theta + 1, _EVEN_CELLS + 1)).astype(np.int64))
        return Population(np.diff(edges) / (theta + 1.0), tuple(edges.tolist()))

    def above(self, low: int) -> "Population":
        """Return the distribution of max(reading - ``low``, 0)."""
        if not low:
            return self
        edges = np.asarray(self.edges, dtype=np.int64) - low
        first = int(np.searchsorted(edges, 1))
        if first == len(edges):
            return Population(np.ones(1), (0, 1))
        part = float(edges[first] - 1) / float(edges[first] - edges[first - 1]) if first else 0.0
        inside = self.density[first - 1] * part if first else 0.0
        # The cell that contains ``low`` keeps only its part above ``low``.
        below = float(self.density[: max(first - 1, 0)].sum()) + (self.density[first - 1] - inside if first else 0.0)
        cells = [(0, below), (1, inside)] if edges[first] > 1 else [(0, below + inside)]
        density = np.concatenate([[mass for _, mass in cells], self.density[first:]])
        return Population(density, (*(start for start, _ in cells), *edges[first:].tolist()))

    def levels(self, positions: Vector, theta: int) -> Vector:
        """Return P(level k) of readings that are truncated to [0, theta] and rounded at random between ``positions``.

        Shape [K + 1].
        """
        return np.asarray(level_law(positions, theta, self.edges) @ self.density)

    def variances(self, mechanism: Mechanism, theta: int) -> Vector:
        """Return for each cell the mean of Var(decoded report | min(x, theta)) over its readings x; [d], in units of
        (theta/2)².

        The random rounding to levels is included: E[E[Y² | level]] - E[min(x, theta)²].
        """
        law = level_law(level_positions(mechanism, theta), theta, self.edges)
        moments = _second_moments(mechanism)  # type: ignore[arg-type]  # mypy: a protocol need not be hashable
        return np.asarray(moments @ law - self._squares(theta) * (4.0 / (theta * theta)))

    def mean_variance(self, mechanism: Mechanism, theta: int) -> float:
        """Return ``variances``, averaged over the readings."""
        return float(self.density @ self.variances(mechanism, theta))

    def _squares(self, theta: int) -> Vector:
        """Return E[min(x, theta)²] in each cell."""
        edges = np.asarray(self.edges, dtype=np.float64)
        below = np.minimum(edges, theta + 1.0)
        # The sum of x² over the integers 0 to e - 1 is (e - 1) e (2e - 1) / 6.
        sums = np.diff((below - 1.0) * below * (2.0 * below - 1.0) / 6.0)
        above = np.diff(edges) - np.diff(below)
        return np.asarray((sums + above * theta * theta) / np.diff(edges))


@lru_cache(maxsize=16)
def _second_moments(mechanism: Mechanism) -> Vector:
    """Return E[Y² | level k] of decoded reports Y [K + 1], in units of (theta/2)², in which they are the same for every
    theta.

    They are computed in floating point, because fractions of such long integers are slow.
    """
    exact = ((*mechanism.variance(k, 2), *mechanism.value(k, 2)) for k in range(mechanism.levels + 1))
    return np.array([p / q + (r / s) ** 2 for p, q, r, s in exact])


class ReadingModel(Protocol):
    """The readings that a mechanism for [0, theta] receives: a `Population`, or `Blocks` scaled to [0, theta]."""

    def levels(self, positions: Vector, theta: int) -> Vector: ...

    def mean_variance(self, mechanism: Mechanism, theta: int) -> float: ...


@dataclass(frozen=True)
class Blocks:
    """Blocks of the day, each with its own range for one mechanism.

    ``parts``: (share of the slots, width of the range, readings minus the low end of the range) of each block. In means
    over the blocks, a block's weight is its share times its width squared, which is proportional to its noise variance.
    """

    parts: Sequence[tuple[float, int, Population]]

    def levels(self, positions: Vector, theta: int) -> Vector:
        """Return P(level k), with each block's readings scaled from its range to [0, theta]; shape [K + 1]."""
        return np.asarray(
            sum(share * readings.levels(positions * (width / theta), width) for share, width, readings in self._costs())
        )

    def mean_variance(self, mechanism: Mechanism, theta: int) -> float:
        """Return the mean of Var(decoded report), divided by the mean of (width/2)², over the blocks.

        The result does not depend on ``theta``.
        """
        return sum(share * readings.mean_variance(mechanism, width) for share, width, readings in self._costs())

    def _costs(self) -> list[tuple[float, int, Population]]:
        total = sum(share * width * width for share, width, _ in self.parts)
        return [(share * width * width / total, width, readings) for share, width, readings in self.parts]

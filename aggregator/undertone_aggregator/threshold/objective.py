"""ToPL's objective for θ (CCS 2021, Eq. 8) on a histogram density over integer edges.

MSE(θ) = E[J] V(θ) θ²/4 + E[J²] (E[(x - θ)⁺])². Here J is the number of reports that one query sums, and V is the
variance of the mechanism in use, in units of (θ/2)².
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.continuous import worst_hybrid_variance
from undertone_aggregator.threshold.channel import Vector

Integers = NDArray[np.int64]
Variance = Callable[[int], float]


@dataclass(frozen=True)
class Query:
    """Number J of reports that one query sums: its moments E[J] and E[J²]."""

    reports: float
    squared: float

    @staticmethod
    def fleet(n: int) -> "Query":
        """Make the query of one slot of `n` reporting devices: its moments are n and n²."""
        return Query(float(n), float(n) * float(n))

    @staticmethod
    def shown(n: int, *, turns: bool) -> "Query":
        """Return the query of one slot of n reporting devices as it is shown: filtered, with the excess added.

        The filter leaves about 1/3 of the noise's variance, or 1/9 if devices take turns, because there is more noise
        then. The model of the excess leaves about 1/3 of the square of the bias. θ depends only on the ratio of the two
        factors. So without turns the query of `fleet` gives the same θ.
        """
        return Query(float(n) / 3.0, float(n) * float(n)) if turns else Query.fleet(n)

    @staticmethod
    def paper(r: int, n: int = 1) -> "Query":
        """Make the query of a random range of up to `r` slots, with `n` reports in each slot.

        Its moments are n(r + 2)/3 and n²(r + 1)(r + 2)/6. In the paper each slot has one report. `r` = 1 is `fleet`.
        """
        return Query(n * (r + 2) / 3.0, float(n) * n * (r + 1) * (r + 2) / 6.0)

    @staticmethod
    def named(name: str, n: int, *, turns: bool) -> "Query":
        """Return the query that a plan names, for `n` reporting devices: "shown", "fleet" or "ranges:R".

        Raises ValueError for another name.
        """
        if name == "shown":
            return Query.shown(n, turns=turns)
        if name == "fleet":
            return Query.fleet(n)
        kind, _, longest = name.partition(":")
        if kind != "ranges":
            raise ValueError(f"unknown query {name!r}")
        return Query.paper(int(longest), n)


def constant_variance(epsilon: float) -> Variance:
    """Return the Hybrid's worst-case variance V(ε) as a function that has the same value at every θ."""
    value = worst_hybrid_variance(epsilon)
    return lambda _theta: value


def mean_excess(density: Vector, edges: Sequence[int], thetas: Integers) -> Vector:
    """Return E[(x - θ)⁺] for integer readings x, uniform over the integers of each bin [edges[i], edges[i+1]).

    Shapes: density [..., d], edges [d + 1], thetas [c] → [..., c]; in the unit of the edges. Exact.
    """
    return Excess(density, edges).above(thetas)


class Excess:
    """The function `mean_excess` of densities [..., d]. The part that does not depend on θ is computed once."""

    def __init__(self, density: Vector, edges: Sequence[int]) -> None:
        edge = np.asarray(edges, dtype=np.float64)
        self._density, self._edge = density, edge
        self._masses = _sums_from(density)
        self._moments = _sums_from(density * ((edge[:-1] + edge[1:] - 1.0) / 2.0))

    def above(self, thetas: Integers) -> Vector:
        """Return E[(x - θ)⁺] for each θ; [c] → [..., c]."""
        edge = self._edge
        width = np.diff(edge)
        t = np.asarray(thetas, dtype=np.float64)
        cell = np.searchsorted(edge, t, side="right") - 1
        inside = np.clip(cell, 0, len(width) - 1)
        above = np.where(cell < 0, 0, np.minimum(cell + 1, len(width)))
        full = np.take(self._moments, above, axis=-1)
        full -= t * np.take(self._masses, above, axis=-1)
        rest = edge[inside + 1] - 1.0 - t
        share = np.where(cell == inside, rest * (rest + 1.0) / (2.0 * width[inside]), 0.0)
        full += np.take(self._density, inside, axis=-1) * share
        return np.asarray(full)


def _sums_from(values: Vector) -> Vector:
    """Return Σ_{i >= k} values_i for k = 0..d; shape [..., d] → [..., d + 1]."""
    out: Vector = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values[..., ::-1], axis=-1, out=out[..., -2::-1])
    return out


def even_thetas(bound: int, count: int = 1024) -> Integers:
    """Return `count` equally spaced thresholds on (0, bound], as distinct integers >= 1; shape [<= count]."""
    if bound < 1:
        raise ValueError(f"bound is {bound}, expected at least 1")
    grid = np.rint(np.arange(1, count + 1) * (bound / count)).astype(np.int64)
    return np.unique(np.clip(grid, 1, bound))


def mean_square_error(excess: Vector, thetas: Integers, query: Query, variance: Variance) -> Vector:
    """Return the mean square error by ToPL's Eq. 8 at each θ; `excess` = E[(x - θ)⁺], θ on its last axis."""
    noise = np.array([variance(int(t)) * float(t) * float(t) / 4.0 for t in thetas])
    errors = np.square(excess)
    errors *= query.squared
    errors += query.reports * noise
    return np.asarray(errors)


def best_threshold(
    density: Vector, edges: Sequence[int], thetas: Integers, query: Query, variance: Variance
) -> tuple[int, float]:
    """Return the candidate of least MSE and that MSE (the smaller θ on ties)."""
    errors = mean_square_error(mean_excess(density, edges, thetas), thetas, query, variance)
    index = int(np.argmin(errors))
    return int(thetas[index]), float(errors[index])

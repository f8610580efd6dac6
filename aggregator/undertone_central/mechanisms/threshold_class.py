"""A practical pure-ε sanitizer for thresholds: noisy counts down a tree over the domain, only where items are.

The domain [0, B] is divided into 16 parts, recursively, on L levels. Changing one item changes two counts of each level
by one, so noise Lap(2L/ε) per count gives ε in total. Only noisy counts decide which nodes are divided. Everything
after the noisy counts (children sum to their parent, no negative count, items spread evenly within a leaf) is
post-processing.
"""

from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_central.mechanisms.budget import check_bound
from undertone_central.noise.entropy import Bytes
from undertone_central.noise.laplace import Integers, discrete_laplace

FANOUT = 16
# A node is divided if its count exceeds this many standard deviations of a count's noise.
WORTH_DIVIDING = 3.0

Real = NDArray[np.float64]


class ThresholdSanitizer:
    """Makes synthetic integers in [0, ``bound``]. The share below any threshold is near that of the original items."""

    def __init__(self, bound: int, epsilon: Fraction) -> None:
        self._bound = check_bound(bound)
        self._epsilon = epsilon
        self._levels = 1
        while FANOUT**self._levels <= bound:
            self._levels += 1
        self._law = discrete_laplace(2 * self._levels / epsilon)

    @property
    def guarantee(self) -> str:
        """The guarantee in words."""
        return f"pure ε = {float(self._epsilon):g} per value"

    def deviation(self, blocks: float = 1) -> float:
        """Upper bound of the standard deviation, in items, of the mean count below any threshold: sqrt(L v b/4/k).

        k is the number of ``blocks``, L the number of levels, v the variance of a count's noise, and b = 16 the number
        of a node's children. On each level, the sum of c children that are made to sum to their parent has the variance
        v c (1 - c/b) <= v b/4.
        """
        return sqrt(self._levels * self._law.variance * FANOUT / 4 / blocks)

    def sanitize(self, items: Integers, source: Bytes) -> Integers:
        """Return synthetic items, as many as ``items`` has, ascending."""
        ordered = np.sort(items)
        edges, masses = self._divide(ordered, 0, self._levels, float(len(items)), source)
        edge = np.concatenate([edges, [self._bound + 1]]).astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(masses)])
        places = np.interp(np.arange(len(items)) + 0.5, below * (len(items) / max(below[-1], 1e-9)), edge)
        return np.asarray(np.clip(np.floor(places).astype(np.int64), 0, self._bound))

    def _divide(self, ordered: Integers, start: int, level: int, mass: float, source: Bytes) -> tuple[Integers, Real]:
        """Return left edges and masses of the leaves below a node of 16^level values from ``start`` on."""
        width = FANOUT ** (level - 1)
        edges = start + width * np.arange(FANOUT + 1)
        counts = np.diff(np.searchsorted(ordered, edges))
        # A child that begins beyond the bound is empty for all data, so it is left out.
        inside = edges[:-1] <= self._bound
        noisy = (counts + self._law.sample(source, FANOUT))[inside].astype(np.float64)
        masses = onto_simplex(noisy, mass)
        if level == 1:
            return edges[:-1][inside], masses
        parts = []
        for edge, part in zip(edges[:-1][inside].tolist(), masses.tolist(), strict=True):
            if part > WORTH_DIVIDING * sqrt(self._law.variance):
                parts.append(self._divide(ordered, edge, level - 1, part, source))
            else:
                parts.append((np.array([edge]), np.array([part])))
        return np.concatenate([e for e, _ in parts]), np.concatenate([m for _, m in parts])


def onto_simplex(x: Real, total: float) -> Real:
    """Return the nearest point (in Euclidean distance) that has no negative coordinate and whose coordinates add up to
    ``total``.
    """
    descending = np.sort(x)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(x) + 1)
    shift = excess[np.flatnonzero(descending > excess)[-1]] if total > 0 else np.inf
    return np.maximum(x - shift, 0.0)

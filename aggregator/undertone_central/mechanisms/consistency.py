"""Consistent trees: every node equals the sum of its children, and is as near as possible to its own noisy value.

A node of height 1 is a leaf; one of height j has b children of height j - 1. Each rule has two passes. The ``up`` pass
computes a few integers per node, called its statistic. The ``down`` pass gives integers whose sums are exact. Both
rules commute with adding a consistent integer tree: making the noise consistent and then adding the true values is the
same as making the noisy tree consistent. Therefore a stream can be published leaf by leaf.

Values are rounded to integers along the children's cumulative sums. So rounding errors do not add up along a range.
"""

from typing import Protocol

import numpy as np

from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

# A draw exceeds this multiple of its scale with probability e^-64. The integer type must have room for such a draw.
_REACH = 64


class Rule(Protocol):
    """A rule that makes trees of fan-out b consistent."""

    def leaves(self, noisy: Integers) -> Integers:
        """Return the statistic of n leaves with these noisy values: [n] → [n, 1]."""
        ...

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """Return the statistic of n nodes from their noisy values [n] and their children's statistic [n, b, k]."""
        ...

    def root(self, statistic: Integers, height: int) -> Integers:
        """Return the consistent values [n] of nodes without a parent."""
        ...

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """Return the values [n, b] of the children of n nodes with these values, from the children's statistic [n, b,
        k].
        """
        ...


class LeastSquares:
    """Rule of least squares, min Σ (h_u - y_u)²: Hay et al. (PVLDB 2010), Eqs. 10 and 11 of ToPS, in integers.

    With [j] = 1 + b + … + b^(j-1) and Z_u = [j] z_u, Eq. 10 is Z_u = b^(j-1) y_u + Σ Z_child. Raises Invalid if noise
    of ``scale`` on that many levels does not fit in 64 bits.
    """

    def __init__(self, fanout: int, levels: int, scale: float) -> None:
        if _REACH * scale * repunit(fanout, levels) * 4 * fanout**2 >= 2.0**63:
            raise Invalid(
                f"noise of scale {scale:g} on {levels} levels of fan-out {fanout} does not fit in 64 bits: choose a"
                " larger epsilon or a smaller span"
            )
        self._fanout = fanout

    def leaves(self, noisy: Integers) -> Integers:
        """Return Z = y; see `Rule.leaves`."""
        return noisy[:, None]

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """Return Z = b^(j-1) y + Σ Z_child; see `Rule.up`."""
        statistic: Integers = noisy * self._fanout ** (height - 1) + children[:, :, 0].sum(axis=1)
        return statistic[:, None]

    def root(self, statistic: Integers, height: int) -> Integers:
        """Return h = Z/[j]; see `Rule.root`."""
        return rounded(statistic[:, 0], repunit(self._fanout, height))

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """Return h_c = z_c + (h - Σ z)/b; see `Rule.down`."""
        below = repunit(self._fanout, height - 1)
        cumulative = np.cumsum(children[:, :, 0], axis=1)
        rest = below * values - cumulative[:, -1]
        target = self._fanout * cumulative + np.arange(1, self._fanout + 1) * rest[:, None]
        return np.diff(rounded(target, self._fanout * below), axis=1, prepend=0)


class LeastAbsolute:
    """Rule of least absolute deviation, min Σ |h_u - y_u|, for users for whom absolute errors count.

    The least sum below a node is a convex function of the node's value, with slopes -j, -j + 2, …, j. Its j break
    points are the statistic. The children's functions are added break point by break point (infimal convolution), and
    the node's own |h - y| inserts y. Raises Invalid if noise of ``scale`` on that many levels does not fit in 53 bits.
    """

    def __init__(self, fanout: int, levels: int, scale: float) -> None:
        if _REACH * scale * fanout**levels >= 2.0**53:
            raise Invalid(
                f"noise of scale {scale:g} on {levels} levels of fan-out {fanout} does not fit in 53 bits: choose a"
                " larger epsilon or a smaller span"
            )
        self._fanout = fanout

    def leaves(self, noisy: Integers) -> Integers:
        """Return the break point of |h - y|; see `Rule.leaves`."""
        return noisy[:, None]

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """Return the sums of the children's break points, with y inserted; see `Rule.up`."""
        return np.sort(np.concatenate([children.sum(axis=1), noisy[:, None]], axis=1), axis=1)

    def root(self, statistic: Integers, height: int) -> Integers:
        """Return the median break point, or the middle of the two median ones; see `Rule.root`."""
        return rounded(statistic[:, (height - 1) // 2] + statistic[:, height // 2], 2)

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """Give each child a value between two of its break points; see `Rule.down`.

        The parent's value lies between two sums of the children's break points. It divides the interval between them in
        some ratio. The value of each child divides the interval between its two break points in the same ratio.
        """
        sums = children.sum(axis=1)
        count = sums.shape[1]
        cell = (values[:, None] >= sums).sum(axis=1)
        row = np.arange(len(values))
        low, high = np.maximum(cell - 1, 0), np.minimum(cell, count - 1)
        start = np.cumsum(children[row, :, low], axis=1)
        length = np.cumsum(children[row, :, high] - children[row, :, low], axis=1)
        # If the parent's value lies outside all sums of break points, or the two sums around it are equal, its
        # difference from the nearest sum is divided equally among the children.
        equal = np.broadcast_to(np.arange(1, self._fanout + 1), length.shape)
        length = np.where(length[:, -1:] == 0, equal, length)
        # Floating point is safe here. Both factors of the product depend only on differences of values, which stay the
        # same if true values are added to the tree. So the product's rounding does not depend on the true values.
        over = np.rint((values - start[:, -1])[:, None] * (length / length[:, -1:])).astype(np.int64)
        return np.diff(start + over, axis=1, prepend=0)


def repunit(fanout: int, height: int) -> int:
    """Return [j] = 1 + b + … + b^(j-1): the number of nodes of a tree of that height."""
    return int(fanout**height - 1) // (fanout - 1)


def rounded(numerator: Integers, denominator: int) -> Integers:
    """Return floor(numerator/denominator + 1/2).

    This commutes with adding integers; rounding halves to even does not.
    """
    return (2 * numerator + denominator) // (2 * denominator)

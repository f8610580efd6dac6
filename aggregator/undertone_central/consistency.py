"""Consistent trees: every node the sum of its children, as near as possible to independent noisy nodes.

A node of height 1 is a leaf; one of height j has b children of height j - 1. Each rule has an ``up`` pass that keeps
a few integers per node (its statistic) and a ``down`` pass that gives integers whose sums are exact. Both rules
commute with adding a consistent integer tree: making the noise consistent and then adding the true values is the same
as making the noisy tree consistent. That is why a stream can be published leaf by leaf.

Rounding to integers runs along the children's cumulative sums: it moves a node by less than 1 per level above it, and
does not add up along a range.
"""

from typing import Protocol

import numpy as np

from undertone_central.noise import Integers
from undertone_shared.errors import Invalid

# What a draw reaches with probability e^-64 times its scale: room must be left for it.
_REACH = 64


class Rule(Protocol):
    """How trees of fan-out b are made consistent."""

    def leaves(self, noisy: Integers) -> Integers:
        """The statistic of n leaves with these noisy values: [n] → [n, 1]."""
        ...

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """The statistic of n nodes from their noisy values [n] and their children's statistic [n, b, k]."""
        ...

    def root(self, statistic: Integers, height: int) -> Integers:
        """The values [n] of nodes without a parent."""
        ...

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """The values [n, b] of the children of n nodes with these values; children's statistic [n, b, k]."""
        ...


class LeastSquares:
    """The least Σ (h_u - y_u)²: Hay et al. (PVLDB 2010), Eqs. 10 and 11 of ToPS, in integers.

    With [j] = 1 + b + … + b^(j-1) and Z_u = [j] z_u, Eq. 10 is Z_u = b^(j-1) y_u + Σ Z_child.
    Raises Invalid where noise of ``scale`` on that many levels does not fit in 64 bits.
    """

    def __init__(self, fanout: int, levels: int, scale: float) -> None:
        if _REACH * scale * repunit(fanout, levels) * 4 * fanout**2 >= 2.0**63:
            raise Invalid(f"noise of scale {scale:g} on {levels} levels of fan-out {fanout} does not fit in 64 bits")
        self._fanout = fanout

    def leaves(self, noisy: Integers) -> Integers:
        """Z = y."""
        return noisy[:, None]

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """Z = b^(j-1) y + Σ Z_child."""
        statistic: Integers = noisy * self._fanout ** (height - 1) + children[:, :, 0].sum(axis=1)
        return statistic[:, None]

    def root(self, statistic: Integers, height: int) -> Integers:
        """h = Z/[j]."""
        return rounded(statistic[:, 0], repunit(self._fanout, height))

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """h_c = z_c + (h - Σ z)/b."""
        below = repunit(self._fanout, height - 1)
        cumulative = np.cumsum(children[:, :, 0], axis=1)
        rest = below * values - cumulative[:, -1]
        target = self._fanout * cumulative + np.arange(1, self._fanout + 1) * rest[:, None]
        return np.diff(rounded(target, self._fanout * below), axis=1, prepend=0)


class LeastAbsolute:
    """The least Σ |h_u - y_u|, for those who judge by absolute error.

    The least sum below a node is a convex function of its value, of slopes -j, -j + 2, …, j: its j break points are
    the statistic. Children add break point by break point (infimal convolution), the node's own |h - y| inserts y.
    Raises Invalid where noise of ``scale`` on that many levels does not fit in 53 bits.
    """

    def __init__(self, fanout: int, levels: int, scale: float) -> None:
        if _REACH * scale * fanout**levels >= 2.0**53:
            raise Invalid(f"noise of scale {scale:g} on {levels} levels of fan-out {fanout} does not fit in 53 bits")
        self._fanout = fanout

    def leaves(self, noisy: Integers) -> Integers:
        """The break point of |h - y|."""
        return noisy[:, None]

    def up(self, noisy: Integers, children: Integers, height: int) -> Integers:
        """The break points of all children, added, and y among them."""
        return np.sort(np.concatenate([children.sum(axis=1), noisy[:, None]], axis=1), axis=1)

    def root(self, statistic: Integers, height: int) -> Integers:
        """The median break point; halfway between the two where there are two."""
        return rounded(statistic[:, (height - 1) // 2] + statistic[:, height // 2], 2)

    def down(self, values: Integers, children: Integers, height: int) -> Integers:
        """Each child at the same place between its break points as the parent between the sums of them."""
        sums = children.sum(axis=1)
        count = sums.shape[1]
        cell = (values[:, None] >= sums).sum(axis=1)
        row = np.arange(len(values))
        low, high = np.maximum(cell - 1, 0), np.minimum(cell, count - 1)
        start = np.cumsum(children[row, :, low], axis=1)
        length = np.cumsum(children[row, :, high] - children[row, :, low], axis=1)
        # Outside all break points, and where they coincide, the children share the rest equally.
        equal = np.broadcast_to(np.arange(1, self._fanout + 1), length.shape)
        length = np.where(length[:, -1:] == 0, equal, length)
        # Doubles are harmless here: true values added to the tree change neither factor.
        over = np.rint((values - start[:, -1])[:, None] * (length / length[:, -1:])).astype(np.int64)
        return np.diff(start + over, axis=1, prepend=0)


def repunit(fanout: int, height: int) -> int:
    """[j] = 1 + b + … + b^(j-1): the nodes of a tree of that height."""
    return int(fanout**height - 1) // (fanout - 1)


def rounded(numerator: Integers, denominator: int) -> Integers:
    """floor(x + 1/2): it commutes with adding integers, as round-half-even does not."""
    return (2 * numerator + denominator) // (2 * denominator)

"""Exact variances of range sums over hierarchies, in units of one node's noise variance; no data is needed."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Node = tuple[int, int]
# Number of random ranges over which an average is taken.
_SAMPLE = 256


def cover(first: int, end: int, fanout: int, levels: int) -> list[Node]:
    """Return the fewest nodes (height, number) that together have the leaves [first, end).

    The highest nodes have fanout^(levels-1) leaves.
    """
    nodes: list[Node] = []
    for height in range(1, levels):
        while first < end and first % fanout:
            nodes.append((height, first))
            first += 1
        while first < end and end % fanout:
            end -= 1
            nodes.append((height, end))
        first, end = first // fanout, end // fanout
    return nodes + [(levels, number) for number in range(first, end)]


def cover_size(first: int, end: int, fanout: int, levels: int) -> int:
    """Return len(cover(…)): the variance of a range sum over independent nodes."""
    size = 0
    for _ in range(1, levels):
        if first >= end:
            return size
        up, down = -(-first // fanout), end // fanout
        if up > down:
            return size + end - first
        size += up * fanout - first + end - down * fanout
        first, end = up, down
    return size + max(end - first, 0)


def consistent_variance(first: int, end: int, fanout: int, levels: int) -> float:
    """Return the variance of the sum of leaves [first, end) after least-squares consistency.

    The part of the sum that lies below a node is α h + W, where h is the node's consistent value, and W is uncorrelated
    with all values above the node. If this part is α_c h_c + W_c for each of the node's b children c, then α = Σ α_c/b
    and Var W = v_(j-1) (Σ α_c² - (Σ α_c)²/b) + Σ Var W_c. Here j is the node's height, and v_j = (b^j - b^(j-1))/(b^j -
    1) the variance of a node's value that uses its own noisy value and all below it (z of Eq. 10 of ToPS).
    """
    share2, _, rest = _partials(first, end, fanout, levels + 1)
    return share2 * _bottom_up(fanout, levels) + rest


def _bottom_up(fanout: int, height: int) -> float:
    """Return v_j of `consistent_variance` for a node of height j = ``height``."""
    return float((fanout**height - fanout ** (height - 1)) / (fanout**height - 1))


def _partials(first: int, end: int, fanout: int, height: int) -> tuple[float, float, float]:
    """Return Σ α_c², Σ α_c and Σ Var W_c of `consistent_variance` over the children c of a node.

    [first, end) is the range of leaves that are summed, counted from the node's first leaf.
    """
    width = fanout ** (height - 2)
    low, high = -(-first // width), end // width
    if low > high:
        # The range lies within the leaves of a single child node.
        parts = [_partial(first - high * width, end - high * width, fanout, height - 1)]
        full = 0
    else:
        full = high - low
        parts = []
        if low * width > first:
            parts.append(_partial(first - (low - 1) * width, width, fanout, height - 1))
        if end > high * width:
            parts.append(_partial(0, end - high * width, fanout, height - 1))
    return full + sum(a * a for a, _ in parts), full + sum(a for a, _ in parts), sum(w for _, w in parts)


def _partial(first: int, end: int, fanout: int, height: int) -> tuple[float, float]:
    """Return α and Var W of `consistent_variance` for a node, if its leaves [first, end) are summed."""
    squares, shares, rest = _partials(first, end, fanout, height)
    return shares / fanout, _bottom_up(fanout, height - 1) * (squares - shares * shares / fanout) + rest


@cache
def average_variance(fanout: int, levels: int, *, consistent: bool) -> float:
    """Return the mean variance of a random range within fanout^levels leaves.

    It is the mean over 256 fixed pairs of ends, which are equidistributed.
    """
    ends = np.sort(_equidistributed(_SAMPLE) * fanout**levels, axis=1).astype(np.int64)
    each = consistent_variance if consistent else cover_size
    return float(np.mean([each(int(a), int(b), fanout, levels) for a, b in ends]))


def _equidistributed(n: int) -> NDArray[np.float64]:
    """Return points of the plane's R2 sequence (Roberts): 1/2 + i (1/g, 1/g²) modulo 1, g³ = g + 1; shape [n, 2]."""
    g = 1.32471795724474602596
    points: NDArray[np.float64] = (0.5 + np.arange(1, n + 1)[:, None] * np.array([1 / g, 1 / g**2])) % 1.0
    return points

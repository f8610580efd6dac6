"""Integer bin edges for the cohort's rounds: logarithmic first, then linear on the range that matters."""

from collections.abc import Sequence

import numpy as np

from undertone_aggregator.threshold.channel import Vector

OCTAVES = 16
MAX_EDGES = 257
_ABOVE = 8


def first_edges(bound: int, cells: int = 128) -> tuple[int, ...]:
    """Return the edges of the first round: [0, bound] in cells of equal width in log x over 16 octaves below the bound.

    The edges are strictly increasing integers; the first is 0, the last is bound + 1. Equal edges are merged, so there
    may be fewer cells than asked for. Raises ValueError for bound < 2, or cells outside 2..256.
    """
    _check(bound, cells)
    inner = (bound + 1) * np.exp2(-OCTAVES * (1.0 - np.arange(1, cells) / cells))
    return _distinct(inner, bound)


def linear_edges(bound: int, cells: int = 128) -> tuple[int, ...]:
    """Return the edges of a round with cells of equal width on [0, bound], as in ToPL.

    The edges are strictly increasing integers; the first is 0, the last is bound + 1. Raises ValueError as
    `first_edges` does.
    """
    _check(bound, cells)
    return _distinct((bound + 1) * np.arange(1, cells) / cells, bound)


def zoomed_edges(low: int, high: int, bound: int, cells: int = 128) -> tuple[int, ...]:
    """Return the edges of a later round: a cell below `low`, linear cells on [low, high], logarithmic cells above.

    About one cell in eight, and at least three if there are enough cells, lie above `high`. Few readings are expected
    there, but a group of readings far above the range must show where it is. The edges are strictly increasing
    integers; the first is 0, the last is bound + 1. There are at least two cells. Raises ValueError for low > high,
    bound < 2, or cells outside 2..256.
    """
    _check(bound, cells)
    if low > high:
        raise ValueError(f"low is {low}, expected at most high = {high}")
    inside = min(cells - 1 - cells // _ABOVE, high - low + 1)
    above = max(min(inside // (_ABOVE - 1), cells // _ABOVE), min(3, cells - 1 - inside))
    linear = np.linspace(low, high, inside) if inside > 1 else np.array([float(high)])
    return _distinct(np.append(linear, np.geomspace(high, bound, above + 2)[1:-1]), bound)


def quantile(density: Vector, edges: Sequence[int], share: float) -> int:
    """Return the smallest integer x with P(reading <= x) >= share. Readings are taken as uniform inside each bin.

    Raises ValueError for a share outside (0, 1].
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share is {share}, expected a number above 0 and up to 1")
    below = np.cumsum(density)
    cell = min(int(np.searchsorted(below, share * below[-1])), len(density) - 1)
    before = float(below[cell] - density[cell])
    width = edges[cell + 1] - edges[cell]
    part = (share * float(below[-1]) - before) / float(density[cell]) if density[cell] > 0 else 1.0
    steps = int(np.ceil(min(max(part, 0.0), 1.0) * width - 1e-9))
    return int(edges[cell]) + max(steps, 1) - 1


def _distinct(inner: Vector, bound: int) -> tuple[int, ...]:
    rounded = np.unique(np.clip(np.rint(inner).astype(np.int64), 1, bound))
    return (0, *(int(edge) for edge in rounded), bound + 1)


def _check(bound: int, cells: int) -> None:
    if bound < 2:
        raise ValueError(f"bound is {bound}, expected at least 2")
    if not 2 <= cells <= MAX_EDGES - 1:
        raise ValueError(f"cells is {cells}, expected 2 to {MAX_EDGES - 1}")

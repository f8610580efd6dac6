"""Range queries over a release: sums over [first, end) of the stream's values, each with a standard error.

They need only public input: the release's parameters and its numbers. The standard error covers the noise: exactly, but
approximately for monotone releases and for consistency by least absolute deviation. For a smoothed stream it also
covers the prediction error inside a block that the range cuts, which is estimated from the changes of the release's own
block sums. It does not cover truncation at θ: sums are those of truncated values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import hypot, sqrt
from typing import Any

import numpy as np

from undertone_central.mechanisms.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.mechanisms.factorisation import SquareRoot
from undertone_central.mechanisms.hierarchy import node_scale
from undertone_central.mechanisms.k_ary import KAry
from undertone_central.mechanisms.sanitizer import CLASSES
from undertone_central.mechanisms.unbounded import HybridCounter, Unbounded
from undertone_central.mechanisms.variance import consistent_variance, cover
from undertone_central.noise.laplace import Integers, discrete_laplace
from undertone_shared.errors import Invalid

Parameters = dict[str, Any]


@dataclass(frozen=True)
class RangeSum:
    """The sum over [first, end) and its standard error."""

    first: int
    end: int
    value: float
    standard_error: float


@dataclass(frozen=True)
class Piece:
    """A part of a release under one θ: the position in the stream of its first value, and its numbers in order.

    In a release of values, blocks of ``group`` values are the leaves of a hierarchy, which has ``levels`` levels and
    the fan-out ``fanout``.
    """

    first: int
    theta: int
    numbers: Integers
    group: int = 1
    fanout: int = 2
    levels: int = 1


def range_sum(parameters: Parameters, pieces: Sequence[Piece], first: int, end: int) -> RangeSum:
    """Return the sum over a range.

    Raises Invalid for a release of synthetic items, and for a range that is empty or not wholly released; then the
    message names the ranges that are released.
    """
    if not 0 <= first < end:
        raise Invalid(f"the range is {first}:{end}, expected FIRST:END with 0 <= FIRST < END")
    kind = parameters["released"]
    if kind == "items":
        raise Invalid("a release of synthetic items shows shares of the values, and no sums over time")
    value, variance, at = 0.0, 0.0, first
    for piece in pieces:
        length = _length(parameters, piece)
        if piece.first <= at < end and at < piece.first + length:
            stop = min(end, piece.first + length)
            part, its_variance = _SUMS[kind](parameters, piece, at - piece.first, stop - piece.first)
            value, variance, at = value + part, variance + its_variance, stop
    if at < end:
        spans = ", ".join(f"{p.first}:{p.first + _length(parameters, p)}" for p in pieces) or "nothing"
        raise Invalid(f"the range {first}:{end} is not released in full: released so far: {spans}")
    return RangeSum(first, end, value, sqrt(variance))


def share_of(parameters: Parameters, items: Integers, x: int) -> tuple[float, float]:
    """Return a share of a sanitized stream's values, and an upper bound of its standard error.

    It is the share of values that are at most x. If the release is for points, it is the share of values equal to x.
    Raises Invalid before the first block.
    """
    if not len(items):
        raise Invalid("there is no item yet: a block must be complete first")
    share = float(np.mean(items == x if parameters["concepts"] == "points" else items <= x))
    return share, share_error(parameters, len(items), share)


def share_error(parameters: Parameters, items: int, share: float) -> float:
    """Return an upper bound of the standard error of a share that ``items`` synthetic items show."""
    sampled = parameters["kept_items"]
    sanitizer = CLASSES[parameters["concepts"]](parameters["bound"], Fraction(parameters["sanitizing_epsilon"]))
    blocks = items / sampled
    sampling = share * (1 - share) / sampled if sampled < parameters["block"] else 0.0
    return hypot(sanitizer.deviation(blocks) / sampled, sqrt(sampling / blocks))


def make_counter(parameters: Parameters) -> Counter:
    """Make a counter with these public parameters. Raises Invalid for an unknown mechanism."""
    bound, epsilon = parameters["bound"], Fraction(parameters["epsilon"])
    horizon = parameters.get("horizon", 1)
    makers: dict[str, Callable[[], Counter]] = {
        "simple-1": lambda: Simple1(bound, epsilon, horizon),
        "simple-2": lambda: Simple2(bound, epsilon),
        "two-level": lambda: TwoLevel(bound, epsilon, horizon, block=parameters["block"]),
        "binary": lambda: Binary(bound, epsilon, horizon),
        "k-ary": lambda: KAry(bound, epsilon, horizon, fanout=parameters["fanout"]),
        "unbounded": lambda: Unbounded(bound, epsilon),
        "hybrid": lambda: HybridCounter(bound, epsilon),
        "square-root": lambda: SquareRoot(bound, epsilon, horizon, delta=Fraction(parameters["delta"])),
    }
    if parameters["mechanism"] not in makers:
        raise Invalid(f"mechanism is {parameters['mechanism']!r}, expected one of {', '.join(makers)}")
    return makers[parameters["mechanism"]]()


def _length(parameters: Parameters, piece: Piece) -> int:
    """Return how many of the stream's values a piece covers."""
    if parameters["released"] != "nodes":
        return len(piece.numbers)
    # Each leaf releases the nodes that it completes. Find the largest number of leaves that release no more nodes than
    # the piece has numbers.
    low, high = 0, len(piece.numbers)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _nodes_before(parameters, middle) <= len(piece.numbers) else (low, middle - 1)
    return low


def _nodes_before(parameters: Parameters, leaves: int) -> int:
    return sum(leaves // parameters["fanout"] ** h for h in range(parameters["levels"]))


def _node_variance(parameters: Parameters, theta: int, levels: int) -> float:
    epsilon = Fraction(parameters["publishing_epsilon"])
    return discrete_laplace(node_scale(theta, levels, epsilon)).variance


def _of_values(parameters: Parameters, piece: Piece, first: int, end: int) -> tuple[float, float]:
    g = piece.group
    noise = _node_variance(parameters, piece.theta, piece.levels)
    whole = consistent_variance(first // g, end // g, piece.fanout, piece.levels) * noise
    total = float(piece.numbers[first:end].sum())
    cuts = [(end - first) / g] if first // g == end // g else [first % g / g, end % g / g]
    return total, whole + sum(cut * cut for cut in cuts) * _prediction_error(piece, g)


def _prediction_error(piece: Piece, g: int) -> float:
    """Return the mean squared change from one released block sum to the next; 0 for blocks of one value.

    A single block shows no change. Then the result is (gθ/6)², which Eq. 7 of ToPS assumes.
    """
    if g == 1:
        return 0.0
    blocks = piece.numbers[: len(piece.numbers) // g * g].reshape(-1, g).sum(axis=1)
    return float(np.mean(np.diff(blocks) ** 2.0)) if len(blocks) > 1 else (g * piece.theta / 6) ** 2


def _of_counts(parameters: Parameters, piece: Piece, first: int, end: int) -> tuple[float, float]:
    before = int(piece.numbers[first - 1]) if first else 0
    return float(int(piece.numbers[end - 1]) - before), make_counter(parameters).variance(first, end)


def _of_nodes(parameters: Parameters, piece: Piece, first: int, end: int) -> tuple[float, float]:
    fanout, nodes = parameters["fanout"], cover(first, end, parameters["fanout"], parameters["levels"])
    places = [_nodes_before(parameters, (i + 1) * fanout ** (h - 1) - 1) + h - 1 for h, i in nodes]
    noise = _node_variance(parameters, piece.theta, parameters["levels"])
    return float(piece.numbers[places].sum()), len(nodes) * noise


_SUMS: dict[str, Callable[[Parameters, Piece, int, int], tuple[float, float]]] = {
    "values": _of_values,
    "counts": _of_counts,
    "nodes": _of_nodes,
}

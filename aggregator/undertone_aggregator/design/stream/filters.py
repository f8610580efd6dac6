"""Filters for streams: the closed form's best share r, the exact optimum of r, and filters with several taps.

All filters are stationary: every release has the same noise variance, `Stationary.variance` at sensitivity 1. A device
can check only the closed form; the other filters serve the planner and studies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.schedule import Recurrence, Recurrences, check_length, check_slew, stationary
from undertone_aggregator.design.stream.sensitivity import exact, grid
from undertone_shared.errors import Invalid

# Taps are multiples of 2^-TAP_BITS, which are fine enough for the optimum.
TAP_BITS = 10
LARGEST_TAPS = 4


@dataclass(frozen=True)
class Stationary:
    """A filter of constant ``taps``; its noise is stationary.

    ``squared``: the squared sensitivity S² of the stream if the noise that each report adds has variance 1 (σ = 1).
    ``variance``: γ_0 S², the variance of a release if the noise is scaled to S = 1; γ_0 is that variance at σ = 1.
    """

    taps: tuple[Fraction, ...]
    squared: Fraction
    variance: Fraction


def closed_form(r: Fraction, slew: Fraction, slots: int, chains: int = 1) -> Fraction:
    """Return the bound of σ²S² for l ``slots`` in at most m ``chains`` of constant share r and stationary start.

    It is m (2(1-r) - 2(1-r)² - 4C²r) + l ((1-r)² + 4C²r), with C the ``slew`` and m = 1 if the first bracket is not
    positive, so that a second chain never lowers the bound.
    """
    gap = 1 - r
    start = 2 * gap - 2 * gap * gap - 4 * slew * slew * r
    return (chains if start > 0 else 1) * start + slots * (gap * gap + 4 * slew * slew * r)


@lru_cache(maxsize=256)
def best_share(slew: Fraction, slots: int, chains: int = 1, bits: int = 8) -> Fraction:
    """Return the r in multiples of 2^-bits with the least release variance ``closed_form`` / (1 - r²).

    Raises Invalid.
    """
    slew, slots = check_slew(slew), check_length(slots)
    if not 1 <= chains <= slots:
        raise Invalid(f"chains is {chains}, expected 1 to slots = {slots}")
    shares = [Fraction(i, 1 << bits) for i in range(1 << bits)]
    return min(shares, key=lambda r: closed_form(r, slew, slots, chains) / (1 - r * r))


def shipped(slew: Fraction, slots: int, chains: int = 1) -> Stationary:
    """Return the filter that devices use: one tap, `best_share`, with S² as `closed_form` bounds it. Raises Invalid."""
    r = best_share(slew, slots, chains)
    squared = closed_form(r, slew, slots, chains)
    return Stationary((r,), squared, squared / (1 - r * r))


@lru_cache(maxsize=64)
def optimised(slew: Fraction, slots: int, taps: int = 1) -> Stationary:
    """Return the stationary filter of ``taps`` taps with the least release variance at its exact S² (one chain).

    The search is in floating point. The taps that it finds are rounded to multiples of 2^-10, and their S² is computed
    exactly. Raises Invalid.
    """
    # SciPy's modules are slow to import. Many commands import this module, and few call this function.
    from scipy.optimize import minimize, minimize_scalar

    slew, slots = check_slew(slew), check_length(slots)
    if not 1 <= taps <= min(LARGEST_TAPS, max(slots - 1, 1)):
        raise Invalid(f"taps is {taps}, expected 1 to {min(LARGEST_TAPS, max(slots - 1, 1))}")
    programme = _programme(slew, slots, taps)

    def objective(point: NDArray[np.float64]) -> float:
        rows = _levinson(point)
        return np.inf if rows is None else programme(rows) / rows[0][1]

    if taps == 1:
        minimum = minimize_scalar(lambda r: objective(np.array([r])), bounds=(0.0, 0.9999), method="bounded")
        best = np.array([float(minimum.x)])
    else:
        r = float(best_share(slew, slots))
        # The search starts from the closed form's share in two shapes: all of it on the first tap, or 35 % of it on the
        # other taps.
        starts = [[r] + [0.0] * (taps - 1), [0.65 * r] + [0.35 * r / (taps - 1)] * (taps - 1)]
        options = {"xatol": 2e-3, "fatol": 1e-5, "maxfev": 80 * taps}
        runs = [minimize(objective, start, method="Nelder-Mead", options=options) for start in starts]
        best = min(runs, key=lambda run: float(run.fun)).x
    return measured([Fraction(round(tap * (1 << TAP_BITS)), 1 << TAP_BITS) for tap in best], slew, slots)


def measured(taps: Sequence[Fraction], slew: Fraction, slots: int) -> Stationary:
    """Return the filter of these constant taps with its exact S². Raises Invalid."""
    schedule = stationary(taps, slots)
    squared = exact(schedule, slew)
    return Stationary(tuple(taps), squared, squared / schedule[0].weight)


def _levinson(taps: NDArray[np.float64]) -> list[tuple[list[float], float]] | None:
    """Return the first rows (taps, weight) of the schedule with these constant ``taps``; later rows equal the last one.

    Return None if the noise would grow without bound.
    """
    rows: list[tuple[list[float], float]] = []
    coefficients, weight = [float(tap) for tap in taps], 1.0
    while coefficients:
        rows.append((coefficients, weight))
        last = coefficients[-1]
        if not abs(last) < 0.9999:
            return None
        shrink = 1 - last * last
        reverse = coefficients[::-1][1:]
        coefficients = [(a + last * b) / shrink for a, b in zip(coefficients[:-1], reverse, strict=True)]
        weight *= shrink
    return [([], weight), *rows[::-1]]


def _programme(slew: Fraction, slots: int, taps: int) -> Callable[[list[tuple[list[float], float]]], float]:
    """Return the dynamic programme of `sensitivity.exact` in floating point; a step handles all histories at once."""
    points = grid(slew)
    reach = 2 * slew
    histories = [
        path
        for path in product(range(len(points)), repeat=taps)
        if all(abs(points[a] - points[b]) <= reach for a, b in pairwise(path))
    ]
    number = {path: i for i, path in enumerate(histories)}
    # A history is a tuple of the last differences, the newest first. A move adds a new difference at its front and
    # drops the oldest one.
    moves = [
        (number[path], number[(d, *path[:-1])], d)
        for path in histories
        for d in range(len(points))
        if abs(points[d] - points[path[0]]) <= reach
    ]
    moves.sort(key=lambda move: move[1])
    before, after = (np.array([move[i] for move in moves]) for i in (0, 1))
    values = np.array([float(point) for point in points])
    past = np.array([[values[d] for d in path] for path in histories])
    newest = values[[move[2] for move in moves]]
    starts = np.flatnonzero(np.diff(after, prepend=-1))
    targets = after[starts]

    def run(rows: list[tuple[list[float], float]]) -> float:
        best = rows[0][1] * past[:, -1] ** 2
        # The first reports of a chain are predicted from fewer reports than a history holds.
        for i in range(1, taps):
            coefficients, weight = rows[min(i, len(rows) - 1)]
            best = best + weight * (past[:, -1 - i] - past[:, taps - i :] @ np.array(coefficients)) ** 2
        coefficients, weight = rows[-1]
        gap = weight * (newest - past[before] @ np.array(coefficients)) ** 2
        for _ in range(slots - taps):
            reached = best[before] + gap
            best = np.full(len(histories), -np.inf)
            best[targets] = np.maximum.reduceat(reached, starts)
        return float(best.max())

    return run


def as_schedule(optimum: Stationary, slots: int) -> Recurrences:
    """Return the filter as rows scaled to S² = 1."""
    return tuple(Recurrence(row.taps, row.weight / optimum.squared) for row in stationary(optimum.taps, slots))

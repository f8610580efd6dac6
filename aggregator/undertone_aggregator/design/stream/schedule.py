"""Schedules of the noise of a stream with l reports, as rational numbers.

There are two kinds: the schedule of Bao et al. (PVLDB 2021), and stationary schedules.

Row i (from 0) of a schedule describes ξ_i = (x_i - Σ_k a_ik x_{i-k}) / σ_i of their Eq. 11, in units of the domain's
width 1: its ``taps`` are a_i1, a_i2, ... (at most i of them), its ``weight`` is 1/σ_i². The noise of the released x_i
is γ_i = η_i + Σ_k a_ik γ_{i-k} with Var η_i = σ_i² (Eq. 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid

LONGEST = 65535


@dataclass(frozen=True)
class Recurrence:
    """One report of a schedule: coefficients of earlier reports, the most recent first, and 1/σ_i² > 0."""

    taps: tuple[Fraction, ...]
    weight: Fraction


Recurrences = tuple[Recurrence, ...]


def check_slew(slew: Fraction) -> Fraction:
    """Return the slew C unchanged. Raises Invalid unless 0 < C < 1/2."""
    if not isinstance(slew, Fraction) or not 0 < slew < Fraction(1, 2):
        raise Invalid(f"slew is {slew}, expected a number above 0 and below 1/2 of the range")
    return slew


def check_length(slots: int) -> int:
    """Return the stream's length l unchanged. Raises Invalid unless it is 1 to 65535."""
    if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= LONGEST:
        raise Invalid(f"slots is {slots!r}, expected 1 to {LONGEST}")
    return slots


def paper(slew: Fraction, slots: int, bits: int | None = None) -> Recurrences:
    """Return Algorithm 3's rows, σ_1 = 1: r_i = (1-2C)/((1-2C)² + v_{i-1}), σ_i = V_i = 1 - r_i + 2C r_i, v_1 = 1.

    ``bits``: r_i is rounded to multiples of 2^-bits, and 1/V_i² is rounded up to them, so that numbers stay short in
    long streams. None: nothing is rounded. Raises Invalid.
    """
    slew, keep = check_slew(slew), 1 - 2 * slew
    rows = [Recurrence((), Fraction(1))]
    for i in range(1, check_length(slots)):
        r = keep / (keep * keep + paper_variance(slew, i))
        if bits is not None:
            r = Fraction(round(r * (1 << bits)), 1 << bits)
        weight = 1 / (1 - r + 2 * slew * r) ** 2
        rows.append(Recurrence((r,), weight if bits is None else _up(weight, bits)))
    return tuple(rows)


def paper_variance(slew: Fraction, i: int) -> Fraction:
    """Return v_i = (4C - 4C²)/(1 - (1-2C)^{2i}): the variance of the i-th release (from 1) over σ_1² (Eq. 22)."""
    return (4 * slew - 4 * slew * slew) / (1 - (1 - 2 * slew) ** (2 * i))


def stationary(taps: Sequence[Fraction], slots: int) -> Recurrences:
    """Return the rows of constant ``taps`` with σ = 1 and a start that gives every release the same variance.

    The first rows are the best linear predictions of the stationary process of these taps (Durbin, Levinson). Raises
    Invalid for taps whose noise grows without bound.
    """
    check_length(slots)
    rows: list[Recurrence] = []
    coefficients, weight = [Fraction(tap) for tap in taps], Fraction(1)
    while coefficients:
        rows.append(Recurrence(tuple(coefficients), weight))
        last = coefficients[-1]
        if not -1 < last < 1:
            raise Invalid(f"the taps {', '.join(map(str, taps))} let the noise grow without bound")
        shrink = 1 - last * last
        reverse = coefficients[::-1][1:]
        coefficients = [(a + last * b) / shrink for a, b in zip(coefficients[:-1], reverse, strict=True)]
        weight *= shrink
    start = [Recurrence((), weight), *rows[:0:-1]]
    steady = Recurrence(tuple(Fraction(tap) for tap in taps), Fraction(1))
    return tuple((start + [steady] * max(slots - len(start), 0))[:slots])


def covariance(schedule: Recurrences) -> NDArray[np.float64]:
    """Return the covariance [l, l] of the released noise γ."""
    size = len(schedule)
    # γ = (I - A)^-1 η, computed row by row.
    mixing = np.zeros((size, size))
    for i, row in enumerate(schedule):
        for k, tap in enumerate(row.taps, 1):
            mixing[i] += float(tap) * mixing[i - k]
        mixing[i, i] = 1.0
    return np.asarray((mixing / np.array([float(row.weight) for row in schedule])) @ mixing.T)


def _up(value: Fraction, bits: int) -> Fraction:
    scaled = value * (1 << bits)
    return Fraction(-(-scaled.numerator // scaled.denominator), 1 << bits)

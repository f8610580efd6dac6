"""The Hybrid for whole populations, compiled by numba if that is installed: the symbols of `vectorised`, much faster.

The loop has no branches, so that the compiler computes several devices at a time. It looks at the first eight words of
each device only; the few devices that need more are left to `vectorised`. Cells are computed by divisions of doubles,
which are exact here: for integers p >= 0 and q >= 1 below 2^30, p/q is an integer or lies at least 1/q from the next
one, and a quotient's rounding error is far smaller. Only words of a single slot are compiled, because the draws of
several slots are made together only for small fleets.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_simulator.seeded import SeededWords, scramble

Unsigned = NDArray[np.uint32]

# Symbol of a device whose words were all rejected.
_LEFT = 0xFFFFFFFF
# a, b, window, stride, levels, row total and number of the first cell of a part of the Hybrid.
_Part = tuple[np.int32, np.int32, np.int32, np.int32, np.int32, np.int32, np.int32]

_word: Any = numba.njit(inline="always")(scramble)


def compiles(mechanism: Hybrid) -> bool:
    """Return True if the compiled loop draws for this Hybrid: its second part must be plain randomised rounding."""
    part = mechanism.rounding
    return (part.window, part.stride, part.levels) == (1, 1, 1)


def draw(
    mechanism: Hybrid, readings: NDArray[np.integer], theta: int, words: SeededWords, out: Unsigned
) -> NDArray[np.intp]:
    """Write the symbols of truncated ``readings`` to ``out``; return the devices whose symbol is still to be drawn."""
    parts = _part(mechanism.piecewise), _part(mechanism.rounding)
    masks = [np.uint32(_mask(n)) for n in (theta, int(parts[0][5]), int(parts[1][5]))]
    coin = np.uint32(mechanism.coin)
    # One type of readings, so that the loop is compiled once.
    readings = np.ascontiguousarray(readings, dtype=np.int64)
    _compiled(readings, np.int32(theta), words.positions, words.keys, coin, *parts, *masks, out)
    return np.flatnonzero(out == _LEFT)


def _part(part: WindowMechanism) -> _Part:
    a, b, window, stride, levels, total, first = map(
        np.int32, (part.a, part.b, part.window, part.stride, part.levels, part.row_total(), part.first)
    )
    return a, b, window, stride, levels, total, first


def _mask(n: int) -> int:
    return (1 << (n - 1).bit_length()) - 1


def _loop(
    readings: NDArray[np.integer],
    theta: np.int32,
    positions: Unsigned,
    keys: Unsigned,
    coin: np.uint32,
    piecewise: _Part,
    rounding: _Part,
    mask: np.uint32,
    mask_piecewise: np.uint32,
    mask_rounding: np.uint32,
    out: Unsigned,
) -> None:
    a, b, window, stride, levels, total, first = piecewise
    a_rounding, _, _, _, _, total_rounding, first_rounding = rounding
    inside = np.int32(a * window)
    # The keys are read before the loop: the compiler cannot know that ``out`` is other memory.
    first_keys = keys[0, 0], keys[0, 1], keys[0, 2], keys[0, 3], keys[0, 4], keys[0, 5], keys[0, 6], keys[0, 7]
    second_keys = keys[1, 0], keys[1, 1], keys[1, 2], keys[1, 3], keys[1, 4], keys[1, 5], keys[1, 6], keys[1, 7]
    for i in range(len(readings)):
        place, x = positions[i], np.int32(readings[i])
        heads = (_word(place, first_keys[0], second_keys[0]) & np.uint32(0xFFFF)) < coin
        word_1 = _word(place, first_keys[1], second_keys[1])
        word_2 = _word(place, first_keys[2], second_keys[2])
        word_3 = _word(place, first_keys[3], second_keys[3])
        word_4 = _word(place, first_keys[4], second_keys[4])
        word_5 = _word(place, first_keys[5], second_keys[5])
        word_6 = _word(place, first_keys[6], second_keys[6])
        word_7 = _word(place, first_keys[7], second_keys[7])
        # The level's word is the first of words 1 and 2 that is not rejected, the symbol's the first of the next five.
        early = np.int32(word_1 & mask) < theta
        chance = np.int32(word_1 & mask) if early else np.int32(word_2 & mask)
        symbol_mask = mask_piecewise if heads else mask_rounding
        end = total if heads else total_rounding
        one = np.int32(word_2 & symbol_mask) if early else np.int32(word_3 & symbol_mask)
        two = np.int32(word_3 & symbol_mask) if early else np.int32(word_4 & symbol_mask)
        three = np.int32(word_4 & symbol_mask) if early else np.int32(word_5 & symbol_mask)
        four = np.int32(word_5 & symbol_mask) if early else np.int32(word_6 & symbol_mask)
        five = np.int32(word_6 & symbol_mask) if early else np.int32(word_7 & symbol_mask)
        u = four if four < end else five
        u = three if three < end else u
        u = two if two < end else u
        u = one if one < end else u
        # Randomised rounding: two levels, two cells.
        cell_rounding = first_rounding + np.int32(np.int32(chance < x) != np.int32(u >= a_rounding))
        # The piecewise mechanism.
        product = x * levels
        level = np.int32(np.float64(product) / np.float64(theta))
        rest = product - level * theta
        level += np.int32(chance < rest)
        start = level * stride
        within = start + np.int32(np.float64(u) / np.float64(a))
        outside = np.int32(np.float64(u - inside) / np.float64(b))
        outside += window if outside >= start else np.int32(0)
        cell = first + (within if u < inside else outside)
        symbol = cell if heads else cell_rounding
        drawn = (chance < theta) & (u < end)
        out[i] = np.uint32(symbol) if drawn else np.uint32(_LEFT)


_compiled: Any = numba.njit(cache=True, error_model="numpy")(_loop)

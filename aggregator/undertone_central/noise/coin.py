"""Exact coins: Bernoulli variables with irrational probability, compared digit by digit and never rounded.

A uniform real U in [0, 1) is read from random bytes until its digits differ from those of p. The coin shows heads iff U
< p. The digits of p come from integer bounds that are refined until they agree.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from undertone_central.noise.entropy import Bytes

Flips = NDArray[np.bool_]
_FIRST = 8
_MORE = 32


def exponential_bounds(r: Fraction, bits: int) -> tuple[int, int]:
    """Return integers low <= e^r 2^bits <= high, for r >= 0.

    They are computed in fixed point: the Taylor series of r/2^h <= 1/2, squared h times.
    """
    halvings = (r.numerator // r.denominator).bit_length() + 1
    x = (r.numerator << bits) // (r.denominator << halvings)
    low = high = term_low = term_high = 1 << bits
    i = 0
    while term_high > 2:
        i += 1
        term_low = (term_low * x >> bits) // i
        term_high = (term_high * (x + 1) >> bits) // i + 1
        low += term_low
        high += term_high
    # The last term that was added is at most 2 units of the last place. Every later term is less than half of the term
    # before it, so all later terms add up to less than the last one. With the rounding, they add up to less than 4
    # units.
    high += 4
    for _ in range(halvings):
        low = low * low >> bits
        high = (high * high >> bits) + 1
    return low, high


class Coin:
    """A coin that shows heads with irrational probability p: ``bounds(bits)`` gives low <= p 2^bits <= high."""

    def __init__(self, bounds: Callable[[int], tuple[int, int]]) -> None:
        self._bounds = bounds
        self._digits: dict[int, int] = {}

    def digits(self, bits: int) -> int:
        """Return floor(p 2^bits)."""
        if bits not in self._digits:
            working = bits + 64
            while True:
                low, high = self._bounds(working)
                low, high = low >> (working - bits), high >> (working - bits)
                if low == high:
                    break
                working *= 2
            self._digits[bits] = low
        return self._digits[bits]

    def next_digits(self, done: int, bits: int) -> int:
        """Return the ``bits`` digits of p after the first ``done``, as an integer."""
        return self.digits(done + bits) - (self.digits(done) << bits)


@cache
def logistic_coin(r: Fraction) -> Coin:
    """Return the coin with p = 1/(1 + e^r), r > 0 (for r = 0 p is 1/2, which is rational)."""

    def bounds(bits: int) -> tuple[int, int]:
        low, high = exponential_bounds(r, bits)
        unit = 1 << bits
        return (unit << bits) // (unit + high), (unit << bits) // (unit + low) + 1

    return Coin(bounds)


@cache
def exponential_coin(r: Fraction) -> Coin:
    """Return the coin with p = e^-r, r > 0."""

    def bounds(bits: int) -> tuple[int, int]:
        low, high = exponential_bounds(r, bits)
        return (1 << 2 * bits) // high, (1 << 2 * bits) // low + 1

    return Coin(bounds)


class Coins:
    """Several coins, flipped together. For all but one flip in 256, the first byte decides."""

    def __init__(self, coins: list[Coin]) -> None:
        self._coins = coins
        self._first = np.array([coin.digits(_FIRST) for coin in coins], dtype=np.uint8)[:, None]
        self._more: list[NDArray[np.uint32]] = []

    def flip(self, source: Bytes, n: int) -> Flips:
        """Flip every coin n times; True is heads; shape [coins, n]."""
        first = np.frombuffer(source.take(len(self._coins) * n), dtype=np.uint8).reshape(len(self._coins), n)
        heads: Flips = first < self._first
        row, column = np.divmod(np.flatnonzero(first == self._first), n)
        level = 1
        while len(row):
            word = np.frombuffer(source.take(_MORE // 8 * len(row)), dtype="<u4")
            digits = self._level(level)[row]
            heads[row, column] = word < digits
            tied = word == digits
            row, column = row[tied], column[tied]
            level += 1
        return heads

    def _level(self, level: int) -> NDArray[np.uint32]:
        while level > len(self._more):
            done = _FIRST + _MORE * len(self._more)
            digits = [coin.next_digits(done, _MORE) for coin in self._coins]
            self._more.append(np.array(digits, dtype=np.uint32))
        return self._more[level - 1]

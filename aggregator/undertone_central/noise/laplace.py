"""Exact discrete Laplace and geometric noise on the integers, in numpy.

The binary digits of a geometric variable are independent: with P(G = g) = (1 - q) q^g, bit i is 1 with probability
q^{2^i}/(1 + q^{2^i}), and floor(G/2^m) is again geometric, with q^{2^m} in place of q. So a draw needs one exact coin
per bit. The sign is one more coin with the probability of bit 0; on heads the result is -1 - G. This makes the result
two-sided: P(X = x) = (1 - q)/(1 + q) q^|x|. Nothing is rejected, and no floating-point number decides anything.
"""

from fractions import Fraction
from functools import cache
from math import ceil, exp

import numpy as np
from numpy.typing import NDArray

from undertone_central.noise.coin import Coins, exponential_coin, logistic_coin
from undertone_central.noise.entropy import Bytes
from undertone_shared.errors import Invalid

Integers = NDArray[np.int64]

# A draw below this number of scales is made of exact binary digits. A larger draw, which has a probability of at most
# e^-8, gets the rest from a loop.
_TAIL = 8
_BUFFER = 512
# Largest scale of the noise. A draw reaches 64 scales with probability e^-64, and sums of draws must stay far below
# 2^63.
LARGEST_SCALE = 1 << 46


def joined(parts: list[Integers]) -> Integers:
    """Concatenate the parts that are not empty. A single part is returned without a copy."""
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else np.concatenate([np.zeros(0, dtype=np.int64), *filled])


class DiscreteLaplace:
    """Sampler of P(X = x) = (1 - q)/(1 + q) q^|x|, where q = e^{-1/scale}.

    With this noise, integers of sensitivity at most scale × ε are released with ε-DP.
    """

    def __init__(self, scale: Fraction) -> None:
        if not 0 < scale <= LARGEST_SCALE:
            raise Invalid(
                f"the noise has scale {float(scale):g}, expected more than 0 and at most 2^46: a smaller bound or"
                " horizon, or a larger epsilon, makes it smaller"
            )
        self.scale = scale
        rate = 1 / scale
        self._bits = max(ceil(_TAIL * scale) - 1, 0).bit_length()
        self._coins = Coins(
            [logistic_coin(rate)]
            + [logistic_coin(rate * 2**i) for i in range(self._bits)]
            + [exponential_coin(rate * 2**self._bits)]
        )
        self._tail = Coins([exponential_coin(rate * 2**self._bits)])

    def sample(self, source: Bytes, n: int) -> Integers:
        """Return ``n`` independent draws."""
        heads = self._coins.flip(source, n)
        magnitude = self._magnitude(heads, source)
        return np.where(heads[0], -1 - magnitude, magnitude)

    def sample_geometric(self, source: Bytes, n: int) -> Integers:
        """Return ``n`` independent draws of P(G = g) = (1 - q) q^g, g >= 0."""
        return self._magnitude(self._coins.flip(source, n), source)

    @property
    def variance(self) -> float:
        """The variance 2q/(1 - q)²."""
        q = exp(-1 / self.scale)
        return 2 * q / (1 - q) ** 2 if q > 0 else 0.0

    def _magnitude(self, heads: NDArray[np.bool_], source: Bytes) -> Integers:
        n = heads.shape[1]
        bits = heads[1 : self._bits + 1].view(np.uint8)
        words = np.zeros((n, 8), dtype=np.uint8)
        for start in range(0, len(bits), 8):
            byte = bits[start].copy()
            for i, bit in enumerate(bits[start + 1 : start + 8], 1):
                byte |= bit << i
            words[:, start // 8] = byte
        magnitude = words.view("<i8")[:, 0].astype(np.int64)
        going = np.flatnonzero(heads[-1])
        while len(going):
            magnitude[going] += 1 << self._bits
            going = going[self._tail.flip(source, len(going))[0]]
        return magnitude


@cache
def discrete_laplace(scale: Fraction) -> DiscreteLaplace:
    """Return the sampler of that scale; samplers are cached."""
    return DiscreteLaplace(scale)


class Draws:
    """A sequence of draws of one distribution, made in blocks: ``draw`` and ``take`` read the same sequence."""

    def __init__(self, scale: Fraction, source: Bytes) -> None:
        self.law = discrete_laplace(scale)
        self._source = source
        self._block = np.zeros(0, dtype=np.int64)

    def draw(self) -> int:
        """Return the next draw."""
        return int(self.take(1)[0])

    def take(self, n: int) -> Integers:
        """Return the next ``n`` draws."""
        parts = [self._block[:n]]
        self._block = self._block[n:]
        missing = n - len(parts[0])
        while missing > 0:
            fresh = self.law.sample(self._source, _BUFFER)
            parts.append(fresh[:missing])
            self._block = fresh[missing:]
            missing -= len(parts[-1])
        return joined(parts)

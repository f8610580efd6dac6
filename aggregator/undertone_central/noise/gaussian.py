"""Exact discrete Gaussian noise on the integers, in numpy: rejection from the discrete Laplace.

Canonne, Kamath, Steinke (NeurIPS 2020): with Y of scale t = floor(σ) + 1, accept with probability e^-γ, where γ = (|Y|
- σ²/t)²/(2σ²). Floating point decides only if its error cannot matter; the other cases are decided in integers.
"""

from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from undertone_central.noise.coin import exponential_coin
from undertone_central.noise.entropy import Bytes
from undertone_central.noise.laplace import Integers, discrete_laplace
from undertone_shared.errors import Invalid

# If a uniform number is at most this far from e^-γ, integers decide whether a draw is accepted. The distance is far
# above the rounding of γ and e^-γ in doubles (below 1e-12 for |Y| < 1000 σ).
_MARGIN = 1e-9
_BUFFER = 512


class DiscreteGaussian:
    """Sampler of P(X = x) ∝ e^{-x²/(2σ²)}, where σ² = ``variance`` is a rational from 1/4 to 2^92."""

    def __init__(self, variance: Fraction) -> None:
        if not Fraction(1, 4) <= variance <= 1 << 92:
            advice = ": a smaller bound or horizon, or a larger epsilon, makes it smaller" if variance > 1 else ""
            raise Invalid(f"the noise has variance {float(variance):g}, expected 0.25 to 2^92{advice}")
        self.variance = variance
        self._scale = isqrt(variance.numerator // variance.denominator) + 1
        self._proposal = discrete_laplace(Fraction(self._scale))

    def sample(self, source: Bytes, n: int) -> Integers:
        """Return ``n`` independent draws."""
        parts = [np.zeros(0, dtype=np.int64)]
        missing = n
        while missing > 0:
            proposed = self._proposal.sample(source, missing + missing // 2 + 8)
            words = np.frombuffer(source.take(8 * len(proposed)), dtype="<u8")
            parts.append(proposed[self._accepted(proposed, words, source)][:missing])
            missing -= len(parts[-1])
        return np.concatenate(parts)

    def _accepted(self, proposed: Integers, words: NDArray[np.uint64], source: Bytes) -> NDArray[np.bool_]:
        sigma2 = float(self.variance)
        distance = np.abs(proposed).astype(np.float64) - sigma2 / self._scale
        chance = np.exp(-distance * distance / (2 * sigma2))
        uniform = words.astype(np.float64) / 2.0**64
        accepted: NDArray[np.bool_] = uniform < chance
        for i in np.flatnonzero(np.abs(uniform - chance) <= _MARGIN):
            accepted[i] = self._exact(int(proposed[i]), int(words[i]), source)
        return accepted

    def _exact(self, proposed: int, word: int, source: Bytes) -> bool:
        gamma = (abs(proposed) - self.variance / self._scale) ** 2 / (2 * self.variance)
        if gamma == 0:
            return True
        coin = exponential_coin.__wrapped__(gamma)
        bits = 64
        while word == coin.digits(bits):
            word = word << 64 | int.from_bytes(source.take(8), "little")
            bits += 64
        return word < coin.digits(bits)


class GaussianDraws:
    """A sequence of draws, made in blocks. ``take`` gives the same sequence whatever the sizes of the calls are."""

    def __init__(self, variance: Fraction, source: Bytes) -> None:
        self.law = DiscreteGaussian(variance)
        self._source = source
        self._block = np.zeros(0, dtype=np.int64)

    def take(self, n: int) -> Integers:
        """Return the next ``n`` draws."""
        while len(self._block) < n:
            self._block = np.concatenate([self._block, self.law.sample(self._source, _BUFFER)])
        taken, self._block = self._block[:n], self._block[n:]
        return taken

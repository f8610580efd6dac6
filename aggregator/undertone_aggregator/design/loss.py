"""Privacy loss distributions: from δ as a function of ε to the loss of many releases.

Values of δ on a grid of ε are joined by straight lines in e^ε (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, PoPETs
2022). This gives a distribution of losses on the grid whose δ is nowhere too small. The losses of several releases add
up, so the Fourier transform of their distribution is a power of that of one release.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Probability of losses that the composition may cut off at each end. The part that is cut off counts as infinite loss.
_LEFT_OUT = 1e-15


@dataclass(frozen=True)
class Losses:
    """A distribution of the privacy loss over the values (first + i) · step, i = 0, 1, 2, …

    ``mass[i]`` is the probability of value number i; shape [points]. With probability ``infinite``, the loss is
    infinite.
    """

    step: float
    first: int
    mass: Vector
    infinite: float

    @staticmethod
    def joined(step: float, first: int, deltas: Vector) -> "Losses":
        """Make the distribution from ``deltas`` [points], upper bounds of δ at ε = (first + i) · step, i = 0, 1, 2, …

        Losses below the grid count as its first loss. Losses above it count as infinite; their probability is the last
        δ, which should be small.
        """
        rise = np.diff(deltas) / np.expm1(step)
        fall = np.diff(deltas) / -np.expm1(-step)
        # The slope of δ as a function of e^ε rises by q at each point; the loss there has probability p = e^ε q.
        inner = rise[1:] - fall[:-1]
        top = -fall[-1]
        mass = np.maximum(np.concatenate([[0.0], inner, [top]]), 0.0)
        infinite = float(deltas[-1])
        mass[0] = max(1.0 - infinite - mass.sum(), 0.0)
        return Losses(step, first, mass, infinite)

    def composed(self, releases: int) -> "Losses":
        """Return the distribution of the total loss of ``releases`` releases."""
        if releases == 1:
            return self
        at = (self.first + np.arange(len(self.mass))) * self.step
        mean = float(self.mass @ at)
        spread = float(np.sqrt(max(float(self.mass @ np.square(at - mean)), 0.0)))
        low, high = self._range(releases, mean, spread)
        size = 1 << int(np.ceil(np.log2(high - low + 1)))
        # The discrete Fourier transform is circular, so losses are taken modulo its number of points.
        folded = np.zeros(size)
        np.add.at(folded, (self.first + np.arange(len(self.mass))) % size, self.mass)
        total = np.fft.irfft(np.fft.rfft(folded) ** releases, size)
        mass = np.maximum(total[np.arange(low, high + 1) % size], 0.0)
        infinite = 1.0 - (1.0 - self.infinite) ** releases + 2 * releases * _LEFT_OUT
        return Losses(self.step, low, mass, min(infinite, 1.0))

    def _range(self, releases: int, mean: float, spread: float) -> tuple[int, int]:
        """Return the first and the last point of a range that contains the total loss with a probability of nearly 1.

        By Bernstein's inequality, which uses the largest single loss, the loss is below the range with a probability of
        at most `_LEFT_OUT`, and above it with at most the same probability.
        """
        bound = -np.log(_LEFT_OUT)
        largest = max(abs(self.first), abs(self.first + len(self.mass))) * self.step + abs(mean)
        wide = np.sqrt(2.0 * bound * releases) * spread + 2.0 * bound * largest / 3.0
        middle, points = releases * mean / self.step, wide / self.step
        low = max(int(np.floor(middle - points)), releases * self.first)
        high = min(int(np.ceil(middle + points)), releases * (self.first + len(self.mass) - 1))
        return low, max(high, low)

    def delta(self, epsilon: float) -> float:
        """Return E[(1 - e^{ε - loss})⁺], infinite losses included."""
        at = (self.first + np.arange(len(self.mass))) * self.step
        above = at > epsilon
        return float(self.mass[above] @ -np.expm1(epsilon - at[above])) + self.infinite

    def epsilon(self, delta: float) -> float:
        """Return the least ε >= 0 at this δ, to a thousandth of a step; inf if there is none."""
        if self.infinite > delta:
            return float("inf")
        low, high = 0.0, max((self.first + len(self.mass)) * self.step, 0.0)
        if self.delta(0.0) <= delta:
            return 0.0
        while high - low > self.step / 1000:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

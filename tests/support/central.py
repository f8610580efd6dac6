"""Helpers for tests of central releases: random bytes from a seed, and noise that the test chooses."""

from fractions import Fraction
from math import exp

import numpy as np

from undertone_central.noise import laplace
from undertone_central.noise.entropy import FreshBytes


def seeded(seed: int = 1) -> FreshBytes:
    return FreshBytes(np.random.default_rng(seed).bytes)


def laplace_pmf(x, scale):
    q = exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(x)


class Script:
    """Replaces every draw of discrete Laplace noise by the next number of ``draws``, then by 0.

    ``scales``: the scale of each draw.
    """

    def __init__(self, monkeypatch, draws=()):
        self.draws = list(draws)
        self.scales: list[Fraction] = []
        monkeypatch.setattr(laplace, "_BUFFER", 1)
        monkeypatch.setattr(laplace.DiscreteLaplace, "sample", lambda law, source, n: self.sample(law, n))

    def sample(self, law, n):
        taken = [self.draws[i] if i < len(self.draws) else 0 for i in range(len(self.scales), len(self.scales) + n)]
        self.scales += [law.scale] * n
        return np.array(taken, dtype=np.int64)

    def run(self, make, values, draws):
        """Return what a new mechanism releases for these values with these draws."""
        self.draws, self.scales = list(draws), []
        mechanism = make()
        return [x for value in values for x in mechanism.push(value)]

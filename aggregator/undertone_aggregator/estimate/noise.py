"""Variance of the mechanism's noise in a slot's mean, estimated from the slot's own histogram.

The readings x of the devices that reported are fixed numbers. So the variance that is needed is the mean of Var(Y | x)
over these devices, where x and the decoded Y are in half-width units: the range is [-1, 1].
"""

from fractions import Fraction
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import Counts
from undertone_aggregator.design.levels import Vector, level_law, level_positions, weight_rows
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.population import Population

# `QuadraticNoise` estimates x² from reports only if 1 + p2 is more than this. The smaller 1 + p2 is, the less the
# reports say about x². For stochastic rounding alone 1 + p2 is 0.
_LEAST_CURVATURE = 0.2
# Concentration of the Dirichlet prior for a slot's distribution of readings. Its centre is the population's
# distribution. The prior has the weight of this many readings seen without noise.
_CONCENTRATION = 3.0


class NoiseModel(Protocol):
    """Returns the mean variance of one report from each histogram; [slots, symbols] -> [slots].

    Each histogram has at least one report. The variance is in half-width units.
    """

    def __call__(self, counts: Counts) -> Vector: ...


def noise_of(mechanism: Mechanism, width: int, population: Population | None) -> NoiseModel:
    """Make the noise model of a mechanism on [0, width].

    ``population``: the readings as the threshold phase estimates them; None for evenly distributed readings. Raises
    Invalid for an unknown mechanism.
    """
    if traits_of(mechanism).quadratic:
        return QuadraticNoise(mechanism, width)
    return LinearNoise(mechanism, width, population or Population.even(width))


def decoded(mechanism: Mechanism, width: int) -> Vector:
    """Return the decoded value y of each symbol in half-width units, 2y/width - 1; shape [symbols].

    Each is the double nearest to the exact rational, because a quotient of two integers is rounded once.
    """
    exact = (mechanism.decode(j, width) for j in range(mechanism.symbols))
    return np.array([(2 * p - q * width) / (q * width) for p, q in exact])


class QuadraticNoise:
    """Noise model of mechanisms with Var(Y | x) = p0 + p1 x + p2 x², exactly.

    The means of x and x² over the devices are estimated without bias from the same reports. (The empirical variance
    of the decoded reports would add the readings' own spread.)
    """

    def __init__(self, mechanism: Mechanism, width: int) -> None:
        self._y = decoded(mechanism, width)
        levels = [Fraction(*mechanism.value(k, width)) / width * 2 - 1 for k in range(mechanism.levels + 1)]
        exact = (mechanism.variance(k, width) for k in range(len(levels)))
        variances = [4 * p / (q * width * width) for p, q in exact]
        degree = min(2, len(levels) - 1)
        fitted = np.polynomial.polynomial.polyfit([float(x) for x in levels], variances, degree)
        self._p0, self._p1, self._p2 = (*(float(p) for p in fitted), 0.0)[:3]
        # Variance of rounding between neighbouring levels, averaged over the position of a reading between them.
        self._rounding = float(np.mean([float(b - a) ** 2 for a, b in pairwise(levels)])) / 6.0
        if width == mechanism.levels:
            # Every integer is a level, so nothing is rounded.
            self._rounding = 0.0

    def __call__(self, counts: Counts) -> Vector:
        """Return the mean variance over the devices of each histogram."""
        n = counts.sum(axis=1)
        return self.at(counts @ self._y / n, counts @ np.square(self._y) / n, n)

    def at(self, first: Vector, second: Vector, n: NDArray[np.int64]) -> Vector:
        """Return the mean variance of one report, from the mean and the mean square of n decoded reports; [slots]."""
        x = np.clip(first, -1.0, 1.0)
        rounding = (1.0 + self._p2) * self._rounding
        if 1.0 + self._p2 > _LEAST_CURVATURE:
            square = (second - self._p0 - self._p1 * x - rounding) / (1.0 + self._p2)
        else:
            square = x * x - second / n
        square = np.clip(square, x * x, 1.0)
        return np.maximum(self._p0 + self._p1 * x + self._p2 * square + rounding, 0.0)


class LinearNoise:
    """Noise model of mechanisms, such as tables: estimates the mean of v = Var(Y | x), of any shape, over the reports.

    The slot's distribution of readings is the population's f plus a deviation with covariance C = (diag f - f fᵀ)/(1 +
    concentration). With A the channel, p = A f and h/n the slot's histogram, the estimate is v·f + g·(h/n - p), g = (A
    C Aᵀ + diag(p)/n)⁻¹ A C v, clipped to the range of v. Of all linear estimates it has the least mean square error.
    """

    def __init__(self, mechanism: Mechanism, width: int, population: Population) -> None:
        rows = weight_rows(mechanism) / mechanism.row_total()
        law = level_law(level_positions(mechanism, width), width, population.edges)
        f = population.density
        variances = population.variances(mechanism, width)
        channel = rows.T @ law
        self._law = channel @ f
        centred = channel - self._law[:, None]
        self._mean = float(f @ variances)
        self._spread = (centred * f) @ centred.T / (1.0 + _CONCENTRATION)
        self._slope = (centred * f) @ (variances - self._mean) / (1.0 + _CONCENTRATION)
        self._range = (float(variances.min()), float(variances.max()))

    def __call__(self, counts: Counts) -> Vector:
        """Return the mean variance over the devices of each histogram."""
        n = counts.sum(axis=1)
        sizes, place = np.unique(n, return_inverse=True)
        weights = np.array([np.linalg.solve(self._spread + np.diag(self._law / size), self._slope) for size in sizes])
        away = counts / n[:, None] - self._law
        return np.asarray(np.clip(self._mean + (weights[place] * away).sum(axis=1), *self._range))

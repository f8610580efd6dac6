"""Posterior of the tail model by Fisher scoring: its mode, its curvature, and weighted draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.tail import Prior, TailModel, cell_masses, survival, survival_slope, survival_slopes

_LONGEST_STEP = 1.5
_MAX_STEPS = 60
_ENOUGH = 1e-4
_TINY = 1e-300
# A matrix is treated as sparse if less than this share of it differs from zero.
_SPARSE = 0.1


@dataclass(frozen=True)
class Observation:
    """One histogram for the fit: counts [N] of symbols with probabilities matrix · (masses of the cells between
    points).

    `points` [m] are increasing integers >= 1. Cell 0 lies below the first point, cell m begins at the last; `matrix`
    [N, m + 1].
    """

    points: Sequence[int]
    matrix: Vector
    counts: Vector

    @property
    def total(self) -> float:
        """The number of reports."""
        return float(self.counts.sum())


class Likelihood:
    """Log-likelihood of several observations under one tail model: Σ counts · ln(probability)."""

    def __init__(self, model: TailModel, observations: Sequence[Observation]) -> None:
        self.model = model
        self.observations = tuple(observations)
        sizes = [len(observation.points) for observation in self.observations]
        ends = np.cumsum(sizes)
        self._slices = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        points = np.concatenate([np.asarray(observation.points, dtype=np.float64) for observation in self.observations])
        self._lengths = model.lengths(np.log(points))

    def value(self, parameters: Vector) -> Vector:
        """Return the log-likelihood; parameters [..., p] → [...]."""
        s = survival(parameters, self._lengths)
        total: Vector = np.zeros(parameters.shape[:-1])
        for observation, part in zip(self.observations, self._slices, strict=True):
            law = cell_masses(s[..., part]) @ observation.matrix.T
            total = total + np.log(np.maximum(law, _TINY)) @ observation.counts
        return np.asarray(total)

    def score(self, parameters: Vector) -> tuple[Vector, Vector]:
        """Return the gradient [p] and the expected information [p, p] at parameters [p]."""
        s, slope = survival_slope(parameters, self._lengths)
        gradient: Vector = np.zeros(len(parameters))
        information: Vector = np.zeros((len(parameters), len(parameters)))
        for observation, part in zip(self.observations, self._slices, strict=True):
            law = np.maximum(observation.matrix @ cell_masses(s[part]), _TINY)
            change = np.zeros((len(observation.points) + 1, len(parameters)))
            change[:-1] -= slope[part]
            change[1:] += slope[part]
            moved = observation.matrix @ change
            gradient += moved.T @ (observation.counts / law)
            information += observation.total * (moved.T @ (moved / law[:, None]))
        return gradient, information


class Likelihoods:
    """Log-likelihoods of several pieces under one tail model: `Likelihood` of each, computed together.

    ``observations``: of each mechanism's reports the counts of all pieces, [pieces, N].
    """

    def __init__(self, model: TailModel, observations: Sequence[Observation]) -> None:
        points = {tuple(observation.points) for observation in observations}
        lengths = {of: model.lengths(np.log(np.asarray(of, dtype=np.float64))) for of in points}
        self._lengths = list(lengths.values())
        self._laws = [_Law.of(lengths[tuple(observation.points)], observation) for observation in observations]

    def value(self, parameters: Vector) -> Vector:
        """Return the log-likelihood of each piece; parameters [pieces, p] → [pieces]."""
        total: Vector = np.zeros(len(parameters))
        for law in self._laws:
            s = survival(parameters[law.pieces], law.lengths)
            chances = cell_masses(s) @ law.matrix.T
            total[law.pieces] += (np.log(np.maximum(chances, _TINY)) * law.counts).sum(axis=1)
        return total

    def score(self, parameters: Vector) -> tuple[Vector, Vector]:
        """Return the gradients [pieces, p] and the expected informations [pieces, p, p]; parameters [pieces, p]."""
        pieces, size = parameters.shape
        gradient: Vector = np.zeros((pieces, size))
        information: Vector = np.zeros((pieces, size, size))
        # Laws of the same points share the survival there.
        slopes = {id(lengths): survival_slopes(parameters, lengths) for lengths in self._lengths}
        for law in self._laws:
            s, slope = slopes[id(law.lengths)]
            if len(law.pieces) < pieces:
                s, slope = s[law.pieces], slope[:, law.pieces]
            chances = np.maximum(cell_masses(s) @ law.matrix.T, _TINY)
            moved = law.moved(slope)
            gradient[law.pieces] += np.matmul((law.counts / chances)[:, None, :], moved)[:, 0, :]
            weights = law.counts.sum(axis=1)[:, None] / chances
            information[law.pieces] += np.matmul(moved.transpose(0, 2, 1), moved * weights[..., None])
        return gradient, information


@dataclass(frozen=True)
class _Law:
    """One mechanism's reports: the ``pieces`` that have some, with their ``counts`` [pieces, N].

    ``change`` [N, m]: the derivative of the symbols' probabilities by the survival at the points, a sparse matrix where
    most of it is zero, as for windows.
    """

    lengths: Vector
    matrix: Vector
    pieces: NDArray[np.intp]
    counts: Vector
    change: Any

    @staticmethod
    def of(lengths: Vector, observation: Observation) -> "_Law":
        # Readers of a store import this module but never call it, and scipy.sparse takes long to import.
        from scipy.sparse import csr_array

        pieces = np.flatnonzero(observation.counts.any(axis=1))
        change: Any = np.diff(observation.matrix, axis=1)
        if np.count_nonzero(change) < _SPARSE * change.size:
            change = csr_array(change)
        return _Law(lengths, observation.matrix, pieces, observation.counts[pieces], change)

    def moved(self, slope: Vector) -> Vector:
        """Return the derivatives of the symbols' probabilities; slope [m, pieces, p] → [pieces, N, p]."""
        points, pieces, size = slope.shape
        moved = self.change @ slope.reshape(points, pieces * size)
        return np.asarray(moved).reshape(-1, pieces, size).transpose(1, 0, 2)


@dataclass(frozen=True)
class Mode:
    """Posterior mode [p], the posterior's precision H there, and the log of the Laplace evidence."""

    parameters: Vector
    precision: Vector
    log_posterior: float
    log_evidence: float


def posterior_mode(likelihood: Likelihood, prior: Prior, start: Vector) -> Mode:
    """Find the posterior mode by Fisher scoring from `start` [p].

    Each step is capped at 1.5 per parameter and halved until the posterior rises. The search ends at a gain below 1e-4
    or after 60 steps. log evidence = log posterior at the mode + (ln det prior precision - ln det H) / 2.
    """
    p = start
    value = _log_posterior(likelihood, prior, p)
    gradient, precision = _scores(likelihood, prior, p)
    for _ in range(_MAX_STEPS):
        step = np.linalg.solve(precision, gradient)
        step *= min(1.0, _LONGEST_STEP / max(float(np.abs(step).max()), _TINY))
        gain = 0.0
        for _ in range(14):
            moved = p + step
            gain = _log_posterior(likelihood, prior, moved) - value
            if gain > 0.0:
                break
            step = step / 2.0
        if not gain > 0.0:
            break
        p, value = moved, value + gain
        gradient, precision = _scores(likelihood, prior, p)
        if gain < _ENOUGH:
            break
    evidence = value + (prior.log_determinant - float(np.linalg.slogdet(precision)[1])) / 2.0
    return Mode(p, precision, value, evidence)


def draws(
    likelihood: Likelihood, prior: Prior, mode: Mode, count: int, generator: np.random.Generator
) -> tuple[Vector, Vector]:
    """Draw parameters [count, p] from N(mode, H⁻¹), with log weights [count] that correct the draws to the posterior.

    The log weights include the log evidence, so that draws of several components can be pooled. Weights above √count
    times their mean are cut (Ionides 2008): this gives a bounded bias, but a few draws cannot dominate the result.
    """
    root = np.linalg.cholesky(mode.precision)
    normal = generator.standard_normal((count, len(mode.parameters)))
    p = mode.parameters + np.linalg.solve(root.T, normal.T).T
    posterior = likelihood.value(p) - _quadratic(prior, p)
    excess = posterior - mode.log_posterior + np.square(normal).sum(axis=1) / 2.0
    top = float(excess.max())
    weights = np.exp(excess - top)
    weights = np.minimum(weights, weights.mean() * np.sqrt(count))
    return p, mode.log_evidence + top + np.log(np.maximum(weights / count, _TINY))


def _log_posterior(likelihood: Likelihood, prior: Prior, p: Vector) -> float:
    return float(likelihood.value(p) - _quadratic(prior, p))


def _quadratic(prior: Prior, p: Vector) -> Vector:
    away = p - prior.mean
    return np.asarray(((away @ prior.precision) * away).sum(axis=-1) / 2.0)


def _scores(likelihood: Likelihood, prior: Prior, p: Vector) -> tuple[Vector, Vector]:
    gradient, information = likelihood.score(p)
    return gradient - prior.precision @ (p - prior.mean), information + prior.precision

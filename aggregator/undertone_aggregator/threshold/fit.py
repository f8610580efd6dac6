"""Posterior of the tail model by Fisher scoring: its mode, its curvature, and weighted draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.tail import Prior, TailModel, cell_masses, survival, survival_slope

_LONGEST_STEP = 1.5
_MAX_STEPS = 60
_ENOUGH = 1e-4
_TINY = 1e-300


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

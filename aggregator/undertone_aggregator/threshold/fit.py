"""Posterior of the tail model by Fisher scoring: its mode, its curvature, and weighted draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.tail import Prior, TailModel, cell_masses, survival, survival_rates, survival_slope

_LONGEST_STEP = 1.5
_MAX_STEPS = 60
_ENOUGH = 1e-4
_TINY = 1e-300
# A matrix is treated as sparse if less than this share of it differs from zero.
_SPARSE = 0.1


@dataclass(frozen=True)
class Observation:
    """One histogram for the fit: counts [N] of symbols, whose probabilities are matrix · (masses of the cells between
    points).

    `points` [m] are increasing integers >= 1. Cell 0 lies below the first point, and cell m begins at the last;
    `matrix` [N, m + 1].
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
    """Log-likelihoods of several pieces under one tail model: `Likelihood` of each piece, computed together.

    ``observations``: for each mechanism, the counts of its reports in all pieces, [pieces, N].
    """

    def __init__(self, model: TailModel, observations: Sequence[Observation]) -> None:
        points = {tuple(observation.points) for observation in observations}
        lengths = {of: model.lengths(np.log(np.asarray(of, dtype=np.float64))) for of in points}
        self._laws = [_Law(lengths[tuple(observation.points)], observation) for observation in observations]

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
        rates = _rates(parameters)
        # Laws (distributions of reports) over the same points share the probabilities of being above them.
        survivals: dict[int, tuple[Vector, Vector, Vector]] = {}
        for law in self._laws:
            if id(law.lengths) not in survivals:
                survivals[id(law.lengths)] = survival_rates(parameters, law.lengths)
            s, by_z, by_share = (each[law.pieces] for each in survivals[id(law.lengths)])
            chances = np.maximum(cell_masses(s) @ law.matrix.T, _TINY)
            rate, weights = rates[law.pieces], law.counts.sum(axis=1)[:, None] / chances
            excess, share = law.at_points(law.counts / chances), law.at_symbols(by_share)
            gradient[law.pieces, :-1] += ((by_z * excess) @ law.reach) * rate
            gradient[law.pieces, -1] += (by_share * excess).sum(axis=1)
            both = ((by_z * law.at_points(weights * share)) @ law.reach) * rate
            information[law.pieces, :-1, :-1] += law.gram(weights, by_z) * (rate[:, :, None] * rate[:, None, :])
            information[law.pieces, :-1, -1] += both
            information[law.pieces, -1, :-1] += both
            information[law.pieces, -1, -1] += (weights * share * share).sum(axis=1)
        return gradient, information


def _rates(parameters: Vector) -> Vector:
    """Return ρ = (1, e^κ_1, …, e^κ_J) of each piece; parameters [n, J + 2] → [n, J + 1]."""
    return np.concatenate([np.ones((len(parameters), 1)), np.exp(parameters[:, 1:-1])], axis=1)


class _Law:
    """One mechanism's reports: the ``pieces`` that have some, with their ``counts`` [pieces, N].

    The probabilities of the symbols change with the survival S at the points by A = ``change`` [N, m]. S changes with
    (z, κ) by the slopes ∂S_i/∂z · L_ik ρ_k. Here L = ``reach`` [m, J + 1] is a column of ones and the ``lengths`` [m,
    J], and ρ are the rates (`_rates`).
    """

    def __init__(self, lengths: Vector, observation: Observation) -> None:
        # Readers of a store import this module but never make this object, and scipy.sparse takes long to import.
        from scipy.sparse import csc_array

        self.lengths, self.matrix = lengths, observation.matrix
        self.reach = np.concatenate([np.ones((len(lengths), 1)), lengths], axis=1)
        self.pieces = np.flatnonzero(observation.counts.any(axis=1))
        self.counts = observation.counts[self.pieces]
        self._change: Any = np.diff(observation.matrix, axis=1)
        self._pairs = None
        if np.count_nonzero(self._change) < _SPARSE * self._change.size:
            self._change = csc_array(self._change)
            both = abs(self._change)
            i, j = (both.T @ both).nonzero()
            i, j = i[i <= j], j[i <= j]
            outer = self.reach[i, :, None] * self.reach[j, None, :]
            outer[i < j] += outer[i < j].transpose(0, 2, 1)
            self._pairs = i, j, (self._change[:, i] * self._change[:, j]).T, outer.reshape(len(i), -1)

    def at_points(self, of_symbols: Vector) -> Vector:
        """Return Σ_n A_ni v_n for v of each piece; [pieces, N] → [pieces, m]."""
        return np.asarray((self._change.T @ of_symbols.T).T)

    def at_symbols(self, of_points: Vector) -> Vector:
        """Return Σ_i A_ni v_i for v of each piece; [pieces, m] → [pieces, N]."""
        return np.asarray((self._change @ of_points.T).T)

    def gram(self, weights: Vector, by_z: Vector) -> Vector:
        """Return Lᵀ D Aᵀ W A D L of each piece, W = diag(``weights``) [pieces, N], D = diag(``by_z``) [pieces, m].

        The result has shape [pieces, J + 1, J + 1]. With windows, Aᵀ W A is nearly empty, because most pairs of points
        share no symbol. Then only the products L_iᵀ L_j of the pairs that share a symbol are needed, and are computed
        once.
        """
        size = self.reach.shape[1]
        if self._pairs is None:
            moved = (self._change * by_z[:, None, :]) @ self.reach
            return np.asarray(np.matmul(moved.transpose(0, 2, 1), moved * weights[..., None]))
        i, j, products, outer = self._pairs
        shared = np.asarray((products @ weights.T).T) * by_z[:, i] * by_z[:, j]
        return np.asarray(shared @ outer).reshape(-1, size, size)


@dataclass(frozen=True)
class Mode:
    """Posterior mode [p], the posterior's precision H there, and the log of the Laplace evidence."""

    parameters: Vector
    precision: Vector
    log_posterior: float
    log_evidence: float


def posterior_mode(likelihood: Likelihood, prior: Prior, start: Vector) -> Mode:
    """Find the posterior mode by Fisher scoring from `start` [p].

    Each step changes a parameter by at most 1.5, and is halved until the posterior rises. The search ends at a gain
    below 1e-4, if no step gains, or after 60 steps. log evidence = log posterior at the mode + (ln det prior precision
    - ln det H) / 2.
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
    times their mean are cut (Ionides 2008). The cut causes a bounded bias, but keeps a few draws from dominating the
    result.
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

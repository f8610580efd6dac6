"""Distribution of readings by time of day, from private reports: one for each of at most 48 pieces of the cycle.

The slot of a report is public, so this costs no privacy. Within a piece the distribution is locally Weibull like the
whole day's (`threshold.tail`). The parameters of all pieces have a normal prior around the day's. The prior has a
correlation that decreases with the time between two pieces round the cycle, so that a piece with few reports resembles
its neighbours and the day. The posterior is its normal approximation at the mode, found by Fisher scoring. The size of
the day's largest readings is known better than that of a piece, because all of the day's reports inform it. So a
piece's tail is the average of its own and of the day's, and the pieces only decide at what time large readings occur.

The day's own fit uses the threshold reports, and ordinary reports of epochs with one θ for all times of day. The
pieces' fits use all reports, also those of epochs whose θ differs by block of the day. So if there are reports of
readings, the mean over the pieces knows more than the day's fit does. Only if there are none is this mean scaled to the
day's distribution.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts
from undertone_aggregator.threshold.excess import without_excess
from undertone_aggregator.threshold.fit import Likelihoods, Mode, Observation
from undertone_aggregator.threshold.heavy import chance_of_heavier, heavier
from undertone_aggregator.threshold.mode import with_mode
from undertone_aggregator.threshold.objective import Excess, Integers
from undertone_aggregator.threshold.pieces import Pieces
from undertone_aggregator.threshold.posterior import (
    Posterior,
    cohort_observation,
    decision_grid,
    posterior,
    report_law,
    resolved,
)
from undertone_aggregator.threshold.tail import Prior, cell_masses, survival

PIECES = 48
# Least information Σ n ε² of a piece's reports for the threshold, on average over the pieces; each has at least half of
# it. With less information the day is divided into fewer, longer pieces.
LEAST_INFORMATION = 700.0
# By how much a piece's parameters differ from the day's, as standard deviations: the level, and the logit of the share
# of readings above zero. The slopes have the prior of the day's likeliest component.
_LEVEL, _POSITIVE = 1.5, 1.0
# The correlation of two pieces falls to 1/e over this time, a share of the cycle.
_FADES = 1 / 8
# The share of the day's largest readings that counts as the tail. The few reports of a piece hardly determine its tail.
_TAIL = 0.1
# Weight of the piece's own tail. The rest is the day's tail, scaled to the piece's own mass there.
_OWN = 0.5
_DRAWS = 100
_RAKES = 5
_STEPS, _LONGEST_STEP, _ENOUGH = 30, 1.5, 0.01
# Relative residual at which a linear system counts as solved.
_RESIDUAL = 1e-13
# Largest number of steps to that residual, divided by the number of unknowns.
_MOST_STEPS = 10

Counts = NDArray[np.int64]


def pieces_of(cycle: int) -> int:
    """Return the largest number of pieces into which a cycle of ``cycle`` slots is divided."""
    return min(PIECES, cycle)


def piece_at(slot: int, cycle: int) -> int:
    """Return the number of the piece of the cycle that contains a slot."""
    return slot % cycle * pieces_of(cycle) // cycle


@dataclass(frozen=True)
class Phases:
    """One histogram, ``whole``, and its division by time of day: ``parts`` [pieces, symbols] sum to its counts."""

    whole: CohortCounts | ReportCounts
    parts: Counts


@dataclass(frozen=True)
class Day:
    """Distributions of the pieces: ``densities`` [pieces, draws, d] over integer ``edges`` [d + 1].

    The draws are equally likely. ``starts``: the first slot of the cycle of each piece. ``shares``: each piece's share
    of the cycle's slots.
    """

    edges: tuple[int, ...]
    densities: Vector
    starts: tuple[int, ...]
    shares: Vector

    def excess(self, thetas: Integers) -> Vector:
        """Return E[(x - θ)⁺] of each piece and draw; [pieces, draws, thetas]."""
        return self._excess.above(thetas)

    @property
    def pieces(self) -> Pieces:
        """The excess by piece, which an epoch keeps."""
        return Pieces.of(self.densities, self.edges, self.starts, self.shares.tolist())

    @cached_property
    def _excess(self) -> Excess:
        return Excess(self.densities, self.edges)


def day_of(histograms: Sequence[Phases], bound: int, cycle: int) -> Day | None:
    """Estimate the pieces' distributions.

    There is only one piece if the reports for the threshold have too little information (`LEAST_INFORMATION`) for two,
    or if one of the pieces would have less than half of it. Return None without reports for the threshold.
    """
    cohort = [phases for phases in histograms if isinstance(phases.whole, CohortCounts) and phases.whole.total]
    if not cohort:
        return None
    information = np.sum([_information(phases) for phases in cohort], axis=0)
    base = pieces_of(cycle)
    count = min(base, max(int(information.sum() / LEAST_INFORMATION), 1))
    # Neighbouring pieces are merged, with boundaries as even as possible.
    starts = np.unique(np.arange(count) * base // count)
    if np.add.reduceat(information, starts).min() < LEAST_INFORMATION / 2:
        starts = np.array([0])
    of_readings = [(phases.whole, phases.parts) for phases in histograms if isinstance(phases.whole, ReportCounts)]
    # Reports that come from a block of the day only do not represent all readings, so they are left out here.
    of_cycle = [reports for reports, parts in of_readings if parts.any(axis=1).all()]
    whole = posterior([phases.whole for phases in cohort], of_cycle, bound)  # type: ignore[misc]
    grid = decision_grid(bound, *(reports.theta for reports, _ in of_readings))
    first = [-(-int(start) * cycle // base) for start in starts]
    slots = np.diff([*first, cycle])
    of_day = _spread(whole, grid)
    observations = _observations(map(_honest, histograms), grid, starts)
    densities = of_day[None]
    if len(starts) > 1:
        lengths = whole.model.lengths(np.log(np.asarray(grid[1:-1], dtype=np.float64)))
        likelihoods = Likelihoods(whole.model, observations)
        parameters = _draws(likelihoods, _prior(whole.prior, whole.mode), _correlation((starts + 0.5) / base))
        densities = _tailed(cell_masses(survival(parameters, lengths)), of_day)
        if not of_readings:
            densities = _raked(densities, of_day, slots / cycle)
    densities = with_mode(densities, grid, observations, of_day.mean(axis=0), slots / cycle)
    return Day(grid, densities, tuple(first), slots / cycle)


def _information(phases: Phases) -> Vector:
    """Return the information n ε² of each piece's n reports; [pieces]."""
    assert isinstance(phases.whole, CohortCounts)
    return np.asarray(phases.parts.sum(axis=1) * phases.whole.epsilon**2)


def _prior(prior: Prior, mode: Mode) -> Prior:
    """Return the pieces' prior. Its mean is the day's mode. It is as wide as the day's prior, except for the level and
    the share of zeros.
    """
    precision = prior.precision.copy()
    precision[0, 0] = 1.0 / _LEVEL**2
    precision[-1, -1] = 1.0 / _POSITIVE**2
    return Prior(mode.parameters, precision)


def _honest(phases: Phases) -> Phases:
    """Lower the counts of symbols that honest devices cannot send so often. Each part loses by its share of the
    reports.
    """
    whole = phases.whole
    if not isinstance(whole, CohortCounts):
        return phases
    cleaned, removed = without_excess(whole)
    if not removed:
        return phases
    fakes = np.asarray(whole.counts) - np.asarray(cleaned.counts)
    shares = phases.parts.sum(axis=1) / max(whole.total, 1)
    return Phases(cleaned, np.maximum(phases.parts - np.rint(np.outer(shares, fakes)).astype(np.int64), 0))


def _observations(histograms: Iterable[Phases], grid: tuple[int, ...], starts: NDArray[np.intp]) -> list[Observation]:
    """Return the observations of all pieces, one for each histogram, with counts [pieces, N]."""
    observations = []
    for phases in histograms:
        whole = phases.whole
        merged = np.add.reduceat(phases.parts, starts, axis=0).astype(np.float64)
        if isinstance(whole, CohortCounts):
            observations.append(replace(cohort_observation(whole), counts=merged))
        else:
            matrix, groups = report_law(whole, grid)
            observations.append(Observation(grid[1:-1], matrix, np.add.reduceat(merged, groups, axis=1)))
    return observations


def _correlation(at: Vector) -> Vector:
    """Return the correlation of pieces at times ``at`` (shares of the cycle), e^(-distance/fades); [pieces, pieces]."""
    apart = np.abs(at[:, None] - at[None, :])
    return np.asarray(np.exp(-np.minimum(apart, 1.0 - apart) / _FADES))


def _draws(likelihoods: Likelihoods, prior: Prior, correlation: Vector) -> Vector:
    """Draw all pieces' parameters from the normal approximation of the posterior; [pieces, draws, p]."""
    pieces, size = len(correlation), len(prior.mean)
    between = np.asarray(np.linalg.inv(correlation), dtype=np.float64)

    def held(away: Vector) -> Vector:
        """Return the product of all pieces' prior precision and their deviations ``away`` from the mean [pieces, p].

        The precision is the Kronecker product of ``between`` and a single piece's precision.
        """
        return np.asarray(between @ away @ prior.precision)

    def value(away: Vector) -> float:
        return float(likelihoods.value(prior.mean + away).sum()) - float(np.sum(away * held(away))) / 2.0

    def scores(away: Vector) -> tuple[Vector, Vector]:
        """Return the posterior's gradient [pieces, p] and the likelihoods' information matrices [pieces, p, p].

        p is the number of parameters of a piece.
        """
        gradient, information = likelihoods.score(prior.mean + away)
        return gradient - held(away), information

    away = np.zeros((pieces, size))
    best = value(away)
    for _ in range(_STEPS):
        gradient, information = scores(away)
        step = solved(between, prior.precision, information, gradient)
        step *= min(1.0, _LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
        gain = value(away + step) - best
        while gain <= 0.0 and np.abs(step).max() > 1e-4:
            step /= 2.0
            gain = value(away + step) - best
        if gain <= 0.0:
            break
        away, best = away + step, best + gain
        if gain < _ENOUGH:
            break
    # Readers of a store import this module but never call this function, and scipy.linalg takes long to import.
    from scipy.linalg import cholesky, solve_triangular

    normal = np.random.default_rng(20211116).standard_normal((pieces * size, _DRAWS))
    # The matrix is transposed twice, so that its elements are in the order in which LAPACK needs them.
    precision = np.kron(between.T, prior.precision.T).T
    for number, seen in enumerate(scores(away)[1]):
        part = slice(number * size, (number + 1) * size)
        precision[part, part] += seen
    # numpy's Cholesky factor takes longer.
    root = cholesky(precision, lower=True, overwrite_a=True, check_finite=False)
    spread = solve_triangular(root, normal, lower=True, trans=1, check_finite=False)
    drawn = prior.mean + away[:, None, :] + spread.reshape(pieces, size, _DRAWS).transpose(0, 2, 1)
    return np.asarray(drawn)


def solved(between: Vector, within: Vector, blocks: Vector, right: Vector) -> Vector:
    """Return x [pieces, p] with (between ⊗ within + diag(blocks)) x = right, by conjugate gradients.

    ``between`` [pieces, pieces] and ``within`` [p, p] are positive definite. ``blocks`` [pieces, p, p], at least 0, are
    the blocks of a block diagonal matrix. The preconditioner is the inverse of the same sum with the mean of the blocks
    in place of each block; in the coordinates of ``between``'s eigenvectors it is block diagonal. The search ends at a
    relative residual of at most 1e-13, or after 10 steps for each unknown.
    """
    values, waves = np.linalg.eigh(between)
    inverses = np.linalg.inv(blocks.mean(axis=0) + values[:, None, None] * within)

    def preconditioned(rest: Vector) -> Vector:
        return np.asarray(waves @ np.matmul(inverses, (waves.T @ rest)[..., None])[..., 0])

    x, rest = np.zeros_like(right), right
    ahead = direction = preconditioned(rest)
    wanted = _RESIDUAL**2 * float(np.sum(rest * rest))
    # Without rounding, as many steps as there are unknowns would be enough.
    for _ in range(_MOST_STEPS * right.size):
        if float(np.sum(rest * rest)) <= wanted:
            break
        turned = between @ direction @ within + np.matmul(blocks, direction[..., None])[..., 0]
        progress = float(np.sum(rest * ahead))
        length = progress / float(np.sum(direction * turned))
        x, rest = x + length * direction, rest - length * turned
        ahead = preconditioned(rest)
        direction = ahead + float(np.sum(rest * ahead)) / progress * direction
    return x


def _spread(whole: Posterior, grid: tuple[int, ...]) -> Vector:
    """Return `_DRAWS` of the day's densities over the cells of ``grid``; [draws, d].

    Some draws get the heavier tail of `threshold.heavy`; their share is the probability of this tail.
    """
    taken = whole.densities[np.arange(_DRAWS) * len(whole.densities) // _DRAWS]
    below = np.concatenate([np.zeros((_DRAWS, 1)), np.cumsum(taken, axis=1)], axis=1)
    densities = np.diff([np.interp(grid, whole.edges, each) for each in below], axis=1)
    edges = np.asarray(grid, dtype=np.float64)
    seen = resolved(whole)
    chance = chance_of_heavier(densities.mean(axis=0), edges, seen)
    if seen is not None and chance > 0:
        for draw in np.flatnonzero(np.diff(np.floor(np.arange(_DRAWS + 1) * chance))).tolist():
            densities[draw] = heavier(densities[draw], edges, seen)
    return np.asarray(densities)


def _tailed(densities: Vector, whole: Vector) -> Vector:
    """Return the pieces' densities [pieces, draws, d] with a tail that is the average of their own and of the day's.

    The weight of the piece's own tail is `_OWN`. ``whole`` [draws, d]: the day's density, whose tail is scaled to the
    mass of the piece's tail.
    """
    first = int((np.cumsum(whole.mean(axis=0)) < 1.0 - _TAIL).sum()) + 1
    own, of_day = densities[..., first:], whole[:, first:]
    as_day = own.sum(axis=-1, keepdims=True) * of_day / np.maximum(of_day.sum(axis=-1, keepdims=True), 1e-300)
    return np.concatenate([densities[..., :first], _OWN * own + (1.0 - _OWN) * as_day], axis=-1)


def _raked(densities: Vector, whole: Vector, shares: Vector) -> Vector:
    """Scale the pieces' densities [pieces, draws, d] so that each draw's mean, weighted by ``shares``, is the day's
    [draws, d].

    The method is iterative proportional fitting.
    """
    densities = densities.copy()
    for _ in range(_RAKES):
        densities *= whole / np.maximum(np.tensordot(shares, densities, 1), 1e-300)
        densities /= densities.sum(axis=-1, keepdims=True)
    return densities

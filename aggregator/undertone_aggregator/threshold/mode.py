"""A group of large readings at certain times of day: in a part of the cycle, a share of the readings is one value M.

The fit of `threshold.day` continues the shape of the body. So it misses a second group of readings far above the body,
such as those of cars that charge in the evening. Here each of at most `_PARTS` parts of the cycle has the distribution
of the fit with probability 1 - a, and M with probability a; M is the same in all parts. With a prior for M and a, the
likelihood of the reports on a grid gives the posterior by summation.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.fit import Observation

_PARTS = 8
# Prior probability that a part of the cycle has no readings of this group.
_NONE = 0.7
# Largest number of reports of a part of the cycle that count in full. If there are more, each has a smaller weight.
# Otherwise, with very many reports, the group of large readings would be fitted to the small differences between real
# readings and the model of the other readings.
_BELIEVED = 20_000.0
# The values of M that are tried. The first is the value that a share `_RARE` of the day's readings exceeds, and each
# further one is `_RATIO` times the one before.
_RARE, _RATIO = 0.03, 2.0 ** (1 / 3)
# Shares of a part's readings that are tried, besides 0.
_SHARES = np.geomspace(0.003, 0.4, 24)


def with_mode(
    densities: Vector, edges: Sequence[int], observations: Sequence[Observation], whole: Vector, shares: Vector
) -> Vector:
    """Return the densities [pieces, draws, d] with a group of large readings, drawn from its posterior.

    ``observations``: the reports' counts [pieces, N]; ``whole`` [d]: the day's density; ``shares`` [pieces]: each
    piece's share of the cycle.
    """
    draws = densities.shape[1]
    edge = np.asarray(edges, dtype=np.float64)
    lowest = max(float(edge[int((np.cumsum(whole) < 1.0 - _RARE).sum())]), 2.0)
    if lowest * _RATIO >= edge[-1] - 1:
        return densities
    values = lowest * _RATIO ** np.arange(int(np.log((edge[-1] - 1) / lowest) / np.log(_RATIO)) + 1)
    middles = np.cumsum(shares) - shares / 2.0
    numbers = np.minimum((middles * _PARTS).astype(np.int64), _PARTS - 1)
    part = np.asarray(np.searchsorted(np.unique(numbers), numbers), dtype=np.int64)
    logs = _log_likelihoods(densities.mean(axis=1), edge, observations, part, values)
    prior = np.log(np.append(_NONE, np.full(len(_SHARES), (1.0 - _NONE) / len(_SHARES))))
    joint = logs - logs[:, :1, :1] + prior[:, None]
    each = np.logaddexp.reduce(joint, axis=1)
    of_value = each.sum(axis=0) - np.log(len(values))
    rng = np.random.default_rng(20240611)
    chances = np.exp(of_value - np.logaddexp.reduce(of_value))
    drawn = np.asarray(rng.choice(np.arange(len(values)), draws, p=chances / chances.sum()), dtype=np.int64)
    mixed = densities.copy()
    choices = np.append(0.0, _SHARES)
    for draw in range(draws):
        at = int(drawn[draw])
        cell = int(np.searchsorted(edge, values[at], side="right")) - 1
        weights = np.exp(joint[:, :, at] - each[:, None, at])
        of_part = np.array([rng.choice(choices, p=row / row.sum()) for row in weights])
        a = of_part[part]
        mixed[:, draw] *= (1.0 - a)[:, None]
        mixed[:, draw, min(cell, mixed.shape[2] - 1)] += a
    return mixed


def _log_likelihoods(
    density: Vector,
    edge: Vector,
    observations: Sequence[Observation],
    part: NDArray[np.int64],
    values: Vector,
) -> Vector:
    """Return the log-likelihood of each part, share a (0, then `_SHARES`) and value M; [parts, shares, values]."""
    parts = int(part.max()) + 1
    total = np.zeros((parts, len(_SHARES) + 1, len(values)))
    reports = np.zeros(parts)
    a = np.append(0.0, _SHARES)[None, :, None]
    below = np.concatenate([np.zeros((len(density), 1)), np.cumsum(density, axis=1)], axis=1)
    for observation in observations:
        points = np.asarray(observation.points, dtype=np.float64)
        at = np.array([np.interp(points, edge, row) for row in below])
        cells = np.diff(np.concatenate([np.zeros((len(at), 1)), at, np.ones((len(at), 1))], axis=1), axis=1)
        laws = cells @ observation.matrix.T
        columns = observation.matrix[:, np.searchsorted(points, values, side="right")].T
        counts = observation.counts
        for number in range(parts):
            ones = part == number
            of_part = counts[ones].sum(axis=0)
            if not of_part.any():
                continue
            weights = counts[ones].sum(axis=1)
            reports[number] += weights.sum()
            law = weights @ laws[ones] / max(weights.sum(), 1.0)
            used = of_part > 0
            mixture = (1.0 - a[..., None]) * law[used] + a[..., None] * columns[None, None, :, used]
            total[number] += np.log(np.maximum(mixture[0], 1e-300)) @ of_part[used]
    return total * np.minimum(1.0, _BELIEVED / np.maximum(reports, 1.0))[:, None, None]

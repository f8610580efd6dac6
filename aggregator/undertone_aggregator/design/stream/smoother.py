"""Smoothing a series whose noise covariance is known: generalised least squares under a random-walk level.

    z = x + γ,   γ ~ N(0, N) known,   x_t = level_t + season_{t mod cycle}

level: a random walk of standard deviation ``movement`` per slot with a diffuse start; season: one independent offset of
standard deviation ``season`` per phase of the cycle. The posterior mean K (K + N)^-1 z and its standard errors equal
those of the Rauch-Tung-Striebel smoother for the same model; this form also handles correlated N without extra states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid

# SciPy's modules are slow to import. Many commands import this module, and few call what needs SciPy.

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LONGEST = 2048
# Prior standard deviation of the level's start, in multiples of the data's scale: a diffuse prior.
_DIFFUSE = 1e3
# The values that are tried for ``movement``, the standard deviation of the level's step per slot, as shares of the
# data's scale.
_MOVEMENTS = np.geomspace(3e-3, 1.0, 10)
_NEGLIGIBLE = 1e-3
_SEASONS = np.array([0.0, 0.1, 0.3, 1.0])


@dataclass(frozen=True)
class Smoothed:
    """Smoothed means and standard errors [k], ``covariance`` [k, k].

    ``movement`` and ``season`` are posterior averages.
    """

    mean: Vector
    standard_error: Vector
    covariance: Matrix
    movement: float
    season: float


def prior(slots: Sequence[int], movement: float, season: float, cycle: int | None, scale: float) -> Matrix:
    """Return the prior covariance [k, k] of level and season at ``slots``, ascending.

    At the first slot the level has the standard deviation `_DIFFUSE` * ``scale``.
    """
    t = np.asarray(slots, dtype=np.float64) - slots[0]
    covariance = (_DIFFUSE * scale) ** 2 + movement**2 * np.minimum.outer(t, t)
    if cycle is not None:
        phase = np.asarray(slots) % cycle
        covariance = covariance + season**2 * np.equal.outer(phase, phase)
    return np.asarray(covariance)


def posterior_covariance(covariance: Matrix, noise: Matrix, seen: NDArray[np.intp] | None = None) -> Matrix:
    """Return the covariance of x, given z at the indices s = ``seen`` (None: all): K - K_s' (K_ss + N)^-1 K_s.

    K is the prior ``covariance``, and N the covariance ``noise`` of z about x.
    """
    from scipy.linalg import cho_factor, cho_solve

    part = covariance if seen is None else covariance[seen]
    inner = part if seen is None else part[:, seen]
    return np.asarray(covariance - part.T @ cho_solve(cho_factor(inner + noise), part))


def fit_gaussian_process(
    slots: Sequence[int],
    values: Vector,
    noise: Matrix,
    *,
    cycle: int | None = None,
    movement: float | None = None,
    season: float | None = None,
) -> Smoothed:
    """Compute the posterior of x at ``slots`` (ascending), averaged over movement and season where these are not given.

    What is not given is tried on a logarithmic grid and weighted by its likelihood. The single best value would be too
    confident, because correlated noise resembles a moving mean.

    ``noise`` [k, k]: covariance of ``values`` about x. Raises Invalid for more than 2048 slots, for none, and for
    ``values`` or ``noise`` of another shape.
    """
    if not 1 <= len(slots) <= LONGEST:
        raise Invalid(f"there are {len(slots)} slots to smooth, expected 1 to {LONGEST}")
    if noise.shape != (len(slots), len(slots)) or len(values) != len(slots):
        raise Invalid(
            f"there are {len(values)} values and noise of the shape {noise.shape}, expected those of {len(slots)} slots"
        )
    centre = float(np.mean(values))
    scale = max(float(np.std(values)), float(np.sqrt(np.mean(np.diag(noise)))), 1e-12)
    centred = values - centre

    choices = [
        (m, s)
        for m in (_MOVEMENTS * scale if movement is None else [movement])
        for s in ([0.0] if cycle is None else _SEASONS * scale if season is None else [season])
    ]
    logs = np.array([_likelihood(prior(slots, m, s, cycle, scale), centred, noise) for m, s in choices])
    weights = np.exp(logs - logs.max())
    weights[weights < _NEGLIGIBLE * weights.sum()] = 0.0
    weights /= weights.sum()
    fits = [
        (w, *_posterior(prior(slots, m, s, cycle, scale), centred, noise))
        for w, (m, s) in zip(weights, choices, strict=True)
        if w > 0
    ]
    mean = np.asarray(sum(w * centre for w, centre, _ in fits))
    covariance = np.asarray(sum(w * (after + np.outer(centre - mean, centre - mean)) for w, centre, after in fits))
    averages = weights @ np.array(choices)
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Smoothed(centre + mean, error, covariance, float(averages[0]), float(averages[1]))


def _likelihood(covariance: Matrix, values: Vector, noise: Matrix) -> float:
    """Return the log likelihood of z under one prior, up to a constant."""
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(covariance + noise)
    return -float(values @ cho_solve(factor, values)) / 2 - float(np.log(np.diag(factor[0])).sum())


def _posterior(covariance: Matrix, values: Vector, noise: Matrix) -> tuple[Vector, Matrix]:
    """Return mean and covariance of x given z under one prior."""
    from scipy.linalg import cho_factor, cho_solve

    solved = cho_solve(cho_factor(covariance + noise), np.column_stack([values, covariance]))
    return covariance @ solved[:, 0], covariance - covariance @ solved[:, 1:]

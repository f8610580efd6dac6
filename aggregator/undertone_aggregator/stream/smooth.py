"""Smoothing a series whose noise covariance is known: generalised least squares under a random-walk level.

    z = x + γ,   γ ~ N(0, N) known,   x_t = level_t + season_{t mod cycle}

level: a random walk of standard deviation ``movement`` per slot that starts anywhere; season: one independent offset
of standard deviation ``season`` per phase of the cycle. The posterior mean K (K + N)^-1 z and its standard errors are
those of the Rauch-Tung-Striebel smoother for the same model; with correlated N no state has to be invented.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from undertone_shared.errors import Invalid

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LONGEST = 2048
# The level's prior standard deviation, in multiples of the data's scale: it starts anywhere.
_DIFFUSE = 1e3


@dataclass(frozen=True)
class Smoothed:
    """Means and standard errors [k] given the fitted ``movement`` and ``season``; ``covariance`` [k, k]."""

    mean: Vector
    standard_error: Vector
    covariance: Matrix
    movement: float
    season: float


def prior(slots: Sequence[int], movement: float, season: float, cycle: int | None, scale: float) -> Matrix:
    """Covariance [k, k] of the level and season at ``slots``, ascending; ``scale`` of the level's start."""
    t = np.asarray(slots, dtype=np.float64) - slots[0]
    covariance = (_DIFFUSE * scale) ** 2 + movement**2 * np.minimum.outer(t, t)
    if cycle is not None:
        phase = np.asarray(slots) % cycle
        covariance = covariance + season**2 * np.equal.outer(phase, phase)
    return np.asarray(covariance)


def posterior(known: Matrix, noise: Matrix, seen: NDArray[np.intp] | None = None) -> Matrix:
    """Covariance of x given z at the indices ``seen`` (all without them): K - K_s' (K_ss + N)^-1 K_s."""
    part = known if seen is None else known[seen]
    inner = part if seen is None else part[:, seen]
    return np.asarray(known - part.T @ cho_solve(cho_factor(inner + noise), part))


def smooth(
    slots: Sequence[int],
    values: Vector,
    noise: Matrix,
    *,
    cycle: int | None = None,
    movement: float | None = None,
    season: float | None = None,
) -> Smoothed:
    """The posterior of x at ``slots`` (ascending), what is not given of movement and season by maximum likelihood.

    ``noise`` [k, k]: covariance of ``values`` about x. Raises Invalid for more than 2048 slots, or none.
    """
    if not 1 <= len(slots) <= LONGEST:
        raise Invalid(f"there are {len(slots)} slots to smooth, expected 1 to {LONGEST}")
    if noise.shape != (len(slots), len(slots)) or len(values) != len(slots):
        raise Invalid(f"values and noise are of {len(values)} and {noise.shape}, expected {len(slots)} slots")
    centre = float(np.mean(values))
    error = float(np.sqrt(np.mean(np.diag(noise))))
    scale = max(float(np.std(values)), error, 1e-12)
    centred = values - centre

    def known(parameters: tuple[float, float]) -> Matrix:
        return prior(slots, parameters[0], parameters[1], cycle, scale)

    fitted = _fit(known, centred, noise, scale, (movement, season if cycle is not None else 0.0))
    covariance = known(fitted)
    solved = cho_solve(cho_factor(covariance + noise), np.column_stack([centred, covariance]))
    after = covariance - covariance @ solved[:, 1:]
    return Smoothed(
        centre + covariance @ solved[:, 0],
        np.sqrt(np.maximum(np.diag(after), 0.0)),
        np.asarray(after),
        *fitted,
    )


def _fit(
    known: Callable[[tuple[float, float]], Matrix],
    values: Vector,
    noise: Matrix,
    scale: float,
    given: tuple[float | None, float | None],
) -> tuple[float, float]:
    """(movement, season), those that are None by maximum likelihood between 10^-4 and 10 times the scale."""
    free = [i for i in (0, 1) if given[i] is None]
    if not free:
        return given[0] or 0.0, given[1] or 0.0

    def complete(logs: Vector) -> tuple[float, float]:
        chosen = list(given)
        for i, value in zip(free, logs, strict=True):
            chosen[i] = exp(min(max(float(value), log(1e-4 * scale)), log(10 * scale)))
        return chosen[0] or 0.0, chosen[1] or 0.0

    def cost(logs: Vector) -> float:
        factor = cho_factor(known(complete(logs)) + noise)
        return float(values @ cho_solve(factor, values) / 2 + np.log(np.diag(factor[0])).sum())

    starts = [np.full(len(free), log(scale * share)) for share in (0.01, 0.1, 0.5)]
    best = min(starts, key=cost)
    options = {"xatol": 0.02, "fatol": 1e-3, "maxfev": 60 * len(free)}
    return complete(minimize(cost, best, method="Nelder-Mead", options=options).x)

"""The constrained Newton method for the likelihood of a mixture (Wang, JRSS B 69, 2007).

The optimum of Σ_j h_j ln (A f)_j over distributions f is positive in few cells. Each step adds the local maxima of the
gradient to the cells in use, maximises the quadratic model there by non-negative least squares, and backtracks.
"""

from dataclasses import dataclass

import numpy as np

from undertone_aggregator.threshold.channel import Channel, Vector

_START_CELLS = 64


@dataclass(frozen=True)
class Refined:
    """Result of the method: distribution [inputs], its log-likelihood, its certified gap and the number of steps."""

    density: Vector
    log_likelihood: float
    gap: float
    steps: int


def log_likelihood(channel: Channel, counts: Vector, f: Vector) -> float:
    """Return Σ_j h_j ln (A f)_j; `counts` [outputs], `f` [inputs]."""
    return float(counts @ np.log(channel.apply(f)))


def constrained_newton(channel: Channel, counts: Vector, start: Vector, wanted: float, limit: int) -> Refined:
    """Iterate from `start` [inputs] until the certified gap is at most `wanted`, for at most `limit` steps.

    The gap is a bound on how far the log-likelihood lies below its optimum. It is n (max_k D_k / n - 1), where n is the
    number of reports, and D = Aᵀ(h / A f) the gradient for the counts h. The iteration ends earlier if a step makes no
    more progress.
    """
    n = float(counts.sum())
    f = _gathered(start)
    likelihood = log_likelihood(channel, counts, f)
    for step in range(limit + 1):
        mixed = channel.apply(f)
        gradient = channel.adjoint(counts / mixed)
        gap = float(gradient.max()) - n
        if gap <= wanted or step == limit:
            break
        direction = _newton_point(channel, counts, f, mixed, gradient, n) - f
        f, after = _backtracked(channel, counts, f, direction, float(gradient @ direction), likelihood)
        if after <= likelihood:
            break
        likelihood = after
    return Refined(f, likelihood, gap, step)


def _gathered(f: Vector) -> Vector:
    """Move the mass of each of at most 64 blocks of cells to the block's heaviest cell."""
    block = -(-len(f) // _START_CELLS)
    out = np.zeros_like(f)
    for first in range(0, len(f), block):
        part = f[first : first + block]
        out[first + int(np.argmax(part))] = part.sum()
    return out


def _newton_point(channel: Channel, counts: Vector, f: Vector, mixed: Vector, gradient: Vector, n: float) -> Vector:
    """Return the distribution g that minimises ‖√h (A g / A f - 2)‖², the quadratic model at the current f.

    g is positive only in cells where f is positive, or where the gradient has a local maximum above ``n``; h are the
    counts.
    """
    rises = np.append(True, gradient[1:] >= gradient[:-1])
    falls = np.append(gradient[:-1] > gradient[1:], True)
    support = np.flatnonzero((f > 0) | (rises & falls & (gradient > n)))
    root = np.sqrt(counts)
    # The last row of the system asks, with a large weight, that the result sums to one. The result is normalised
    # anyway.
    system = np.empty((len(counts) + 1, len(support)))
    system[:-1] = channel.columns(support) * root[:, None] / mixed[:, None]
    # Readers of a store import this module but never call this function, and scipy.optimize takes long to import.
    from scipy.optimize import nnls

    firm = 10.0 * np.sqrt(n)
    system[-1] = firm
    weights, _ = nnls(system, np.append(2.0 * root, firm), maxiter=50 * len(support))
    point = np.zeros_like(f)
    point[support] = weights
    return np.asarray(point / point.sum())


def _backtracked(
    channel: Channel, counts: Vector, f: Vector, direction: Vector, slope: float, likelihood: float
) -> tuple[Vector, float]:
    """Return the first of f + t·direction, t = 1, 1/2, ..., that gains enough likelihood; f itself if none does."""
    t = 1.0
    while t > 1e-6:
        moved = np.maximum(f + t * direction, 0.0)
        moved[moved < 1e-15] = 0.0
        moved /= moved.sum()
        gained = log_likelihood(channel, counts, moved)
        if gained >= likelihood + 0.3 * t * slope or (t < 1e-3 and gained > likelihood):
            return moved, gained
        t /= 2.0
    return f, likelihood

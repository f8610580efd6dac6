"""The choice of a stream's θ from the distribution of readings that a threshold round found.

The error of a mean of n devices is ToPL's Eq. 8 with the variance of the stream's noise, and with one more part of the
bias: truncation at θ removes E[(x - θ)⁺], and clipped steps remove what the model of
`undertone_aggregator.estimate.clipping` says for readings of this distribution. A larger θ makes both smaller, because
the largest step is a share of the range.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.clipping import PART, levels_of, means_of
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.objective import Integers, mean_excess

Vector = NDArray[np.float64]

# Candidates for θ lie this much apart.
_APART = 1.02
_LEAST = 2


def stream_theta(found: Threshold, bound: int, slew: float | None, noise: float, devices: int) -> int:
    """Return the θ of least mean square error among integers that lie 2 % apart.

    ``found``: the distribution; ``slew``: largest step as a share of the range, None without a limit; ``noise``:
    variance of a device's report, as a share of θ²; ``devices``: how many report in a slot.
    """
    count = int(np.log(max(bound, _LEAST + 1) / _LEAST) / np.log(_APART)) + 2
    thetas = np.unique(np.geomspace(_LEAST, bound, count).astype(np.int64))
    bias = mean_excess(found.density, found.edges, thetas)
    if slew is not None:
        bias += PART * clipped_steps(found, thetas, slew, bias)
    return int(thetas[np.argmin(bias**2 + noise * np.square(thetas.astype(np.float64)) / devices)])


def clipped_steps(found: Threshold, thetas: Integers, slew: float, excess: Vector) -> Vector:
    """Return what clipped steps remove from the mean at each θ if every reading is drawn afresh.

    ``excess`` [thetas]: E[(x - θ)⁺].
    """
    edges = np.asarray(found.edges, dtype=np.float64)
    below = np.concatenate(([0.0], np.cumsum(found.density)))
    mean = float(np.dot(found.density, (edges[:-1] + edges[1:] - 1.0) / 2.0))
    shares = np.interp(thetas[:, None, None] * levels_of(slew), edges, below)
    return np.asarray(np.maximum(mean - excess - thetas * means_of(shares, slew), 0.0))

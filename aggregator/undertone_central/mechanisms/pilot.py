"""Statistics of the held-out values besides θ: their mean, for the first prediction, and their drift, for block sizes.

Values are truncated at θ, which is public by then. One changed value moves both statistics by a known amount, so
discrete Laplace noise makes them ε-DP. The statistics are

- the sum, which moves by at most θ;
- the drift D = Σ_i Σ_j |p P_ij - j S_{i-1}| of blocks of g values in p parts each, where S_i is the sum of block i and
  P_ij the sum of its first j parts, j = 1 … p-1. Each term is p times the error of the prediction that the first j
  parts of a block sum to jS_{i-1}/p. One value moves the terms of its own block by at most p(p-1)θ, and those of the
  next block by at most Σ jθ = p(p-1)θ/2.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from undertone_central.mechanisms.variance import average_variance
from undertone_central.noise.entropy import Bytes
from undertone_central.noise.laplace import Integers, discrete_laplace

Floats = NDArray[np.float64]
# Shares of the held-out values' ε that the mean and the drift use.
MEAN_SHARE = Fraction(1, 50)
DRIFT_SHARE = Fraction(1, 20)
# Only the newest held-out values are used, at most this number.
LONGEST = 1 << 16
# A block size is considered if the held-out values have at least this number of such blocks.
_BLOCKS = 8
_LAYOUTS = 4
_LARGEST_FANOUT = 64
# The error E|e| of larger blocks grows with their size g as g^h. This is the grid of h. For a short cycle h is 0, for
# independent values .5, for a random walk 1.5.
_GROWTH = np.linspace(0.0, 1.5, 31)
# Number of grid points for the error of the smallest blocks. The grid is logarithmic, with equal prior weights. It
# ranges from values of deviation θ/100 to values that all move together.
_ERRORS = 64
# Assumed ratio E e² / (E|e|)²: π/2 for a normal error, 4/3 for an error that grows along its block, and more for a
# stream that moves irregularly.
_SPREAD = 2.0


@dataclass(frozen=True)
class HierarchyShape:
    """Blocks of ``group`` values, the leaves of a hierarchy with ``levels`` levels and its own ``fanout``."""

    group: int
    fanout: int
    levels: int

    def noise(self, theta: int, epsilon: Fraction) -> float:
        """Return the variance of a random range's sum from the hierarchy's noise.

        It is 2 (levels θ/ε)², the noise variance of a node, times `average_variance`.
        """
        share = average_variance(self.fanout, self.levels, consistent=True)
        return float(2 * (self.levels * theta / epsilon) ** 2) * share


def noisy_mean(values: Integers, theta: int, epsilon: Fraction, source: Bytes) -> float:
    """Return the ε-DP mean of values in [0, θ], clipped to [0, θ]."""
    noise = int(discrete_laplace(theta / epsilon).sample(source, 1)[0])
    return min(max((int(values.sum()) + noise) / len(values), 0.0), float(theta))


def drift(values: Integers, group: int, parts: int) -> int:
    """Compute the drift D (see the module) of the last whole blocks of ``group`` values, in ``parts`` parts each."""
    inside = values[len(values) % group :].reshape(-1, parts, group // parts).sum(axis=2).cumsum(axis=1)
    return int(abs(parts * inside[1:, :-1] - np.arange(1, parts) * inside[:-1, -1:]).sum())


def drift_sensitivity(parts: int, theta: int) -> int:
    """Return the largest change of the drift D (see the module) if one value in [0, θ] changes."""
    return 3 * parts * (parts - 1) // 2 * theta


@cache
def layouts(span: int, fanout: int, values: int) -> tuple[HierarchyShape, ...]:
    """Return the layouts whose drift can be measured on ``values`` values, largest blocks first.

    There are at most four of them, with at least eight blocks each. Blocks are multiples of the fan-out. A layout with
    larger blocks is included only if it has less noise.
    """
    useful: list[HierarchyShape] = []
    for group in range(fanout, values // _BLOCKS + 1, fanout):
        trees = _trees(group, span // group) if span % group == 0 else []
        if trees:
            best = min(trees, key=lambda tree: tree.noise(1, Fraction(1)))
            if not useful or best.noise(1, Fraction(1)) < useful[-1].noise(1, Fraction(1)):
                useful.append(best)
    return tuple(useful[::-1][:_LAYOUTS])


def _trees(group: int, leaves: int) -> list[HierarchyShape]:
    return [
        HierarchyShape(group, fanout, levels)
        for levels in range(1, leaves.bit_length())
        for fanout in [round(leaves ** (1 / levels))]
        if 2 <= fanout <= _LARGEST_FANOUT and fanout**levels == leaves
    ]


def best_layout(
    values: Integers, theta: int, span: int, fanout: int, publishing: Fraction, epsilon: Fraction, source: Bytes
) -> HierarchyShape | None:
    """Return the layout of least expected mean squared error of random ranges, ε-DP in the values [n] in [0, θ].

    The error has two parts: the noise of the hierarchy at ε = ``publishing``, and 2 E e², where e is the error of a
    prediction within a block at one of the range's two ends. E|e| is the noisy drift D divided by p = ``fanout`` and by
    the number of D's terms (letters: see the module's docstring). The largest blocks are fewest, so half of ε is for
    their drift. Half of the rest is for the next size, and so on. Returns None if there are too few values to measure a
    drift.
    """
    able = layouts(span, fanout, len(values))
    if not able:
        return None
    seen, scales = np.empty((2, len(able)))
    for place, layout in enumerate(able):
        part = epsilon / 2 ** min(place + 1, len(able) - 1) if len(able) > 1 else epsilon
        scale = drift_sensitivity(fanout, theta) / part
        terms = fanout * (len(values) // layout.group - 1) * (fanout - 1)
        noisy = drift(values, layout.group, fanout) + int(discrete_laplace(scale).sample(source, 1)[0])
        seen[place], scales[place] = noisy / terms, float(scale) / terms
    squares = _expected_squares(np.array([layout.group for layout in able]), seen, scales, theta)
    costs = [
        layout.noise(theta, publishing) + 2 * _SPREAD * e for layout, e in zip(able, squares.tolist(), strict=True)
    ]
    return able[int(np.argmin(costs))]


def _expected_squares(groups: NDArray[np.int64], seen: Floats, scales: Floats, theta: int) -> Floats:
    """Return the posterior mean of (E|e|)² for each block size, given the noisy errors of all sizes.

    E|e| is assumed to grow as a power of the block size, so that each size informs the others. This is post-processing.
    ``groups``: block sizes; ``seen``: their errors E|e| with Laplace noise of ``scales``.
    """
    least = float(groups.min())
    errors = np.geomspace(0.01 * theta * math.sqrt(least), theta * least, _ERRORS)
    curves = errors[:, None, None] * (groups / least) ** _GROWTH[:, None]
    logs = -(np.abs(seen - curves) / scales).sum(axis=2)
    weights = np.exp(logs - logs.max())
    return np.asarray((curves**2 * weights[:, :, None]).sum(axis=(0, 1)) / weights.sum())

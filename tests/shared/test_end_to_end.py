"""Rounding and mechanism together, from real random words to the estimate.

Each check here fails for correct code with a probability of at most 1e-6: z beyond 4.9 (two-sided, 9.6e-7), or a chi-
square beyond its 1 - 1e-6 quantile. Their seeds are fixed. One test uses the system's entropy, so it has no seed and
fails with a probability of 1e-9.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from support.designed import MAKERS
from undertone_shared.entropy import Entropy
from undertone_shared.mechanism import Hybrid
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.seeded import Seeded

Z_LIMIT = 4.9
FALSE_ALARM = 1e-6
FALSE_ALARM_UNSEEDED = 1e-9
DEVICES = 200_000


def probabilities(mechanism, x, theta):
    """P(symbol | truncated reading x): first the unbiased rounding to two levels, then the weights."""
    k, rest = divmod(x * mechanism.levels, theta)
    low = np.array([Fraction(w, mechanism.row_total()) for w in mechanism.weights(k)], dtype=float)
    if not rest:
        return low
    high = np.array([Fraction(w, mechanism.row_total()) for w in mechanism.weights(k + 1)], dtype=float)
    return low + rest / theta * (high - low)


def assert_fits(counts, expected, false_alarm=FALSE_ALARM):
    """Pearson's chi-square. Neighbouring cells with few expected counts are joined into groups of about 20."""
    group = np.floor(np.cumsum(expected) / 20).astype(int)
    observed = np.bincount(group, counts)
    wanted = np.bincount(group, expected)
    keep = wanted > 0
    statistic = float(((observed - wanted)[keep] ** 2 / wanted[keep]).sum())
    assert statistic < chi2.isf(false_alarm, int(keep.sum()) - 1)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4"])
@pytest.mark.parametrize("name", ["stochastic-rounding", "piecewise", "piecewise-optimal", "hybrid"])
@pytest.mark.parametrize("x", [0, 209, 613])
def test_histogram_and_mean(name, epsilon, x):
    theta = 613
    mechanism = MAKERS[name](epsilon)
    words = Seeded(20210).words(x, range(DEVICES))
    counts = histogram(mechanism, np.full(DEVICES, x), theta, words)
    assert_fits(counts, DEVICES * probabilities(mechanism, x, theta))
    decoded = np.array([float(Fraction(*mechanism.decode(j, theta))) for j in range(mechanism.symbols)])
    mean = counts @ decoded / DEVICES
    variance = counts @ (decoded - mean) ** 2 / DEVICES
    assert abs(mean - x) < Z_LIMIT * (variance / DEVICES) ** 0.5


def test_scalar_draws_from_the_systems_entropy():
    mechanism = MAKERS["hybrid"]("1")
    assert isinstance(mechanism, Hybrid)
    entropy = Entropy()
    symbols = []
    for _ in range(10_000):
        entropy.refill()
        part = mechanism.choose(entropy)
        symbols.append(part.draw(part.level(150, 613, entropy), entropy))
    counts = np.bincount(symbols, minlength=mechanism.symbols)
    assert_fits(counts, len(symbols) * probabilities(mechanism, 150, 613), FALSE_ALARM_UNSEEDED)

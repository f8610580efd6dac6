"""ToPL's simulated errors on the 200 range queries agree with the formula E[MSE | θ] = bias² + mean length · V θ²/4."""

import numpy as np
import pytest
from scipy.stats import chi2, gamma

from undertone_aggregator.threshold import constant_variance
from undertone_studies.tops_local import expected_mse, reports
from undertone_studies.tops_streams import QUERIES, range_sums, stand_in

RUNS = 4
BLOCK = 256
ALARM = 1e-6


@pytest.fixture(scope="module")
def stream():
    return stand_in("Kosarak", 1)


# With θ = 40 most of the error is bias, and with θ = 400 most is noise.
@pytest.mark.slow
@pytest.mark.parametrize("theta", [40, 400])
def test_simulated_errors_are_the_expected_ones(stream, theta):
    drawn = [reports(stream.body, theta, seed) for seed in range(RUNS)]
    variance = constant_variance(1.0)(theta) * theta**2 / 4
    # The sums over blocks of 256 values have independent and nearly normal errors.
    noise = (np.array(drawn) - np.minimum(stream.body, theta)).reshape(-1, BLOCK).sum(axis=1)
    statistic = float(noise @ noise) / (BLOCK * variance)
    low, high = chi2.ppf([ALARM / 8, 1 - ALARM / 8], len(noise))
    assert low < statistic < high
    truth = range_sums(stream.body)
    simulated = np.mean([np.mean((range_sums(histogram) - truth) ** 2) for histogram in drawn])
    expected = expected_mse(stream, theta)
    # The queries overlap, so their errors are correlated. A sum of squares of correlated normal values nearly follows a
    # gamma distribution.
    first, end = QUERIES[:, 0], QUERIES[:, 1]
    covariance = variance * np.maximum(np.minimum.outer(end, end) - np.maximum.outer(first, first), 0)
    bias = -range_sums(np.maximum(stream.body - theta, 0))
    assert expected == pytest.approx(np.mean(bias**2) + np.trace(covariance) / len(bias))
    spread = (2 * np.sum(covariance**2) + 4 * bias @ covariance @ bias) / len(bias) ** 2 / RUNS
    shape = expected**2 / spread
    lowest, highest = gamma.ppf([ALARM / 8, 1 - ALARM / 8], shape, scale=expected / shape)
    print(f"θ = {theta}: noise {statistic / len(noise):.4f} of the expected, {low / len(noise):.3f} at least;")
    print(f"MSE {simulated:.4g}, expected {expected:.4g}, from {lowest:.4g} to {highest:.4g}")
    assert lowest < simulated < highest

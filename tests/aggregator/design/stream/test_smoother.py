"""Smoothing equals the Rauch-Tung-Striebel recursion for independent noise, and its standard errors hold."""

import numpy as np
import pytest

from undertone_aggregator.design.stream.smoother import LONGEST, fit_gaussian_process, posterior_covariance, prior
from undertone_shared.errors import Invalid


def rauch_tung_striebel(values, variances, movement, start):
    """The textbook recursion for a random walk in independent noise."""
    k = len(values)
    mean, spread = np.empty(k), np.empty(k)
    m, p = 0.0, start
    for i in range(k):
        if i:
            p += movement**2
        gain = p / (p + variances[i])
        m, p = m + gain * (values[i] - m), (1 - gain) * p
        mean[i], spread[i] = m, p
    for i in range(k - 2, -1, -1):
        ahead = spread[i] + movement**2
        gain = spread[i] / ahead
        mean[i] += gain * (mean[i + 1] - mean[i])
        spread[i] += gain**2 * (spread[i + 1] - ahead)
    return mean, np.sqrt(spread)


def test_independent_noise_gives_the_rts_smoother():
    rng = np.random.default_rng(3)
    truth = np.cumsum(rng.standard_normal(60)) * 0.3
    variances = rng.uniform(0.5, 2.0, 60)
    values = truth + rng.standard_normal(60) * np.sqrt(variances)
    smoothed = fit_gaussian_process(range(60), values, np.diag(variances), movement=0.3)
    centred = values - values.mean()
    scale = max(values.std(), np.sqrt(variances.mean()))
    mean, error = rauch_tung_striebel(centred, variances, 0.3, (1e3 * scale) ** 2)
    assert np.allclose(smoothed.mean - values.mean(), mean, atol=1e-4)
    assert np.allclose(smoothed.standard_error, error, rtol=1e-4)


@pytest.mark.parametrize("season", [None, 12])
def test_standard_errors_hold_for_correlated_noise(season):
    # Over 150 series, the mean squared error divided by its stated variance is 1 within 15 %.
    rng = np.random.default_rng(8)
    slots = np.arange(48)
    noise = 0.9 ** np.abs(np.subtract.outer(slots, slots))
    factor = np.linalg.cholesky(noise)
    known = {"movement": 0.2, "season": 0.5 if season else None, "cycle": season}
    squared, stated = 0.0, 0.0
    for _ in range(150):
        truth = 5 + np.cumsum(rng.standard_normal(48)) * 0.2
        if season:
            truth += np.tile(rng.standard_normal(12) * 0.5, 4)
        smoothed = fit_gaussian_process(slots, truth + factor @ rng.standard_normal(48), noise, **known)
        squared += np.mean((smoothed.mean - truth) ** 2)
        stated += np.mean(smoothed.standard_error**2)
    assert squared / stated == pytest.approx(1.0, abs=0.15)


def test_movement_and_season_are_fitted():
    rng = np.random.default_rng(1)
    slots = np.arange(96)
    season = np.tile(rng.standard_normal(12) * 2, 8)
    truth = np.cumsum(rng.standard_normal(96)) * 0.1 + season
    values = truth + rng.standard_normal(96)
    noise = np.eye(96)
    plain, seasonal = fit_gaussian_process(slots, values, noise), fit_gaussian_process(slots, values, noise, cycle=12)
    errors = [np.sqrt(np.mean((smoothed.mean - truth) ** 2)) for smoothed in (plain, seasonal)]
    assert errors[1] < 0.75 * errors[0]
    assert 1 < seasonal.season < 4
    assert seasonal.movement < 0.4


def test_missing_slots_and_unseen_ones():
    slots = [0, 1, 5, 6]
    smoothed = fit_gaussian_process(slots, np.array([1.0, 1.0, 3.0, 3.0]), np.eye(4) * 1e-6, movement=1.0)
    assert np.allclose(smoothed.mean, [1, 1, 3, 3], atol=1e-3)
    known = prior(range(7), 1.0, 0.0, None, 1.0)
    after = posterior_covariance(known, np.eye(2) * 1e-9, np.array([0, 6]))
    # Between two known ends, a random walk is a Brownian bridge with the variance t(6 - t)/6.
    assert np.allclose(np.diag(after)[1:6], [t * (6 - t) / 6 for t in range(1, 6)], rtol=1e-3)


def test_bad_sizes_are_refused():
    with pytest.raises(Invalid):
        fit_gaussian_process([], np.empty(0), np.empty((0, 0)))
    with pytest.raises(Invalid):
        fit_gaussian_process(range(3), np.zeros(3), np.eye(2))
    with pytest.raises(Invalid):
        fit_gaussian_process(range(LONGEST + 1), np.zeros(LONGEST + 1), np.eye(LONGEST + 1))

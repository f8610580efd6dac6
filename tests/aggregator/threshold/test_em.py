import numpy as np
import pytest

from undertone_aggregator.threshold import (
    MatrixChannel,
    PseudoReports,
    WindowChannel,
    ems_step,
    expectation_maximisation,
)
from undertone_shared.mechanism import WindowMechanism


def problem(d=48, n=20_000):
    mechanism = WindowMechanism(2721, 1001, 2 * (d // 4) + 1, 1, d - 1)
    channel = WindowChannel(mechanism)
    f = np.exp(-np.arange(d) / 6.0)
    counts = np.random.default_rng(3).multinomial(n, channel.apply(f / f.sum())).astype(float)
    return mechanism, channel, counts


def test_one_step_is_the_textbook_step():
    mechanism, channel, counts = problem()
    matrix = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]).T / mechanism.total
    fit = expectation_maximisation(channel, counts, max_iterations=2, accelerate=False, tolerance=0.0)
    f = np.full(48, 1 / 48)
    expected = f * (matrix.T @ (counts / (matrix @ f))) / counts.sum()
    np.testing.assert_allclose(fit.density, expected / expected.sum(), rtol=1e-10)
    assert fit.stopped == "iterations"
    assert not fit.converged


def test_the_gap_is_a_bound_and_acceleration_reaches_it():
    _, channel, counts = problem()
    best = expectation_maximisation(channel, counts, tolerance=1e-8, max_iterations=200_000)
    assert best.converged
    for accelerate in (False, True):
        loose = expectation_maximisation(channel, counts, tolerance=1e-3, accelerate=accelerate)
        assert loose.converged
        assert 0 <= loose.gap <= 1e-3 * counts.sum()
        assert best.log_likelihood <= loose.log_likelihood + loose.gap
        assert loose.density.sum() == pytest.approx(1.0)


def test_the_likelihood_never_falls_without_acceleration():
    _, channel, counts = problem()
    values = [
        expectation_maximisation(channel, counts, max_iterations=k, tolerance=0.0, accelerate=False).log_likelihood
        for k in range(1, 30)
    ]
    assert np.all(np.diff(values) >= -1e-6)


def test_pseudo_reports_have_a_certified_gap_too():
    _, channel, counts = problem()
    base = np.full(48, 1 / 48)
    prior = PseudoReports(500.0, base)
    fits = [
        expectation_maximisation(channel, counts, prior=prior, tolerance=tol, max_iterations=100_000)
        for tol in (1e-3, 1e-9)
    ]
    assert fits[1].converged

    def objective(fit):
        return fit.log_likelihood + 500.0 * base @ np.log(fit.density)

    assert objective(fits[1]) <= objective(fits[0]) + fits[0].gap
    assert fits[1].density.min() >= 500.0 / 48 / (counts.sum() + 500.0) * 0.999


def test_more_pseudo_reports_flatten_the_density():
    _, channel, counts = problem()
    spread = [
        np.ptp(expectation_maximisation(channel, counts, prior=PseudoReports(w), tolerance=1e-6).density)
        for w in (10.0, 1000.0, 100_000.0)
    ]
    assert spread[0] > spread[1] > spread[2]


def test_the_papers_stop_rule_and_smoothing():
    _, channel, counts = problem()
    plain = expectation_maximisation(channel, counts, stop="paper")
    smoothed = expectation_maximisation(channel, counts, stop="paper", smoother=ems_step)
    assert plain.stopped in ("step", "likelihood")
    assert smoothed.gap is None
    assert np.abs(np.diff(smoothed.density, 2)).sum() < np.abs(np.diff(plain.density, 2)).sum()


def test_smoothing_keeps_the_sum_and_weighs_as_printed():
    f = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(ems_step(f), [0, 0.25, 0.5, 0.25, 0, 0])
    ends = ems_step(np.array([1.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(ends, np.array([2 / 3, 1 / 4, 0, 0]) / (11 / 12))


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (np.zeros(3), {}, "counts go from 0 to 0"),
        (np.array([1.0, -1.0, 1.0]), {}, "counts go from -1 to 1"),
        (np.ones(4), {}, "expected 3 counts"),
        (np.ones(3), {"smoother": ems_step}, "no certified gap"),
        (np.ones(3), {"stop": "never"}, "stop is 'never'"),
    ],
)
def test_bad_input_is_refused(counts, options, message):
    with pytest.raises(ValueError, match=message):
        expectation_maximisation(MatrixChannel(np.eye(3) * 0.5 + 1 / 6), counts, **options)

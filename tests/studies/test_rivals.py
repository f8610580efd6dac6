"""The rivals' formulas agree with drawn reports or published values, and the study's sentences with its rows."""

import json
from math import exp, log, sqrt, tanh
from pathlib import Path

import numpy as np
import pytest

from undertone_studies.experiments import rivals as study
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.rivals import (
    CopiedFleet,
    Dissimilarity,
    Fast,
    _interval,
    adaptive,
    by_budget,
    by_population,
    duchi_variance,
    fast,
    filtered_stream,
    hindsight,
    perturbed_input,
    staircase_variance,
    three_outputs_variance,
)

RESULTS = Path(__file__).parents[2] / "docs/results"


def fleet(devices: int = 4000) -> CopiedFleet:
    readings = np.random.default_rng(1).exponential(100, (96, 50))
    return CopiedFleet(readings, devices, 48)


@pytest.mark.slow_but("1.0")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_staircase_is_below_laplace_and_near_it_for_small_epsilon(epsilon: float) -> None:
    """The test sums the second moment of the staircase over its steps, with the best share of a step."""
    b = exp(-epsilon)

    def variance(g: float) -> float:
        # The density is a on [0, 2g) and ab on [2g, 2). On each further interval of length 2, it is b times as large.
        a = (1 - b) / (4 * (g + b * (1 - g)))
        steps = np.arange(400)
        low, cut, high = 2 * steps, 2 * steps + 2 * g, 2 * steps + 2
        return float(2 * a * np.sum(b**steps * ((cut**3 - low**3) + b * (high**3 - cut**3)) / 3))

    least = min(variance(g) for g in np.linspace(0.001, 0.999, 4000))
    assert staircase_variance(epsilon) == pytest.approx(least, rel=1e-5)
    assert staircase_variance(epsilon) < 8 / epsilon**2


@pytest.mark.slow_but("1.0")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_three_outputs_are_one_bit_below_log_two_and_never_worse_at_worst(epsilon: float) -> None:
    x = np.linspace(-1, 1, 41)
    three = max(three_outputs_variance(epsilon, float(at)) for at in x)
    assert three <= duchi_variance(epsilon, 0.0) * (1 + 1e-9)
    if epsilon < log(2):
        assert three == pytest.approx(duchi_variance(epsilon, 0.0))


def test_errors_of_budget_and_population_have_their_variance() -> None:
    """For 96 slots of 30 runs, mean square / expectation has a standard deviation of .026.

    The limit of .16 is six of these.
    """
    of, generator, theta = fleet(), np.random.default_rng(2), 200.0
    mean, spread = of.truncated(theta)
    # With ε = 8/48 in a slot, the Hybrid is stochastic rounding, whose variance is coth²(ε/2) (θ/2)² at most.
    rounding = theta**2 / 4 / tanh(8 / 48 / 2) ** 2
    for make, variance in (
        (lambda: by_population(of, theta, 4.0, 49, generator), (4.0 * theta**2 / 4 + spread**2 * (1 - 81 / 4000)) / 81),
        (lambda: by_budget(of, theta, 8.0, generator), rounding / 4000),
    ):
        squares = np.mean([(make() - mean) ** 2 for _ in range(30)], axis=0)
        expected = np.mean(variance)
        assert squares.mean() / expected == pytest.approx(1, abs=0.16)


@pytest.mark.parametrize("absorbs", [False, True])
def test_adaptive_publication_follows_the_stream(absorbs: bool) -> None:
    """With ten million devices, there is hardly any noise.

    The slots before the jump show values near their mean, and so do those from twelve slots after the jump on.
    """
    readings = np.repeat(np.array([100.0] * 48 + [300.0] * 48)[:, None], 50, axis=1)
    out = adaptive(CopiedFleet(readings, 10_000_000, 48), 400.0, 1.0, np.random.default_rng(3), absorbs=absorbs)
    assert out[:48] == pytest.approx(100, abs=15)
    assert out[60:] == pytest.approx(300, abs=15)


def test_a_known_change_is_published_when_it_exceeds_the_error_to_expect() -> None:
    """At first, new values are published until one has a small error by chance.

    Then there is no new value until the readings jump, and the jump is published at once.
    """
    readings = np.repeat([[100.0], [300.0]], 24, axis=0) * np.ones(50)
    of = CopiedFleet(readings, 10_000_000, 48)
    out = adaptive(of, 400.0, 1.0, np.random.default_rng(3), absorbs=False, dissimilarity="known")
    assert len(set(out)) < 8
    assert out[23] == pytest.approx(100, abs=5)
    assert out[24] == pytest.approx(300, abs=5)


@pytest.mark.parametrize("absorbs", [False, True])
def test_a_square_whose_variance_is_kept_publishes_more_often(absorbs: bool) -> None:
    def published(dissimilarity: Dissimilarity) -> int:
        generator = np.random.default_rng(3)
        out = adaptive(fleet(), 400.0, 1.0, generator, absorbs=absorbs, dissimilarity=dissimilarity)
        return len(set(out))

    assert published("square") > published("unbiased")


@pytest.mark.parametrize("samples", [1, 5, 12, 48])
def test_a_days_samples_of_fast_have_its_budget_together(samples: int) -> None:
    """Each sample costs μ²/M, and a day has at most M samples, whatever slots the controller chooses."""
    of, squared = fleet(), 0.3
    counts = []
    for set_point in (0.01, 0.3, 100.0):
        _, sampled = fast(of, 200.0, squared, Fast(samples, set_point, 5.0, 100.0), np.random.default_rng(6))
        assert sampled == sorted(set(sampled))
        per_day = np.bincount(np.array(sampled) // of.window, minlength=2)
        assert per_day.min() >= 1
        assert np.all(per_day * (squared / samples) <= squared * (1 + 1e-12))
        counts.append(per_day.sum())
    # If no error exceeds the set point, the intervals become long. If all errors do, all samples are used.
    assert counts[0] == 2 * samples
    assert counts[-1] <= counts[0]
    if samples == 48:
        assert counts[-1] < counts[0] / 2


def test_the_noise_of_fasts_samples_is_that_of_its_budget() -> None:
    """If the variance Q of a step is assumed to be huge, a sampled slot shows just what was measured.

    The variance of this is θ² M/(μ² n).
    """
    of, theta, squared = fleet(), 200.0, 0.5
    parameters = Fast(48, 0.1, 0.0, 1e18)
    mean, _ = of.truncated(theta)
    runs = [fast(of, theta, squared, parameters, np.random.default_rng(i)) for i in range(30)]
    assert all(sampled == list(range(96)) for _, sampled in runs)
    square = np.mean([(out - mean) ** 2 for out, _ in runs])
    # The mean of 2,880 squares of normal values has a relative standard deviation of .026, and six of these are .16.
    assert square / (theta**2 * 48 / squared / of.devices) == pytest.approx(1, abs=0.16)


def test_fasts_filter_is_the_best_linear_estimate_of_a_random_walk() -> None:
    """Least squares over all samples so far gives the same newest value of a random walk, with the same variances."""
    of, theta, squared, process = fleet(), 200.0, 5.0, 30.0
    out, sampled = fast(of, theta, squared, Fast(12, 1e9, 3.0, process), np.random.default_rng(7))
    first_day = [at for at in sampled if at < of.window]
    assert len(first_day) >= 3
    assert max(np.diff(first_day)) > 1
    generator = np.random.default_rng(7)
    noise = theta**2 * 12 / squared / of.devices
    measured = [of.truncated(theta)[0][at] + sqrt(noise) * generator.standard_normal() for at in first_day]
    # The covariance of the earlier samples' values, relative to the last one, and of the samples' noise.
    apart = np.array([first_day[-1] - at for at in first_day], dtype=float)
    covariance = process * np.minimum.outer(apart, apart) + noise * np.eye(len(apart))
    weights = np.linalg.solve(covariance, np.ones(len(apart)))
    assert out[first_day[-1]] == pytest.approx(weights @ measured / weights.sum())
    assert out[first_day[-2] : first_day[-1]] == pytest.approx(out[first_day[-2]])


def test_fasts_interval_is_its_formula() -> None:
    parameters = Fast(12, 0.1, 5.0, 1.0)
    # The controller's error is .9 of the last error and .1 of the mean of the last five.
    errors = [9.0, 0.2, 0.1, 0.11, 0.12, 0.09]
    delta = 0.9 * 0.09 + 0.1 * (0.2 + 0.1 + 0.11 + 0.12 + 0.09) / 5
    assert _interval(errors, 3, 4.0, parameters) == pytest.approx(4 + 5 * (1 - exp((delta - 0.1) / 0.1)))
    assert _interval([0.1], 1, 4.0, parameters) == pytest.approx(4.0)
    assert _interval([1e9], 1, 4.0, parameters) == 1.0


def test_the_filter_of_correlated_noise_is_the_best_linear_estimate() -> None:
    share, noise, process, window = 0.8, 50.0, 30.0, 4
    measured = np.random.default_rng(8).normal(100, 20, 8)
    out = filtered_stream(measured, share, noise, process, window)
    t = np.arange(8)
    same = (t[:, None] // window) == (t[None, :] // window)
    correlated = np.where(same, noise * share ** np.abs(np.subtract.outer(t, t)).astype(float), 0.0)
    for last in (0, 3, 5, 7):
        apart = (last - t[: last + 1]).astype(float)
        covariance = process * np.minimum.outer(apart, apart) + correlated[: last + 1, : last + 1]
        weights = np.linalg.solve(covariance, np.ones(last + 1))
        assert out[last] == pytest.approx(weights @ measured[: last + 1] / weights.sum(), rel=1e-5)


def test_a_corrected_input_with_a_large_budget_gives_the_means() -> None:
    of = fleet()
    for margin in (None, 0.0, 0.5):
        out = perturbed_input(of, float(of.readings.max()), 48 * 200.0, np.random.default_rng(4), margin=margin)
        assert of.error(out) < 0.05


def test_hindsight_is_never_worse_than_a_constant() -> None:
    of = fleet()
    nonsense = np.random.default_rng(5).random(len(of.truth))
    constant = of.error(np.full(len(of.truth), of.truth.mean()))
    assert hindsight(of, nonsense) <= constant * (1 + 1e-9)
    assert hindsight(of, 3 * of.truth + 7) == pytest.approx(0, abs=1e-9)


def test_what_is_said_of_the_rivals_follows_from_the_stored_rows() -> None:
    kept = Outcome.of(json.loads((RESULTS / "rivals.json").read_text(encoding="utf-8")))
    rows = [tuple(row) for row in kept.rows]
    assert list(kept.notes)[2:] == study.notes_of(rows)


def test_what_the_guide_says_of_rivals_follows_from_the_stored_rows() -> None:
    """docs/comparison.md says: the test of LPD and LPA costs more than it gives, and a filter removes CGM's gain."""
    kept = Outcome.of(json.loads((RESULTS / "rivals.json").read_text(encoding="utf-8")))
    blocks: dict[tuple[Cell, ...], dict[str, float]] = {}
    for row in kept.rows:
        blocks.setdefault(tuple(row[:4]), {})[str(row[4])] = float(row[5])
    windows = [of for key, of in blocks.items() if key[0] == study.WINDOW]
    assert len(windows) == 4
    for of in windows:
        assert of[study.TURNS] < of["LPU"] < min(of["LPD"], of["LPA"])
        assert of["LPD, change known"] < of["LPD"] < of["LPD, variance kept"]
        assert of["LPA, variance kept"] < of["LPA"]
    means = [of for key, of in blocks.items() if key[0] == study.MEANS]
    assert len(means) == 8
    for of in means:
        assert of[study.SHIPS] < of["independent noise"]
        assert of[study.KALMAN] < min(of[study.SMOOTHED], of[study.FAST])

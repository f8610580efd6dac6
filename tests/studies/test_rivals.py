"""The rivals: their formulas against drawn reports or published values, and the study's sentences against its rows."""

import json
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from undertone_studies.experiments import rivals as study
from undertone_studies.outcome import Outcome
from undertone_studies.rivals import (
    CopiedFleet,
    adaptive,
    by_budget,
    by_population,
    duchi_variance,
    hindsight,
    perturbed_input,
    staircase_variance,
    three_outputs_variance,
)

RESULTS = Path(__file__).parents[2] / "docs/results"


def fleet(devices: int = 4000) -> CopiedFleet:
    readings = np.random.default_rng(1).exponential(100, (96, 50))
    return CopiedFleet(readings, devices, 48)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_staircase_is_below_laplace_and_near_it_for_small_epsilon(epsilon: float) -> None:
    """By numbers: the staircase's second moment, summed over its steps, at the best share of a step."""
    b = exp(-epsilon)

    def variance(g: float) -> float:
        # Density a on [0, 2g) and ab on [2g, 2), then b times as much on each further interval of length 2.
        a = (1 - b) / (4 * (g + b * (1 - g)))
        steps = np.arange(400)
        low, cut, high = 2 * steps, 2 * steps + 2 * g, 2 * steps + 2
        return float(2 * a * np.sum(b**steps * ((cut**3 - low**3) + b * (high**3 - cut**3)) / 3))

    least = min(variance(g) for g in np.linspace(0.001, 0.999, 4000))
    assert staircase_variance(epsilon) == pytest.approx(least, rel=1e-5)
    assert staircase_variance(epsilon) < 8 / epsilon**2


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_three_outputs_are_one_bit_below_log_two_and_never_worse_at_worst(epsilon: float) -> None:
    x = np.linspace(-1, 1, 41)
    three = max(three_outputs_variance(epsilon, float(at)) for at in x)
    assert three <= duchi_variance(epsilon, 0.0) * (1 + 1e-9)
    if epsilon < log(2):
        assert three == pytest.approx(duchi_variance(epsilon, 0.0))


def test_errors_of_budget_and_population_have_their_variance() -> None:
    """96 slots of 30 runs: the mean square over its expectation has a deviation of .026, 6 of them are .16."""
    of, generator, theta = fleet(), np.random.default_rng(2), 200.0
    mean, spread = of.truncated(theta)
    for make, variance in (
        (lambda: by_population(of, theta, 4.0, 49, generator), (4.0 * theta**2 / 4 + spread**2 * (1 - 81 / 4000)) / 81),
        (lambda: by_budget(of, theta, 8.0, generator), None),
    ):
        squares = np.mean([(make() - mean) ** 2 for _ in range(30)], axis=0)
        expected = squares.mean() if variance is None else np.mean(variance)
        assert squares.mean() / expected == pytest.approx(1, abs=0.16)


@pytest.mark.parametrize("absorbs", [False, True])
def test_adaptive_publication_follows_the_stream(absorbs: bool) -> None:
    """With ten million devices, noise is nothing: what is published is near the mean, or the last one still is."""
    readings = np.repeat(np.array([100.0] * 48 + [300.0] * 48)[:, None], 50, axis=1)
    out = adaptive(CopiedFleet(readings, 10_000_000, 48), 400.0, 1.0, np.random.default_rng(3), absorbs=absorbs)
    assert out[:48] == pytest.approx(100, abs=15)
    assert out[60:] == pytest.approx(300, abs=15)


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
    kept = Outcome.of(json.loads((RESULTS / "rivals.json").read_text()))
    rows = [tuple(row) for row in kept.rows]
    assert list(kept.notes)[2:] == study.notes_of(rows)

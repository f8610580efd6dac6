"""The study of the filter: its noise has the stated covariance, and the filter hardly ever adds error."""

import numpy as np
import pytest

from undertone_studies.experiments.filter import WAYS, run
from undertone_studies.filtering import STRIDE, event, measure, stream, synthetic, turns
from undertone_studies.registry import StudyOptions


@pytest.fixture(scope="module")
def truth():
    return synthetic("phones", 1, days=4, devices=1000)


@pytest.mark.parametrize("way", [event("1"), turns("2"), stream("1")])
def test_the_drawn_noise_has_the_stated_covariance(truth, way):
    published = way(truth, 1000)
    drawn = np.array([published.drawn(np.random.default_rng(seed)) for seed in range(400)]) - published.truth
    # With 400 draws of 192 slots, a slot's variance is known to 7 %, and their mean to half a per cent.
    assert np.mean(drawn**2 / published.noise.variance) == pytest.approx(1.0, abs=0.05)
    together = np.mean(drawn[:, 1:] * drawn[:, :-1], axis=0)
    carried = np.zeros(len(together)) if published.noise.carried is None else published.noise.carried[1:]
    expected = carried * published.noise.variance[:-1]
    assert np.abs(together - expected).max() < 6 * published.noise.variance.max() / 20


def test_turns_cost_the_sampling_too(truth):
    every, in_turn = event("1")(truth, 1000), turns("1")(truth, 1000)
    assert np.all(in_turn.noise.variance > (in_turn.theta / every.theta) ** 2 * STRIDE * every.noise.variance)


@pytest.mark.slow
def test_a_quick_run_gains_everywhere():
    outcome = run(StudyOptions(quick=True, only=("phones",)))
    assert [row[1] for row in outcome.rows] == list(WAYS)
    for row in outcome.rows:
        smoothed, held = row[4], row[5]
        assert smoothed < 1.02
        assert held > 0.85


@pytest.mark.slow
def test_never_worse_than_raw_by_two_percent():
    """The readings are counts, of which few are large, and their mean hardly moves. The filter can gain little here."""
    truth = synthetic("heavy-tail", 1, days=6)
    measured = measure(truth, event("1"), 50_000, [1, 2])
    assert measured.smoothed < 1.02
    assert measured.causal < 1.02

"""Errors, clipping and sampling of methods for streams, and the bias of the logarithmic method."""

from fractions import Fraction as F
from functools import cache

import numpy as np
import pytest

from undertone_aggregator.design.stream import methods as m
from undertone_aggregator.design.stream.calibration import mu
from undertone_shared.errors import Invalid

SLEW, SLOTS = F(1, 20), 48


@cache
def every() -> list[m.Method]:
    return m.all_methods(SLEW, SLOTS, 1.0, 1e-5)


def test_algorithm_2_has_the_error_of_eq_8():
    sigma = 48 / mu(1, 1e-5) ** 2
    error = np.mean(np.diag(m.select(every(), "differences").covariance)) / sigma
    assert error == pytest.approx(1 + 2 * 0.05**2 * 47)


@pytest.mark.slow
def test_corollary_5_2_by_simulation():
    # The mean squared error of Algorithm 3 is (4C - 4C²) σ² (1 + o(1)).
    rng = np.random.default_rng(4)
    limits = []
    for slots in (48, 400):
        paper = m.select(m.all_methods(F(1, 10), slots, 1.0, 1e-5), "paper")
        flat = np.full((2000, slots), 0.5)
        error = np.mean((paper.release(flat, rng) - 0.5) ** 2)
        limits.append(error / (4 * 0.1 - 4 * 0.01) / (slots / mu(1, 1e-5) ** 2))
        # The mean square error of 2,000 simulated series is within 5 % of the variance that the method states.
        assert error == pytest.approx(np.mean(np.diag(paper.covariance)), rel=0.05)
    assert 1.0 < limits[1] + 0.05 < limits[0] + 0.05
    assert limits[1] == pytest.approx(1.0, abs=0.06)


def test_clipping_is_against_the_previous_clipped_reading():
    method = m.select(every(), "closed-form")
    path = method.clipped(np.array([[0.5] + [0.9] * 3 + [0.0] * 44]))[0]
    assert path[:6] == pytest.approx([0.5, 0.55, 0.6, 0.65, 0.6, 0.55])
    # Algorithm 1 does not clip.
    assert m.select(every(), "direct").clipped(np.array([[0.1, 0.9] * 24]))[0, :2].tolist() == [0.1, 0.9]


def test_sampling_reports_every_fourth_slot_with_noise_for_a_quarter_of_them():
    method = m.select(every(), "sampled")
    assert method.seen.tolist() == list(range(0, 48, 4))
    assert np.diag(method.covariance) == pytest.approx(np.diag(m.select(every(), "direct").covariance)[0] / 4)
    assert m.select(every(), "sampled-cgm").slew == pytest.approx(0.2)
    assert np.mean(np.diag(m.select(every(), "sampled-cgm").covariance)) < np.mean(np.diag(method.covariance))


def test_the_logarithm_is_exact_without_noise_and_biased_with_it():
    base = m.select(m.all_methods(SLEW, 8, 1.0, 1e-5), "closed-form")
    method = m.logarithmic(base, 0.01)
    there, back = method.transform
    x = np.linspace(0, 1, 11)
    assert np.allclose(back(there(x)), x)
    rng = np.random.default_rng(2)
    deviation = 0.1
    up = back(there(np.full(200_000, 0.5)) + deviation * rng.standard_normal(200_000)).mean()
    width = np.log1p(100)
    assert (up + 0.01) / 0.51 == pytest.approx(np.exp((deviation * width) ** 2 / 2), rel=0.01)
    assert "biased" in method.note
    with pytest.raises(Invalid):
        m.logarithmic(base, 0)


def test_unknown_names_and_lengths_are_refused():
    with pytest.raises(Invalid, match="method is"):
        m.select(every(), "magic")
    with pytest.raises(Invalid, match="slots is"):
        m.all_methods(SLEW, 1, 1.0, 1e-5)

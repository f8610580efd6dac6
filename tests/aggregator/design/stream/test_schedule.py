"""Weights and covariances of the paper's schedule and of stationary schedules."""

from fractions import Fraction as F

import numpy as np
import pytest

from support.stream_paths import triangular
from undertone_aggregator.design.stream import schedule as s
from undertone_shared.errors import Invalid


@pytest.mark.parametrize("slew", [F(1, 100), F(1, 20), F(1, 4), F(2, 5)])
def test_the_papers_recursion_is_its_closed_form(slew):
    v = F(1)
    for i, row in enumerate(s.paper(slew, 60)):
        if i:
            v = v / ((1 - 2 * slew) ** 2 + v)
            r = row.taps[0]
            # Lines 6 and 7 of Algorithm 3
            assert 1 / row.weight == (1 - r + 2 * slew * r) ** 2
        assert abs(v - s.paper_variance(slew, i + 1)) < F(1, 10**12)


def test_released_noise_has_the_variance_of_eq_22():
    slew = F(1, 20)
    assert np.allclose(
        np.diag(s.covariance(s.paper(slew, 48, 64))), [float(s.paper_variance(slew, i)) for i in range(1, 49)]
    )


def test_rounded_schedules_are_charged_no_less_than_they_are():
    slew = F(1, 20)
    for exact, rounded in zip(s.paper(slew, 20), s.paper(slew, 20, 24), strict=True):
        if exact.taps:
            assert abs(exact.taps[0] - rounded.taps[0]) <= F(1, 1 << 25)
            r = rounded.taps[0]
            assert rounded.weight >= 1 / (1 - r + 2 * slew * r) ** 2


@pytest.mark.parametrize("taps", [(), (F(9, 10),), (F(58, 100), F(3, 10)), (F(7, 10), F(3, 100), F(14, 100))])
def test_a_stationary_schedule_has_one_variance_and_the_taps_covariance(taps):
    covariance = s.covariance(s.stationary(taps, 30))
    for lag in range(5):
        diagonal = np.diag(covariance, lag)
        assert np.allclose(diagonal, diagonal[0])
    if taps:
        later = sum(float(tap) * covariance[20, 20 - k] for k, tap in enumerate(taps, 1))
        assert covariance[20, 20] == pytest.approx(later + 1)


def test_the_general_form_is_read_as_it_is_written():
    rows = triangular([[F(0), F(0), F(0)], [F(1, 2), F(0), F(0)], [F(1, 4), F(1, 3), F(0)]], [F(1), F(2), F(4)])
    assert [row.taps for row in rows] == [(), (F(1, 2),), (F(1, 3), F(1, 4))]
    assert [row.weight for row in rows] == [1, F(1, 2), F(1, 4)]
    mixing = np.linalg.inv(np.array([[1, 0, 0], [-0.5, 1, 0], [-0.25, -1 / 3, 1]]))
    assert np.allclose(s.covariance(rows), mixing @ np.diag([1, 2, 4]) @ mixing.T)


@pytest.mark.parametrize("slew", [F(0), F(1, 2), F(-1, 9), 0.05, F(2)])
def test_a_slew_out_of_range_is_refused(slew):
    with pytest.raises(Invalid, match="slew is"):
        s.paper(slew, 5)


@pytest.mark.parametrize("slots", [0, -1, 65536, 2.0, True])
def test_a_length_out_of_range_is_refused(slots):
    with pytest.raises(Invalid, match="slots is"):
        s.paper(F(1, 20), slots)


def test_growing_noise_is_refused():
    with pytest.raises(Invalid, match="without bound"):
        s.stationary([F(1)], 5)

"""The study of θ by time of day: its table states what its runs gave, and blocks reduce the error."""

import numpy as np
import pytest

from undertone_shared.errors import Invalid
from undertone_studies.experiments.theta_day import Arm, _ratio, _row, run
from undertone_studies.registry import StudyOptions


def arm(error, variance, thetas):
    day = np.full(48, 1.0)
    return Arm(error * day, error * day, variance * day, 0.95, 0.99, thetas, (thetas[0],) * 48)


def test_a_row_compares_the_two_arms():
    plain = [arm(100.0, 90.0, (1000,)), arm(110.0, 90.0, (1100,))]
    blocks = [arm(85.0, 22.5, (500, 1200)), arm(85.0, 22.5, (400, 900, 1300))]
    columns = _row(5000, "1", plain, blocks)
    assert columns[:3] == [5000, "1", pytest.approx(170 / 210)]
    assert columns[6] == pytest.approx(0.5)
    assert columns[-3:] == ["2 to 3", "450 to 1250", 1050]


def test_the_ratio_of_means_has_its_error():
    ratio, error = _ratio([1.0, 3.0], [2.0, 6.0])
    assert (ratio, error) == (0.5, 0.0)


def test_without_the_data_it_says_so():
    with pytest.raises(Invalid, match="needs the real data sets"):
        run(StudyOptions())


@pytest.mark.slow
def test_blocks_gain_on_edrp(undertone_data):
    outcome = run(StudyOptions(data=undertone_data, quick=True))
    assert len(outcome.rows) == 1
    expected, night = outcome.rows[0][4], outcome.rows[0][6]
    assert expected < 0.97
    assert night < 0.65

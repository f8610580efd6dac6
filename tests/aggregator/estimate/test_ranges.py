from dataclasses import replace

import pytest

from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate, Series
from undertone_aggregator.estimate.ranges import drowned, over

ONE = Estimate(96, 96 * 1800, Series("all"), MEASURED, 600, 30, 200.0, 3.0, 194.1, 205.9, 700, 10.0, 4.0, 196.0, 224.0)


def test_noise_averages_out_and_bias_does_not() -> None:
    day = [replace(ONE, slot=96 + i, start=(96 + i) * 1800, estimate=200.0 + i) for i in range(48)]
    (whole,) = over([*day, replace(ONE, slot=100, kind=MODEL, standard_error=None)], 48)
    assert (whole.first, whole.last, whole.start, whole.slots, whole.reports) == (96, 143, 96 * 1800, 48, 48 * 600)
    assert whole.estimate == pytest.approx(223.5)
    assert whole.standard_error == pytest.approx(3.0 / 48**0.5)
    assert whole.low == pytest.approx(223.5 - 1.96 * whole.standard_error, rel=1e-4)
    assert (whole.bias, whole.bias_se) == (pytest.approx(10.0), pytest.approx(4.0))
    assert whole.low_raw is not None
    assert whole.low_raw == pytest.approx(223.5 + 10 - 1.96 * (whole.standard_error**2 + 16) ** 0.5, rel=1e-4)


def test_runs_are_counted_from_slot_zero_and_by_group() -> None:
    ones = [replace(ONE, slot=95, start=95 * 1800), ONE, replace(ONE, series=Series("north"))]
    assert [(run.first, run.group, run.slots) for run in over(ones, 48)] == [
        (48, "all", 1),
        (96, "all", 1),
        (96, "north", 1),
    ]


def test_a_run_without_a_bias_model_has_no_wider_interval() -> None:
    (whole,) = over([ONE, replace(ONE, slot=97, start=97 * 1800, bias=None, bias_se=None)], 48)
    assert (whole.bias, whole.low_raw, whole.high_raw) == (None, None, None)


def test_noise_that_drowns_the_signal_is_said_plainly() -> None:
    assert drowned([]) is None
    assert drowned([ONE]) is None
    sentence = drowned([replace(ONE, estimate=20.0, standard_error=60.0)])
    assert sentence is not None
    assert "the standard error of a slot (60) exceeds its mean (20)" in sentence
    assert "more than 5400 devices" in sentence
    assert drowned([replace(ONE, estimate=1010.0, standard_error=60.0)], offset=1000) is not None

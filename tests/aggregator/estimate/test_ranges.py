from collections.abc import Sequence
from dataclasses import replace

import pytest

from undertone_aggregator.estimate.estimates import (
    MEASURED,
    MODEL,
    RELEASED,
    Estimate,
    Estimates,
    Load,
    RangeEstimate,
    Series,
)
from undertone_aggregator.estimate.ranges import Places, drowned, over

# The truncated readings have the mean 190 with an error of 3. Truncation has removed 10 with an error of 4.
ONE = Estimate(96, 96 * 1800, Series("all"), MEASURED, 600, 30, *Load.of(190.0, 3.0)[:4], 700)
ONE = replace(ONE, **Load.of(190.0, 3.0, 10.0, 4.0)._asdict())


def runs(rows: Sequence[Estimate], every: int) -> list[RangeEstimate]:
    """Means over runs of slots whose biases share one error."""
    estimates = Estimates.of(rows)

    def shared(places: Places) -> float:
        return float(estimates.bias_se[places].mean())

    return over(estimates, every, shared)


def said(row: Estimate, offset: int = 0) -> str | None:
    return drowned(Estimates.of([row]), offset)


def test_noise_averages_out_and_bias_does_not() -> None:
    day = [replace(ONE, slot=96 + i, start=(96 + i) * 1800, estimate=200.0 + i) for i in range(48)]
    (whole,) = runs([*day, replace(ONE, slot=100, kind=MODEL, standard_error=None)], 48)
    assert (whole.first, whole.last, whole.start, whole.slots, whole.reports) == (96, 143, 96 * 1800, 48, 48 * 600)
    assert whole.estimate == pytest.approx(223.5)
    assert whole.truncated_mean == pytest.approx(213.5)
    assert whole.truncated_se == pytest.approx(3.0 / 48**0.5)
    assert (whole.bias, whole.bias_se) == (pytest.approx(10.0), pytest.approx(4.0))
    assert whole.standard_error == pytest.approx((9 / 48 + 16) ** 0.5)
    assert whole.low == pytest.approx(223.5 - 1.96 * whole.standard_error, rel=1e-4)


def test_runs_are_counted_from_slot_zero() -> None:
    ones = [replace(ONE, slot=95, start=95 * 1800), ONE, replace(ONE, slot=97)]
    assert [(run.first, run.last, run.slots) for run in runs(ones, 48)] == [(48, 95, 1), (96, 143, 2)]


def test_a_run_without_a_bias_model_is_of_truncated_means() -> None:
    without = replace(ONE, slot=97, start=97 * 1800, **Load.of(190.0, 3.0)._asdict())
    (whole,) = runs([ONE, without], 48)
    assert (whole.bias, whole.bias_se) == (None, None)
    assert (whole.estimate, whole.standard_error) == pytest.approx((190.0, 3.0 / 2**0.5))


def test_noise_that_drowns_the_signal_is_said_plainly() -> None:
    assert drowned(Estimates.of([])) is None
    assert said(ONE) is None
    sentence = said(replace(ONE, **Load.of(20.0, 60.0)._asdict()))
    assert sentence is not None
    assert "its standard error (60) is larger than its mean (20)" in sentence
    assert "more than 5400 reports a slot" in sentence
    large = said(replace(ONE, **Load.of(600.6, 1090.4)._asdict()))
    assert large is not None
    assert "its standard error (1090) is larger than its mean (601)" in large
    assert said(replace(ONE, **Load.of(1010.0, 60.0)._asdict()), offset=1000) is not None
    assert said(replace(ONE, kind=RELEASED, **Load.of(20.0, 60.0)._asdict())) is not None


def test_means_over_slots_are_advised_only_where_noise_averages_out() -> None:
    noisy = replace(ONE, **Load.of(190.0, 380.0)._asdict())
    alone, stream = said(noisy), said(replace(noisy, kind=RELEASED))
    assert str(alone).endswith("Means over many slots, more than 2400 reports a slot, or a larger epsilon show more")
    assert str(stream).endswith("More than 2400 reports a slot or a larger epsilon show more")

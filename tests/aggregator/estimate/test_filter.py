"""The filter has smaller errors than raw values where it can, equals them elsewhere, and its stated errors hold."""

from dataclasses import replace

import numpy as np
import pytest

from support.refusal import refused
from undertone_aggregator.estimate import filter as core
from undertone_aggregator.estimate.calendar import Days, calendar, days_of
from undertone_aggregator.estimate.filter import FEWEST, Noise, filtered, fit, mixed, running, step, unsettled
from undertone_aggregator.estimate.state_space import BLOCK
from undertone_shared.errors import Invalid

HALF_HOUR, DAY = 1800, 48
MONDAY = 1_798_416_000 // HALF_HOUR


def household(rng, slots, weekend=0.0, shift=None):
    """A daily curve with two peaks, deviations that last some hours, and days off that are higher by ``weekend``."""
    phase = calendar(slots, HALF_HOUR, DAY, shift)
    curve = 200 + 80 * np.sin(2 * np.pi * (phase.phase - 0.4)) + 50 * np.sin(4 * np.pi * (phase.phase - 0.1))
    memory = np.empty(len(slots))
    last = 0.0
    for i in range(len(slots)):
        last = 0.8 * last + 0.6 * 12 * rng.standard_normal()
        memory[i] = last
    return curve + memory + weekend * (phase.off if phase.off is not None else 0)


def rms(error):
    return float(np.sqrt(np.mean(np.square(error))))


def independent(rng, truth, deviation):
    return truth + deviation * rng.standard_normal(len(truth)), Noise(np.full(len(truth), deviation**2))


def test_it_gains_and_its_intervals_hold():
    # Twelve fits of ten days have 5,760 errors, which are correlated over hours: the share within the intervals is
    # known to about 1 %.
    rng = np.random.default_rng(1)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    held, causal, gains = [], [], []
    for _ in range(12):
        truth = household(rng, slots)
        values, noise = independent(rng, truth, 30.0)
        result = filtered(slots, values, noise, calendar(slots, HALF_HOUR, DAY))
        assert result.used
        gains.append(rms(result.mean - truth) / rms(values - truth))
        held.append(np.mean(np.abs(result.mean - truth) < 1.96 * result.standard_error))
        causal.append(np.mean(np.abs(result.causal - truth)[DAY:] < 1.96 * result.causal_error[DAY:]))
    assert max(gains) < 0.6
    assert 0.92 < np.mean(held) < 0.98
    assert 0.92 < np.mean(causal) < 0.98


def test_white_signals_are_left_as_they_are():
    """If slots are independent and noise is small, filtered values and errors equal the raw ones."""
    rng = np.random.default_rng(2)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    values, noise = independent(rng, 200 + 40 * rng.standard_normal(len(slots)), 3.0)
    result = filtered(slots, values, noise, calendar(slots, HALF_HOUR, DAY))
    assert not result.used
    assert np.array_equal(result.mean, values)
    assert np.array_equal(result.causal, values)
    assert np.allclose(result.standard_error, 3.0)


def test_what_each_slot_has_by_chance_is_in_the_interval():
    """Readings stay the same, but other devices report in each slot, so the mean jumps by a third of the noise."""
    rng = np.random.default_rng(9)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    held = []
    for _ in range(4):
        truth = 200 + 10 * rng.standard_normal(len(slots))
        values, noise = independent(rng, truth, 30.0)
        result = filtered(slots, values, replace(noise, chance=0.35), calendar(slots, HALF_HOUR, DAY))
        held.append(np.mean(np.abs(result.mean - truth) < 1.96 * result.standard_error))
    assert np.mean(held) > 0.9


def test_one_point_of_many_is_not_all_of_the_variance():
    """Of nine points with equal weights, one states ten times the error.

    The mixture's error is near that of the others.
    """
    rng = np.random.default_rng(11)
    slots = np.arange(MONDAY, MONDAY + 2 * DAY)
    values, noise = independent(rng, household(rng, slots), 30.0)
    fitted = fit(slots, values, noise, calendar(slots, HALF_HOUR, DAY))
    means, variances = np.zeros((1, 9)), np.array([[1.0] * 8 + [100.0]])
    assert mixed(means, variances, fitted)[1] / fitted.scale**2 == pytest.approx(100 ** (1 / 9))
    assert mixed(means + np.arange(9), variances, fitted)[1] / fitted.scale**2 == pytest.approx(
        100 ** (1 / 9) + np.var(np.arange(9))
    )


@pytest.mark.slow
def test_what_hardly_moves_has_no_interval_of_twice_its_error():
    """The signal is a constant in large noise.

    Over twelve draws of 14 days, the stated error is less than 1.6 times the true one.
    """
    rng = np.random.default_rng(12)
    slots = np.arange(MONDAY, MONDAY + 14 * DAY)
    stated, true = [], []
    for _ in range(12):
        values, noise = independent(rng, np.full(len(slots), 200.0), 100.0)
        result = filtered(slots, values, noise, calendar(slots, HALF_HOUR, DAY))
        stated.append(np.mean(result.standard_error**2))
        true.append(np.mean((result.mean - 200.0) ** 2))
    assert np.sqrt(np.mean(stated) / np.mean(true)) < 1.6


def test_a_fit_from_an_earlier_one_comes_to_the_same():
    rng = np.random.default_rng(13)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    values, noise = independent(rng, household(rng, slots), 30.0)
    days = calendar(slots, HALF_HOUR, DAY)
    half = fit(slots[: 5 * DAY], values[: 5 * DAY], noise.part(0, 5 * DAY), days.part(0, 5 * DAY))
    anew = filtered(slots, values, noise, days)
    again = filtered(slots, values, noise, days, before=half)
    assert rms(again.mean - anew.mean) < 0.1 * rms(anew.standard_error)


@pytest.mark.slow
def test_a_fit_takes_few_evaluations(monkeypatch):
    """Each of eight fits takes at most 10 evaluations."""
    rng = np.random.default_rng(3)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    evaluate, taken = core._evaluate, []

    def counted(*arguments):
        taken[-1] += 1
        return evaluate(*arguments)

    monkeypatch.setattr(core, "_evaluate", counted)
    for _ in range(8):
        taken.append(0)
        values, noise = independent(rng, household(rng, slots), 30.0)
        fit(slots, values, noise, calendar(slots, HALF_HOUR, DAY))
    assert max(taken) <= 10, taken


def test_few_slots_are_left_as_they_are():
    slots = np.arange(FEWEST - 1)
    result = filtered(slots, np.ones(FEWEST - 1), Noise(np.ones(FEWEST - 1)), calendar(slots, HALF_HOUR, DAY))
    assert not result.used
    assert result.fitted is None


@pytest.mark.parametrize("values", [np.full(200, 7.0), np.zeros(200), np.r_[np.zeros(199), 1e9]])
def test_degenerate_series_stay_finite(values):
    slots = np.arange(200)
    result = filtered(slots, values, Noise(np.full(200, 1e-3)), calendar(slots, HALF_HOUR, DAY))
    for numbers in (result.mean, result.standard_error, result.causal, result.causal_error):
        assert np.isfinite(numbers).all()


@pytest.mark.slow
def test_correlated_noise_of_streams_renewed_each_day():
    rng = np.random.default_rng(3)
    slots = np.arange(MONDAY, MONDAY + 14 * DAY)
    squares = raws = 0.0
    held = []
    carried = np.where(np.arange(len(slots)) % DAY == 0, 0.0, 0.9)
    for _ in range(6):
        truth = household(rng, slots)
        noise = np.empty(len(slots))
        for i in range(len(slots)):
            fresh = 49.0 * rng.standard_normal()
            noise[i] = fresh if carried[i] == 0 else carried[i] * noise[i - 1] + np.sqrt(1 - carried[i] ** 2) * fresh
        values = truth + noise
        result = filtered(slots, values, Noise(np.full(len(slots), 49.0**2), carried), calendar(slots, HALF_HOUR, DAY))
        squares += rms(result.mean - truth) ** 2
        raws += rms(values - truth) ** 2
        held.append(np.mean(np.abs(result.mean - truth) < 1.96 * result.standard_error))
    assert np.sqrt(squares / raws) < 0.5
    assert 0.90 < np.mean(held) < 0.99


@pytest.mark.slow
def test_days_off_and_the_clocks_change():
    """By London's clock the daily curve stays as it is when the clocks change, and weekends are higher.

    A filter that knows both has smaller errors than one that uses UTC or treats all days alike.
    """
    rng = np.random.default_rng(4)
    first = MONDAY - 14 * DAY - (MONDAY * HALF_HOUR - 1_792_281_600) // HALF_HOUR
    slots = np.arange(first, first + 28 * DAY)
    london = days_of("Europe/London")
    truth = household(rng, slots, weekend=60.0, shift=london)
    values, noise = independent(rng, truth, 30.0)
    errors = {}
    for name, days in (("local", london), ("utc", Days()), ("alike", Days(london.zone, None))):
        result = filtered(slots, values, noise, calendar(slots, HALF_HOUR, DAY, days))
        errors[name] = rms(result.mean - truth)
    assert errors["local"] < 0.95 * min(errors["utc"], errors["alike"])


def test_an_update_by_one_slot_is_the_causal_filter():
    rng = np.random.default_rng(5)
    slots = np.arange(MONDAY, MONDAY + 4 * DAY)
    values, noise = independent(rng, household(rng, slots), 30.0)
    days = calendar(slots, HALF_HOUR, DAY)
    fitted = fit(slots, values, noise, days)
    whole = filtered(slots, values, noise, days, fitted)
    run = running(fitted, noise)
    # Both ways condition one Gaussian, by the Cholesky factor of the covariance of one value or of a block of b values.
    # Each result is off by at most b ε κ of the values (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    # 10.1). The covariance's condition κ is at most its trace over the least variance of the noise.
    least = float(noise.variance.min()) / fitted.scale**2
    prior = fitted.model.components(fitted.points).variance.sum(axis=1).max()
    off = 2 * BLOCK * np.finfo(float).eps * BLOCK * (prior + least) / least
    deviations = np.abs(values - fitted.centre).max()
    left = 0
    for i in range(len(slots)):
        part = slice(i, i + 1)
        of_slot = (slots[part], values[part], noise.part(i, i + 1), days.part(i, i + 1))
        mean, error, left = step(run, fitted, *of_slot, left)
        assert mean[0] == pytest.approx(whole.causal[i], rel=0.0, abs=off * deviations)
        assert error[0] ** 2 == pytest.approx(whole.causal_error[i] ** 2, rel=0.0, abs=off * noise.variance[i])


@pytest.mark.slow_but("0.4")
@pytest.mark.parametrize("factor", [2.0, 0.4])
def test_after_a_step_the_raw_values_are_shown_until_the_filter_has_settled(factor):
    """The signal jumps from one slot to the next.

    Around the jump, the true value is within four standard errors of the shown one.
    """
    rng = np.random.default_rng(9)
    slots = np.arange(MONDAY, MONDAY + 10 * DAY)
    signal = household(rng, slots)
    begins = 6 * DAY + 20
    signal[begins:] *= factor
    values, noise = independent(rng, signal, 8.0)
    days = calendar(slots, HALF_HOUR, DAY)
    before = filtered(slots[:begins], values[:begins], noise.part(0, begins), days.part(0, begins))
    run = running(before.fitted, noise)
    left = step(run, before.fitted, slots[:begins], values[:begins], noise.part(0, begins), days.part(0, begins))[2]
    assert left == 0
    part = slice(begins, begins + 4)
    live, error, left = step(
        run, before.fitted, slots[part], values[part], noise.part(begins, begins + 4), days.part(begins, begins + 4)
    )
    assert live[0] == values[begins]
    assert error[0] == pytest.approx(8.0)
    assert (np.abs(live - signal[part]) < 4 * error).all()
    done = filtered(slots, values, noise, days)
    near = slice(begins - 4, begins + 4)
    assert (np.abs(done.mean - signal)[near] < 4 * done.standard_error[near]).all()
    # Most of the values are filtered ones.
    assert (done.mean != values).mean() > 0.8


@pytest.mark.parametrize(
    ("odds", "flags", "left"),
    [
        ([0.0, 3.9, -3.9], [False, False, False], 0),
        ([-4.1, 3.0, 1.0, 1.0, 1.0, 0.0], [True, True, True, True, True, False], 0),
        ([4.1, 1.0, 5.0, 1.0, 1.0], [True, True, True, True, True], 1),
    ],
)
def test_a_filter_has_settled_after_so_many_calm_values(odds, flags, left):
    shown, needed = unsettled(np.array(odds), 3)
    assert shown.tolist() == flags
    assert needed == left
    # The result is the same if the values come in two parts.
    first, between = unsettled(np.array(odds[:2]), 3)
    second, after = unsettled(np.array(odds[2:]), 3, between)
    assert [*first, *second] == flags
    assert after == left


def test_units_do_not_matter():
    rng = np.random.default_rng(6)
    slots = np.arange(MONDAY, MONDAY + 4 * DAY)
    values, noise = independent(rng, household(rng, slots), 30.0)
    days = calendar(slots, HALF_HOUR, DAY)
    plain = filtered(slots, values, noise, days)
    scaled = filtered(slots, 1e-3 * values + 500.0, Noise(1e-6 * noise.variance), days)
    assert np.allclose(scaled.mean, 1e-3 * plain.mean + 500.0, atol=1e-7)
    assert np.allclose(scaled.standard_error, 1e-3 * plain.standard_error, rtol=1e-4)


def test_bad_input_is_told():
    slots, days = np.arange(10), calendar(np.arange(10), HALF_HOUR, DAY)
    with refused(9, 10):
        filtered(slots, np.ones(9), Noise(np.ones(10)), days)
    with pytest.raises(Invalid, match="slots are not ascending"):
        filtered(slots[::-1], np.ones(10), Noise(np.ones(10)), days)
    with pytest.raises(Invalid, match=r"variance 0\.0, expected a positive number"):
        filtered(slots, np.ones(10), Noise(np.zeros(10)), days)

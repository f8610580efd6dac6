"""What truncation removes: errors over several slots together, and where readings have moved since the rounds."""

import math
from dataclasses import replace

import numpy as np
import pytest

from undertone_aggregator.estimate.bias import (
    _HEAVY,
    Level,
    Removed,
    TruncationBias,
    TwoSidedBias,
    _chance_of_heavy_tail,
    _Fit,
    error_of_fits,
    error_of_mean,
)
from undertone_aggregator.threshold import Threshold

DAY = 48


def test_the_parts_of_one_slots_error_add_up() -> None:
    one = Removed(10.0, 3.0, 4.0, 12.0)
    assert one.standard_error == pytest.approx(13.0)
    assert error_of_mean([one], [5], DAY) == pytest.approx(13.0)
    # A cycle of one slot has no shape: that error is the same in all slots.
    assert error_of_mean([one, one], [5, 6], 1) == pytest.approx(math.sqrt(9 + 16 + 144 / 2))


def test_a_shared_error_stays_and_a_slots_own_error_averages_out() -> None:
    slots = list(range(100, 110))
    assert error_of_mean([Removed(9.0, 3.0, 0.0, 0.0)] * 10, slots, DAY) == pytest.approx(3.0)
    assert error_of_mean([Removed(9.0, 0.0, 0.0, 3.0)] * 10, slots, DAY) == pytest.approx(3.0 / math.sqrt(10))


def test_an_error_of_the_days_shape_averages_out_over_whole_days_alone() -> None:
    shape = Removed(9.0, 0.0, 3.0, 0.0)
    assert error_of_mean([shape] * DAY, range(7, 7 + DAY), DAY) == pytest.approx(0.0, abs=1e-9)
    # The same hours of a week's days err alike: a week tells no more of them than a day.
    evening = [slot + 36 for slot in range(10)]
    week = [slot + DAY * day for day in range(7) for slot in evening]
    one = error_of_mean([shape] * 10, evening, DAY)
    assert error_of_mean([shape] * 70, week, DAY) == pytest.approx(one)
    assert 1.0 < one < 3.0


def test_the_covariance_of_the_shape_is_that_of_errors_that_add_up_to_nothing() -> None:
    rng = np.random.default_rng(1)
    slots = rng.choice(200, 30, replace=False).tolist()
    sizes = rng.uniform(0.5, 2.0, 30)
    distance = np.abs(np.arange(DAY)[:, None] - np.arange(DAY))
    alike = np.exp(-np.minimum(distance, DAY - distance) / (DAY / 12))
    known = alike - np.outer(alike.sum(1), alike.sum(1)) / alike.sum()
    known /= known[0, 0]
    weights = np.zeros(DAY)
    np.add.at(weights, np.array(slots) % DAY, sizes / 30)
    removed = [Removed(0.0, 0.0, float(size), 0.0) for size in sizes]
    assert error_of_mean(removed, slots, DAY) == pytest.approx(math.sqrt(weights @ known @ weights))


def test_an_error_of_the_fit_stays_as_far_as_the_blocks_err_alike():
    removed = [Removed(9.0, 3.0, 0.0, 0.0, 4.0)] * 10
    assert removed[0].standard_error == pytest.approx(5.0)
    slots = range(10)
    assert error_of_mean(removed, slots, DAY) == pytest.approx(5.0)
    assert error_of_mean(removed, slots, DAY, 2.0) == pytest.approx(math.hypot(3.0, 2.0))


def test_the_variance_of_the_fits_errors_is_that_of_correlated_blocks():
    fits, blocks = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 2, 2, 0])
    chosen = threshold(exponential(100), 300)
    assert error_of_fits(fits, blocks, chosen) == pytest.approx(15.0)
    alike = replace(chosen, alike=[[1.0, 0.1, 0.5], [0.1, 1.0, 0.2], [0.5, 0.2, 1.0]])
    assert error_of_fits(fits, blocks, alike) == pytest.approx(math.sqrt(81 + 36 + 2 * 0.5 * 9 * 6))
    opposite = replace(chosen, alike=[[1.0, -1.0], [-1.0, 1.0]])
    assert error_of_fits(np.array([3.0, 3.0]), np.array([0, 1]), opposite) == pytest.approx(0.0)


BOUND = 1250
EDGES = tuple(range(BOUND + 2))
VALUES = np.arange(BOUND + 1)


def threshold(density, theta, bias=1.0, bias_se=0.1):
    return Threshold(theta, theta, theta, bias, bias_se, 1.0, density / density.sum(), EDGES, "robust", [])


def rooms(mean):
    """A normal density of temperatures with a standard deviation of 17."""
    return np.exp(-np.square((VALUES - mean) / 17.0) / 2.0)


def truncated(density, low, theta):
    return float(np.clip(VALUES, low, theta) @ density / density.sum())


@pytest.mark.parametrize("moved", [-60, -20, 0, 10, 40, 80])
@pytest.mark.parametrize("error", [0.1, 1.0])
def test_two_sided_intervals_hold_readings_that_moved_and_grow_as_they_leave_the_range(moved, error):
    low, theta = 565, 635
    model = TwoSidedBias(threshold(rooms(600), theta), low, theta, BOUND)
    level = truncated(rooms(600 + moved), low, theta)
    removed = model.at(0, 10_000, Level(level, error))
    bias, doubt = removed.bias, removed.standard_error
    assert abs(level + bias - (600 + moved)) <= 1.96 * doubt
    # Readings within the range leave little doubt.
    assert doubt < (2.0 if abs(moved) <= 20 else 200.0)


def test_a_shift_is_a_share_of_the_range_and_certain_only_where_the_level_is():
    model = TwoSidedBias(threshold(rooms(600), 635), 565, 635, BOUND)
    level = truncated(rooms(625), 565, 635)
    share, least, most = model.moved(Level(level, 0.5))
    assert share == pytest.approx(25 / 70, abs=0.03)
    assert 0.25 < least < share < most
    share, least, most = model.moved(Level(level, 20.0))
    assert least < 0 < most


def exponential(mean):
    return np.exp(-VALUES / mean)


def test_a_change_of_all_readings_is_an_error_once():
    """The profile of an epoch in which readings doubled says what time of day has large readings, not how large."""
    theta = 300
    density = exponential(100)
    flat = float(np.maximum(VALUES - theta, 0) @ density / density.sum())
    now = truncated(exponential(200), 0, theta)
    profile = {phase: (now * share, 1.0) for phase, share in enumerate((0.8, 1.2))}
    model = TruncationBias(threshold(density, theta, flat, 0.1 * flat), theta, profile)
    for phase in (0, 1):
        removed = model.at(phase, 5000, Level(now, 1.0))
        bias, doubt = removed.bias, removed.standard_error
        assert bias > 5 * flat
        assert doubt < 1.25 * bias


def test_a_truncated_mean_that_no_factor_explains_leaves_the_factor_as_it_was():
    """Readings are 0 or 1000: their truncated mean says how many are 1000, and nothing of a factor."""
    density = np.zeros(BOUND + 1)
    density[0], density[1000] = 0.7, 0.3
    model = TruncationBias(threshold(density, 500, 150.0, 15.0), 500, {})
    removed = model.at(0, 100_000, Level(165.0, 1.0))
    bias, doubt = removed.bias, removed.standard_error
    assert 75 < bias < 300
    assert doubt < 1.5 * bias


def test_a_tail_that_reports_do_not_show_may_be_heavier_than_the_fitted_one():
    """The fit knows readings up to 400, where they have a Pareto tail, and takes an exponential tail beyond."""
    theta, seen = 400, 400
    true = (1.0 + VALUES / 20.0) ** -2.5
    fitted = np.where(seen > VALUES, true, true[seen] * np.exp(-(VALUES - seen) / 40.0))
    fitted[seen:] *= true[seen:].sum() / fitted[seen:].sum()
    above = np.maximum(VALUES - theta, 0)
    truth, guess = (float(above @ density / density.sum()) for density in (true, fitted))
    chosen = threshold(fitted, theta, guess, 0.1 * guess)
    without = TruncationBias(chosen, theta, {}).at(0, 100_000)
    known = replace(chosen, seen=seen)
    removed, chance = TruncationBias(known, theta, {}).at(0, 100_000), _chance_of_heavy_tail(_Fit.of(known))
    assert without.bias == pytest.approx(guess)
    assert guess < removed.bias < truth
    assert removed.fit == pytest.approx(math.sqrt(1.0 - chance) * 0.1 * guess)
    # If a share p of a mixture is the heavy tail, its standard deviation is √((1 - p)/p) times what its mean has moved.
    assert removed.shared == pytest.approx(math.sqrt((1.0 - chance) / chance) * (removed.bias - guess))
    assert removed.bias + 1.96 * removed.standard_error > truth


def test_a_heavier_tail_is_as_likely_as_the_reports_leave_it():
    """Reports know the share of readings from ``seen`` on to a fifth: a tail that would double it is refuted."""
    theta = 300
    refuted = replace(threshold(exponential(100), theta), seen=600)
    above = np.maximum(VALUES - theta, 0)
    guess = float(above @ np.asarray(refuted.density))
    alone = TruncationBias(replace(refuted, seen=None), theta, {}).at(0, 100_000)
    removed = TruncationBias(refuted, theta, {}).at(0, 100_000)
    assert removed.bias == pytest.approx(guess, rel=0.01)
    assert removed.standard_error == pytest.approx(alone.standard_error, rel=0.05)
    # A Pareto tail is its own continuation, so that reports cannot speak against it.
    pareto = replace(threshold((1.0 + VALUES / 20.0) ** -2.5, theta), seen=400)
    assert _chance_of_heavy_tail(_Fit.of(pareto)) == pytest.approx(_HEAVY, rel=0.05)
    assert _chance_of_heavy_tail(_Fit.of(refuted)) < 0.001
    assert _chance_of_heavy_tail(_Fit.of(replace(refuted, seen=None))) == 0.0


def test_a_block_has_the_heavier_tail_of_the_whole_cycle():
    """The reports of a block are too few to know its tail: those of the whole cycle decide."""
    theta = 300
    pareto = replace(threshold((1.0 + VALUES / 20.0) ** -2.5, theta), seen=400)
    refuted = replace(threshold(exponential(100), theta), seen=600)
    by_itself, of_cycle = (TruncationBias(pareto, theta, {}, whole).at(0, 100_000) for whole in (None, refuted))
    assert of_cycle.shared < by_itself.shared / 10


def test_a_range_whose_readings_are_all_seen_has_no_further_tail():
    density = exponential(100)
    chosen = threshold(density, 300, 1.0, 0.1)
    assert TruncationBias(replace(chosen, seen=BOUND), 300, {}).at(0, 500) == TruncationBias(chosen, 300, {}).at(0, 500)


def test_a_level_of_the_whole_cycle_leaves_more_doubt_about_a_slot():
    model = TwoSidedBias(threshold(rooms(600), 620), 580, 620, BOUND)
    near, whole = (model.at(0, 10_000, Level(600.0, 0.5, each)) for each in (False, True))
    assert whole.bias == near.bias
    assert whole.shared > near.shared

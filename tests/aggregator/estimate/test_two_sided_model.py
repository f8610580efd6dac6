"""What truncation at both ends removes when readings have moved since the rounds, and the level around a slot."""

import math

import numpy as np
import pytest

from undertone_aggregator.estimate.removed import Reported
from undertone_aggregator.estimate.two_sided import TwoSided, near, of_cycle
from undertone_aggregator.threshold import Threshold

DAY = 48
BOUND = 1250
EDGES = tuple(range(BOUND + 2))
VALUES = np.arange(BOUND + 1)


def threshold(density, theta):
    return Threshold(theta, theta, theta, 1.0, 0.1, 1.0, density / density.sum(), EDGES, "robust", [])


def rooms(mean):
    """A normal density of temperatures with a standard deviation of 17."""
    return np.exp(-np.square((VALUES - mean) / 17.0) / 2.0)


def truncated(density, low, theta):
    return float(np.clip(VALUES, low, theta) @ density / density.sum())


def day(level, error):
    """A day of slots with this truncated mean; ``error``: the standard error of each."""
    return Reported(np.arange(DAY), np.full(DAY, level), np.full(DAY, error), np.full(DAY, 10_000.0))


@pytest.mark.slow_but("2.0-10", "0.2--20", "0.2-0")
@pytest.mark.parametrize("moved", [-60, -20, 0, 10, 40, 80])
@pytest.mark.parametrize("error", [0.2, 2.0])
def test_intervals_hold_readings_that_moved_and_grow_as_they_leave_the_range(moved, error):
    low, theta = 565, 635
    level = truncated(rooms(600 + moved), low, theta)
    removed = TwoSided(threshold(rooms(600), theta), low, theta, BOUND, DAY).removed(day(level, error))
    bias, doubt = removed.bias[20], removed.standard_error[20]
    assert abs(level + bias - (600 + moved)) <= 1.96 * doubt
    # Readings within the range leave little doubt.
    assert doubt < (2.0 if abs(moved) <= 20 else 200.0)


def test_a_shift_is_a_share_of_the_range_and_certain_only_where_the_level_is():
    model = TwoSided(threshold(rooms(600), 635), 565, 635, BOUND, DAY)
    level = truncated(rooms(625), 565, 635)
    share, least, most = model.moved(day(level, 0.5))[20]
    assert share == pytest.approx(25 / 70, abs=0.03)
    assert 0.25 < least < share < most
    share, least, most = model.moved(day(level, 140.0))[20]
    assert least < 0 < most


def test_a_level_of_the_whole_cycle_leaves_more_doubt_about_a_slot():
    """With errors of 1, the level comes from a few slots. With errors as large as the range, it is the cycle's."""
    model = TwoSided(threshold(rooms(600), 620), 580, 620, BOUND, DAY)
    by_slots, by_cycle = (model.removed(day(600.0, error)) for error in (1.0, 40.0))
    assert by_cycle.shared[20] > 1.5 * by_slots.shared[20]


def test_a_level_of_the_whole_cycle_adds_half_of_what_it_says():
    """The sign of a slot's bias may be another than that of the whole cycle."""
    model = TwoSided(threshold(rooms(600), 605), 580, 605, BOUND, DAY)
    reported = day(truncated(rooms(600), 580, 605), 40.0)
    levels = near(reported, DAY, model.width / 16)
    assert levels.whole
    every = model._explained(reported, levels, model._of_cycle, 1)
    removed = model.removed(reported)
    assert removed.bias == pytest.approx(0.5 * every.bias)
    assert removed.shared == pytest.approx(every.shared)
    assert removed.bias[20] > 1


def swinging(density_of, low, theta, moves, days=4):
    """Reports of days whose slots have these densities, and what truncation removes from each slot."""
    days = [density_of(move) for move in np.tile(moves, days)]
    means = np.array([truncated(density, low, theta) for density in days])
    slots = np.arange(len(days))
    true = np.array([float(VALUES @ density / density.sum()) for density in days]) - means
    return Reported(slots, means, np.full(len(slots), 0.2), np.full(len(slots), 10_000.0)), true


def test_the_days_swing_is_not_counted_twice():
    """The rounds' readings are those of a whole day, so they vary more than the readings of one slot."""
    low, theta, moves = 560, 640, 25.0 * np.sin(2 * np.pi * np.arange(DAY) / DAY)

    def slot(move):
        return np.exp(-np.square((VALUES - 600 - move) / 6.0) / 2.0)

    of_day = sum(slot(move) / slot(move).sum() for move in moves)
    reported, true = swinging(slot, low, theta, moves)
    bias = TwoSided(threshold(of_day, theta), low, theta, BOUND, DAY).removed(reported).bias
    # What truncation removes, in truth and by the model, is less than the noise of a slot's mean.
    assert np.abs(true).max() < reported.error.min()
    assert np.abs(bias).max() < reported.error.min()


def test_a_trend_over_weeks_makes_no_slots_readings_alike():
    low, theta, moves = 565, 635, -30.0 * np.arange(14 * DAY) / (14 * DAY)
    reported, true = swinging(lambda move: rooms(600 + move), low, theta, moves, 1)
    bias = TwoSided(threshold(rooms(600), theta), low, theta, BOUND, DAY).removed(reported).bias
    assert true.min() < -3.0
    # The limit is the trend of a quarter of a day.
    assert np.abs(bias - true).max() <= np.abs(np.gradient(true)).max() * DAY / 4


def test_a_share_of_the_devices_may_have_moved_and_the_others_stayed():
    """At noon a third of the homes feeds power into the grid, and the days are sunnier than those of the rounds."""
    low, theta, moves = 540, 660, -150.0 * np.maximum(np.sin(2 * np.pi * np.arange(DAY) / DAY), 0.0)

    def slot(move):
        return 2 / 3 * rooms(600) + 1 / 3 * rooms(600 + move)

    of_rounds = sum(slot(0.6 * move) / slot(0.6 * move).sum() for move in moves)
    reported, true = swinging(slot, low, theta, moves)
    removed = TwoSided(threshold(of_rounds, theta), low, theta, BOUND, DAY).removed(reported)
    noon = true < -20.0
    assert np.mean(np.abs(removed.bias - true) <= 1.96 * removed.standard_error) >= 0.9
    assert np.mean(np.abs(removed.bias - true)[noon] <= 1.96 * removed.standard_error[noon]) >= 0.9


def some(slots, rng, error=None):
    errors = rng.uniform(1, 5, len(slots)) if error is None else np.full(len(slots), error)
    return Reported(np.array(slots), 50 + rng.uniform(0, 40, len(slots)), errors, np.ones(len(slots)))


@pytest.mark.parametrize("cycle", [4, 5])
def test_a_level_is_the_cycles_mean_moved_by_half_a_cycle_around_the_slot(cycle):
    slots = np.array([100, 101, 102, 104, 105, 107, 108, 109, 111, 115])
    reported = some(slots, np.random.default_rng(4))
    means = {phase: reported.mean[slots % cycle == phase].mean() for phase in set((slots % cycle).tolist())}
    levels = of_cycle(reported, cycle)
    for place, slot in enumerate(slots):
        inside = np.abs(slots - slot) <= cycle // 2
        away = np.mean(
            [mean - means[at] for mean, at in zip(reported.mean[inside], slots[inside] % cycle, strict=True)]
        )
        error = math.sqrt(np.square(reported.error[inside]).sum()) / inside.sum()
        assert levels.mean[place] == pytest.approx(np.mean(list(means.values())) + away)
        assert levels.error[place] == pytest.approx(error)


@pytest.mark.parametrize(("sharp", "part"), [(5.0, 16), (1.9, 8), (1.5, 4), (1e-6, 2)])
def test_a_near_level_is_the_mean_over_as_few_slots_as_its_error_allows(sharp, part):
    """The level is over 3, 5, 9 or 17 slots (fewer at the ends) of a cycle of 16, with errors of 4/√n.

    One slot has the error 0.
    """
    slots = np.arange(100, 140)
    reported = some(slots, np.random.default_rng(5), 4.0)
    reported.error[20] = 0.0
    levels = near(reported, 16, sharp)
    assert levels.whole is (part == 2)
    for place, slot in enumerate(slots):
        inside = np.abs(slots - slot) <= 16 // part
        error = math.sqrt(np.square(reported.error[inside]).sum()) / inside.sum()
        assert (levels.mean[place], levels.error[place]) == pytest.approx((reported.mean[inside].mean(), error))


def test_half_of_the_cycles_phases_make_a_level():
    rng = np.random.default_rng(6)
    assert of_cycle(some([100, 101, 102, 108], rng), 8) is None
    assert of_cycle(some([100, 101, 102, 103], rng), 8) is not None

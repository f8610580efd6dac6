"""Errors of what truncation removed, over several slots together."""

import math

import numpy as np
import pytest

from undertone_aggregator.estimate.bias import Removed, error_of_mean

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

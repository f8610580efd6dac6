"""The error of a mean over several slots, from the parts of the error of what truncation removes from each."""

import math

import numpy as np
import pytest

from undertone_aggregator.estimate.removed import Removed, errors_of_slots
from undertone_aggregator.estimate.removed import error_of_mean as error_of_reported_mean

DAY = 48


def error_of_mean(removed, at, cycle):
    """The error of a mean over ``at`` where only these slots have reports, and their level has no error."""
    order = np.sort(np.asarray(at))
    return error_of_reported_mean(removed, at, order, np.ones(len(order)), cycle)


def slots(n, shared=0.0, shape=0.0, own=0.0):
    return Removed(*(np.full(n, value) for value in (9.0, shared, 0.0, 0.0, shape, own, 0.0)))


def test_the_parts_of_one_slots_error_add_up():
    one = slots(1, 3.0, 4.0, 12.0)
    assert one.standard_error == pytest.approx([13.0])
    assert error_of_mean(one, np.array([5]), DAY) == pytest.approx(13.0)
    # With a cycle of one slot, all slots are at the same time of day, so the shape's error is the same in all of them.
    assert error_of_mean(slots(2, 3.0, 4.0, 12.0), np.array([5, 6]), 1) == pytest.approx(math.sqrt(9 + 16 + 144 / 2))


def test_a_shared_error_stays_and_a_slots_own_error_averages_out():
    at = np.arange(100, 110)
    assert error_of_mean(slots(10, shared=3.0), at, DAY) == pytest.approx(3.0)
    assert error_of_mean(slots(10, own=3.0), at, DAY) == pytest.approx(3.0 / math.sqrt(10))


def test_an_error_of_the_days_shape_averages_out_over_whole_days_alone():
    assert error_of_mean(slots(DAY, shape=3.0), np.arange(7, 7 + DAY), DAY) == pytest.approx(0.0, abs=1e-9)
    # At one time of day, the error is the same on all days. So a mean over these hours of seven days has the same error
    # as a mean over these hours of one day.
    evening = np.arange(36, 46)
    week = (evening + DAY * np.arange(7)[:, None]).ravel()
    one = error_of_mean(slots(10, shape=3.0), evening, DAY)
    assert error_of_mean(slots(70, shape=3.0), week, DAY) == pytest.approx(one)
    assert 1.0 < one < 3.0


def test_the_covariance_of_the_shape_is_that_of_errors_that_add_up_to_nothing():
    rng = np.random.default_rng(1)
    at = rng.choice(200, 30, replace=False)
    sizes = rng.uniform(0.5, 2.0, 30)
    distance = np.abs(np.arange(DAY)[:, None] - np.arange(DAY))
    alike = np.exp(-np.minimum(distance, DAY - distance) / (DAY / 12))
    known = alike - np.outer(alike.sum(1), alike.sum(1)) / alike.sum()
    known /= known[0, 0]
    weights = np.zeros(DAY)
    np.add.at(weights, at % DAY, sizes / 30)
    removed = slots(30)._replace(shape=sizes)
    assert error_of_mean(removed, at, DAY) == pytest.approx(math.sqrt(weights @ known @ weights))


def test_the_levels_error_is_the_noise_of_the_same_reports():
    """Each level is too high by ``gain`` times the noise around its slot, and the mean contains that noise, too."""
    reported = np.arange(3 * DAY + 1)
    noise = np.linspace(1.0, 4.0, len(reported))
    chosen = np.arange(DAY, 2 * DAY)
    near = np.abs(reported[:, None] - chosen) <= DAY // 2
    gain = 0.01
    levels = slots(DAY)._replace(level=gain * np.sqrt(noise @ near))
    of_mean = np.isin(reported, chosen) / DAY
    whole = of_mean + gain * near.sum(axis=1) / DAY
    added = noise @ (whole**2 - of_mean**2)
    assert error_of_reported_mean(levels, chosen, reported, noise, DAY) == pytest.approx(math.sqrt(added))
    # ``added`` is more than the level's error would add if the level came from other reports.
    assert added > 1.5 * noise @ (whole - of_mean) ** 2
    alone = errors_of_slots(slots(len(reported))._replace(level=np.full(len(reported), 2.0)), reported, noise, DAY)
    middle = len(reported) // 2
    some = slots(1)._replace(level=np.array([2.0]))
    assert alone[middle] == error_of_reported_mean(some, np.array([middle]), reported, noise, DAY)


def test_what_is_not_added_widens_the_interval_by_its_size():
    removed = slots(1, 3.0, 4.0, 12.0).as_error()
    assert removed.bias == pytest.approx([0.0])
    assert removed.standard_error == pytest.approx([math.hypot(13.0, 9.0)])

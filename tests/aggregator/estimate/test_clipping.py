"""The model of what a stream's clipping removes is compared with simulated chains, and its errors are checked."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from undertone_aggregator.campaign.stream_rounds import stream_rule
from undertone_aggregator.estimate.clipping import PART, ClippingBias, stationary_means
from undertone_aggregator.settings.config import parse_config

TOML = """
[campaign]
name = "load"
sensor = "energy"
unit = "Wh"
bound = 10000
epsilon = 8
report_slots = 240
collect = "stream"

[stream]
mechanism = "MECHANISM"
reports = 240
theta = 2000
slew = 0.05
"""
DEVICES, SLOTS = 20_000, 300


def rule(mechanism="gaussian"):
    config = parse_config(TOML.replace("MECHANISM", mechanism), Path())
    return stream_rule(config.campaign, config.stream)


@pytest.mark.parametrize(
    ("rate", "slew", "top", "draws"),
    [
        (8.0, 0.05, 5.0, 1),
        (2.0, 0.13, 5.0, 1),
        (-2.0, 0.2, 1.0, 1),
        (8.0, 1.0, 1.0, 1),
        (8.0, 0.05, 5.0, 2),
        (-2.0, 0.2, 1.0, 3),
    ],
)
def test_the_stationary_mean_is_that_of_a_simulated_chain(rate, slew, top, draws):
    chance = np.random.default_rng(1)
    clipped = np.full(DEVICES, stationary_means(np.array([rate]), slew, top, draws)[0])
    means = []
    for _ in range(SLOTS):
        readings = (-np.log1p(chance.random((draws, DEVICES)) * np.expm1(-rate * top)) / rate).mean(axis=0)
        clipped = np.clip(np.clip(readings, 0.0, 1.0), clipped - slew, clipped + slew)
        means.append(clipped.mean())
    late = np.mean(means[SLOTS // 2 :])
    # The standard deviation of these clipped readings is below .3. The limit is at least five standard errors, even if
    # all clipped readings of a device were alike; 1e-3 is for the grid of levels.
    assert stationary_means(np.array([rate]), slew, top, draws)[0] == pytest.approx(
        late, abs=5 * 0.3 / np.sqrt(DEVICES) + 1e-3
    )


def test_more_is_removed_from_larger_means_and_the_error_is_as_large():
    bias = ClippingBias(rule(), 10_000, 1800)
    removed = bias.at(np.array([20.0, 100.0, 200.0, 400.0]))
    assert all(low < high for low, high in pairwise(removed.bias))
    assert (removed.standard_error >= removed.bias).all()
    assert (removed.bias > 0.0).all()


def test_without_a_slew_limit_only_readings_above_theta_are_cut():
    level = np.array([200.0])
    removed = ClippingBias(rule("direct"), 10_000, 1800).at(level)
    # A limit of 2,000 removes 200 e^-10 = .009 from an exponential distribution of mean 200.
    assert 0.0 <= removed.bias < 0.1
    assert removed.bias < ClippingBias(rule(), 10_000, 1800).at(level).bias / 100


def test_noise_below_zero_is_no_error():
    removed = ClippingBias(rule(), 10_000, 1800).at(np.array([-500.0]))
    assert 0.0 <= removed.bias < 5.0


def test_less_is_removed_from_readings_of_slots_longer_than_an_hour():
    """What is removed from readings of days is below .2 % of the range."""
    level = np.array([300.0])
    half_hours, hours, watches, days, weeks = (
        ClippingBias(rule(), 10_000, seconds).at(level).bias[0]
        for seconds in (1800, 3600, 4 * 3600, 86_400, 7 * 86_400)
    )
    assert half_hours == hours > watches > days
    assert days == weeks < 0.002 * 2000


def test_from_readings_of_days_at_least_the_readings_above_theta_are_cut():
    """Some homes have large readings all day.

    A limit θ removes m e^(-θ/m) from the mean m of an exponential distribution.
    """
    level, limited = np.array([700.0]), ClippingBias(rule("direct"), 10_000, 86_400)
    removed = limited.at(level)
    mean = level[0] + removed.bias[0] / PART
    assert removed.bias[0] / PART == pytest.approx(mean * np.exp(-2000 / mean), rel=0.02)
    assert ClippingBias(rule(), 10_000, 86_400).at(level).bias >= removed.bias * (1 - 1e-9)

"""How θ of a stream is chosen from a known distribution, compared with a search and with simulated devices."""

import numpy as np
import pytest

from undertone_aggregator.campaign.stream_rounds import clipped_steps, stream_theta
from undertone_aggregator.estimate.clipping import PART
from undertone_aggregator.threshold import Threshold

BOUND, DEVICES = 4000, 5000


def found(readings) -> Threshold:
    counts, edges = np.histogram(readings, bins=np.arange(0, BOUND + 21, 20))
    shares = counts / counts.sum()
    return Threshold(1, 1, 1, 0.0, 0.0, 0.0, shares, [int(edge) for edge in edges], "test")


@pytest.fixture(scope="module")
def readings():
    return np.minimum(np.random.default_rng(1).gamma(0.8, 280.0, 200_000), BOUND - 1)


@pytest.mark.slow_but("2.0")
@pytest.mark.parametrize("noise", [0.2, 2.0, 20.0])
def test_without_a_limit_of_steps_it_is_the_minimum_of_equation_8(noise, readings):
    theta = stream_theta(found(readings), BOUND, None, noise, DEVICES)

    def error(at):
        return float(np.mean(np.maximum(readings - at, 0.0))) ** 2 + noise * at * at / DEVICES

    # Candidates lie 2 % apart: near the minimum, a θ that is 1 % off changes the error by far less than 1 %.
    assert error(theta) <= 1.01 * min(error(at) for at in range(50, BOUND, 5))


def test_clipped_steps_are_those_of_devices_that_draw_every_reading_afresh(readings):
    theta, slew, n = 1000, 0.1, 20_000
    generator = np.random.default_rng(2)
    excess = np.array([np.mean(np.maximum(readings - theta, 0.0))])
    (removed,) = clipped_steps(found(readings), np.array([theta]), slew, excess)
    path = np.zeros(n)
    for _ in range(60):
        step = slew * theta
        path = np.clip(np.minimum(generator.choice(readings, n), theta), path - step, path + step)
    truncated = np.minimum(readings, theta)
    # The mean of 20,000 paths in [0, 1000] has a standard error below 3.6. Six standard errors are allowed, and 20 more
    # for the grid.
    assert abs(removed - (truncated.mean() - path.mean())) < 6 * 3.6 + 20


def test_a_limit_of_steps_asks_for_a_larger_theta(readings):
    without, with_limit = (stream_theta(found(readings), BOUND, slew, 1.0, DEVICES) for slew in (None, 0.05))
    assert without < with_limit
    assert PART == 0.5

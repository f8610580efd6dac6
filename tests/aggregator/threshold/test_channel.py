from itertools import pairwise

import numpy as np
import pytest

from undertone_aggregator.design.levels import level_law, level_positions
from undertone_aggregator.threshold import (
    CoarseChannel,
    CohortCounts,
    MatrixChannel,
    ReportCounts,
    StackedChannel,
    WindowChannel,
)
from undertone_shared.mechanism import WindowMechanism

INTEGERS = [(5, 2, 3, 1, 7), (7, 3, 20, 4, 30), (3, 1, 1, 1, 1), (9, 2, 1, 3, 5), (4, 1, 30, 1, 8)]


@pytest.mark.parametrize("integers", INTEGERS)
def test_the_window_channel_is_the_mechanisms_matrix(integers):
    mechanism = WindowMechanism(*integers)
    matrix = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]).T / mechanism.total
    channel = WindowChannel(mechanism)
    rng = np.random.default_rng(1)
    f, g = rng.random(channel.inputs), rng.random(channel.outputs)
    np.testing.assert_allclose(channel.apply(f), matrix @ f, rtol=1e-12)
    np.testing.assert_allclose(channel.adjoint(g), g @ matrix, rtol=1e-12)
    unit = np.eye(channel.inputs)
    assert np.array_equal(
        channel.columns(np.array([1, 0])), np.transpose([channel.apply(unit[1]), channel.apply(unit[0])])
    )


def test_coarse_and_stacked_channels_are_products_of_matrices():
    rng = np.random.default_rng(2)
    a, b = rng.random((5, 3)), rng.random((4, 6))
    merge = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=float)
    stacked = StackedChannel([CoarseChannel(MatrixChannel(a), [0, 2, 3], 6), MatrixChannel(b)])
    whole = np.vstack([a @ merge, b])
    f, g = rng.random(6), rng.random(9)
    np.testing.assert_allclose(stacked.apply(f), whole @ f)
    np.testing.assert_allclose(stacked.adjoint(g), g @ whole)
    assert np.array_equal(stacked.columns(np.array([5, 1, 2])), whole[:, [5, 1, 2]])


@pytest.mark.parametrize("starts", [[0, 2], [1, 2, 3], [0, 3, 3], [0, 2, 6]])
def test_coarse_cells_that_do_not_fit_are_refused(starts):
    with pytest.raises(ValueError, match="starts has"):
        CoarseChannel(MatrixChannel(np.ones((5, 3))), starts, 6)


def test_the_level_law_of_reports_is_the_mean_of_the_random_rounding():
    mechanism = WindowMechanism(3, 1, 5, 4, 10)
    theta, grid = 60, (0, 1, 7, 55, 63, 101)
    law = level_law(level_positions(mechanism, theta), theta, grid)
    for cell, (low, high) in enumerate(pairwise(grid)):
        expected = np.zeros(11)
        for x in range(low, high):
            level, rest = divmod(min(x, theta) * 10, theta)
            expected[level] += 1 - rest / theta
            if rest:
                expected[level + 1] += rest / theta
        np.testing.assert_allclose(law[:, cell], expected / (high - low), atol=1e-12)


def test_counts_are_checked():
    mechanism = WindowMechanism(3, 1, 1, 1, 3, edges=(0, 1, 2, 5, 9))
    with pytest.raises(ValueError, match="histogram of 4 cells"):
        CohortCounts(mechanism, [1, 2])
    with pytest.raises(ValueError, match="contains -1"):
        CohortCounts(mechanism, [1, 2, -1, 0])
    with pytest.raises(ValueError, match="edges"):
        CohortCounts(WindowMechanism(3, 1, 1, 1, 3), [1, 2, 3, 4])
    with pytest.raises(ValueError, match="positions go from 0 to 9"):
        ReportCounts(10, np.array([0.0, 9.0]), np.full((2, 2), 0.5), [1, 1])

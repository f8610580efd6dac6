"""An epoch keeps the excess of readings over many limits, for each piece of the cycle."""

from dataclasses import replace

import numpy as np
import pytest

from undertone_aggregator.counts.epochs import threshold_from_json, threshold_to_json
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.pieces import Pieces

EDGES = tuple(range(102))
VALUES = np.arange(101)


def draws(*means):
    each = np.array([np.exp(-VALUES / mean) for mean in means])
    return each / each.sum(axis=1, keepdims=True)


PIECES = Pieces.of(np.array([draws(8, 10, 30), draws(20, 20, 20)]), EDGES, [0, 12], [0.5, 0.5])


@pytest.mark.parametrize("place", range(0, 20, 3))
def test_the_excess_is_the_median_of_the_draws_and_the_error_is_about_it(place):
    limit = PIECES.limits[place]
    of_draw = np.maximum(VALUES - limit, 0) @ draws(8, 10, 30).T
    assert PIECES.excess[0][place] == pytest.approx(np.median(of_draw), rel=1e-4)
    error = np.sqrt(np.mean(np.square(of_draw - np.median(of_draw))))
    assert PIECES.error[0][place] == pytest.approx(error, rel=1e-4)
    # The other half of the cycle is known exactly, so the cycle's error is half of this error.
    assert PIECES.shared[place] == pytest.approx(error / 2, rel=1e-4)


def test_limits_reach_from_zero_to_the_bound():
    assert (PIECES.limits[0], PIECES.limits[-1]) == (0, 100)
    assert PIECES.excess[1][-1] == 0.0


def test_an_epoch_keeps_them():
    chosen = Threshold(50, 40, 60, 1.0, 0.1, 1.0, draws(10)[0], EDGES, "robust", pieces=PIECES)
    assert threshold_from_json(threshold_to_json(chosen)).pieces == PIECES
    assert threshold_from_json(threshold_to_json(replace(chosen, pieces=None))).pieces is None

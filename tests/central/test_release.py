"""Quantiles of a release, with the interval that the noise of the release allows."""

import numpy as np
import pytest

from support.central import seeded
from undertone_central import Sanitizer
from undertone_central.ranges import Piece
from undertone_central.release import Release

BOUND, BLOCK = 4000, 500


def released(seed, **options):
    """Return a release of skewed values, and the values."""
    made = Sanitizer(BOUND, 1, seeded(seed), block=BLOCK, **options)
    values = np.minimum(np.random.default_rng(seed).exponential(300.0, 4 * BLOCK), BOUND).astype(np.int64)
    return Release(made.parameters, [Piece(0, BOUND, made.extend(values))]), values


@pytest.mark.parametrize("options", [{}, {"share": "0.5"}])
def test_the_interval_of_a_quantile_holds_it(options):
    pytest.importorskip("datasketches")
    shares = (0.02, 0.5, 0.9, 0.995)
    held = []
    for seed in range(25):
        made, values = released(seed, **options)
        for share, found in zip(shares, made.quantiles(shares), strict=True):
            assert 0 <= found.low <= found.value <= found.high <= BOUND
            held.append(found.low <= np.quantile(values, share, method="inverted_cdf") <= found.high)
    assert np.mean(held) >= 0.95


def test_the_interval_is_narrower_with_more_values_and_ends_at_the_bound():
    pytest.importorskip("datasketches")
    made, _ = released(1)
    twenty = Release(made.parameters, [Piece(0, BOUND, np.tile(made.numbers, 20))])
    few, many = (each.quantiles([0.5])[0] for each in (made, twenty))
    assert many.high - many.low < few.high - few.low
    assert made.quantiles([0.999])[0].high == BOUND
    assert made.quantiles([0.001])[0].low == 0

"""In a round for the threshold, symbols that come more often than honest devices can send them are taken out."""

import numpy as np
import pytest

from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import CohortCounts, first_edges
from undertone_aggregator.threshold.excess import without_excess

EDGES = first_edges(10_000)
POPULATIONS = {
    "constant": lambda rng, n: np.full(n, 300),
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.integers(0, 10_000, n)),
    "weibull": lambda rng, n: rng.weibull(0.8, n) * 200,
    "pareto": lambda rng, n: 50 * (1 + rng.pareto(1.2, n)),
    "two groups": lambda rng, n: np.where(rng.random(n) < 0.9, 50, 9000),
}


def round_of(epsilon: float, readings: np.ndarray, rng: np.random.Generator, top: int = 0) -> CohortCounts:
    mechanism = square_wave(epsilon, EDGES)
    level = np.searchsorted(EDGES[1:-1], np.clip(readings, 0, 10_000), side="right")
    rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]) / mechanism.total
    counts = sum(rng.multinomial(number, rows[k]) for k, number in enumerate(np.bincount(level)) if number)
    counts[-1] += top
    return CohortCounts(mechanism, counts)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("epsilon", [0.2, 1, 4])
def test_honest_reports_are_all_kept(population: str, epsilon: float) -> None:
    # Ten rounds have fewer than 200 symbols each, and each symbol has a chance of about 1e-9 of a false alarm: together
    # less than about 2e-6.
    rng = np.random.default_rng(7)
    for n in [500, 200_000] * 5:
        counts = round_of(epsilon, POPULATIONS[population](rng, n), rng)
        kept, removed = without_excess(counts)
        assert removed == 0
        assert (np.asarray(kept.counts) == np.asarray(counts.counts)).all()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("epsilon", [0.2, 1, 4])
def test_the_largest_symbol_is_brought_back_to_what_the_others_imply(epsilon: float, share: float) -> None:
    rng = np.random.default_rng(8)
    lies = int(share * 480_000)
    counts = round_of(epsilon, POPULATIONS["weibull"](rng, 480_000 - lies), rng, lies)
    kept, removed = without_excess(counts)
    # The removed number is uncertain by the noise of one symbol's count and of the counts that imply it.
    assert abs(removed - lies) < 400
    assert (np.asarray(kept.counts)[:-1] == np.asarray(counts.counts)[:-1]).all()

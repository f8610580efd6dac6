"""Test whether the rounds contradict each other, or contradict what honest devices can send, for any shape of readings.

One distribution of any shape over the cells between all rounds' edges is fitted to all histograms together. The true
distribution of readings is one of the candidates, so the deviance of the fit is at most that of the true distribution.
The latter is nearly χ². Its degrees of freedom are the runs of symbols (`_EXPECTED`), less one for each round. So if
devices are honest and readings do not drift, the deviance of the fit exceeds a value at most as often as that χ² does.
"""

from collections.abc import Sequence

import numpy as np

from undertone_aggregator.threshold.channel import StackedChannel, Vector
from undertone_aggregator.threshold.counts import CohortCounts, common_grid
from undertone_aggregator.threshold.em import expectation_maximisation
from undertone_aggregator.threshold.remembered import remembered

# Neighbouring symbols are merged until this many reports are expected in each run: the χ² approximation is then good.
_EXPECTED = 10.0


@remembered
def misfit(rounds: Sequence[CohortCounts], bound: int) -> float:
    """Return how far the deviance lies above the mean of its χ², in standard deviations of the χ²."""
    grid = common_grid(rounds, bound)
    channel = StackedChannel([counts.channel(grid) for counts in rounds])
    seen = [np.asarray(counts.counts, dtype=np.float64) for counts in rounds]
    density = expectation_maximisation(channel, np.concatenate(seen)).density
    laws = np.split(channel.apply(density), np.cumsum([len(counts) for counts in seen])[:-1])
    deviance, freedom = 0.0, 0
    for counts, law in zip(seen, laws, strict=True):
        part, symbols = _deviance(counts, counts.sum() * law / law.sum())
        deviance, freedom = deviance + part, freedom + symbols - 1
    return (deviance - freedom) / float(np.sqrt(2.0 * max(freedom, 1)))


def _deviance(seen: Vector, expected: Vector) -> tuple[float, int]:
    """Return 2 Σ seen ln(seen / expected) over runs of symbols, and the number of runs."""
    reached = np.floor(np.cumsum(expected) / _EXPECTED)
    starts = np.flatnonzero(np.diff(reached, prepend=-1.0))
    starts = np.unique(np.append(0, starts[:-1] + 1)) if len(starts) > 1 else np.zeros(1, dtype=np.int64)
    seen, expected = np.add.reduceat(seen, starts), np.add.reduceat(expected, starts)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(seen > 0, seen * np.log(seen / expected), 0.0)
    return float(2.0 * terms.sum()), len(starts)

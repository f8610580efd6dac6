"""Do the rounds contradict each other, or what any honest devices could send? The shape of no model decides.

One distribution over the cells between all the rounds' edges, of any shape, is fitted to all histograms together. The
distribution that the readings have is one of them, so the fit's deviance is at most what the truth's would be, a χ²
with as many degrees of freedom as symbols: honest readings that do not drift exceed it no more often than chance does.
"""

from collections.abc import Sequence

import numpy as np

from undertone_aggregator.threshold.channel import StackedChannel, Vector
from undertone_aggregator.threshold.counts import CohortCounts, common_grid
from undertone_aggregator.threshold.em import expectation_maximisation

# Symbols are merged with their neighbours until so many reports are expected: the χ² holds from there on.
_EXPECTED = 10.0


def misfit(rounds: Sequence[CohortCounts], bound: int) -> float:
    """How far the deviance lies above the mean of its χ², in standard deviations; at most so far for honest rounds."""
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
    """2 Σ seen ln(seen / expected) over runs of symbols, and how many runs there are."""
    reached = np.floor(np.cumsum(expected) / _EXPECTED)
    starts = np.flatnonzero(np.diff(reached, prepend=-1.0))
    starts = np.unique(np.append(0, starts[:-1] + 1)) if len(starts) > 1 else np.zeros(1, dtype=np.int64)
    seen, expected = np.add.reduceat(seen, starts), np.add.reduceat(expected, starts)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(seen > 0, seen * np.log(seen / expected), 0.0)
    return float(2.0 * terms.sum()), len(starts)

"""Reports for the threshold that no honest device sends: found, and taken out of a round's histogram.

Whatever the readings, the symbols of honest devices follow A f for some distribution f of the readings: a symbol
beyond a window's edge cannot be likely without its neighbours. The f of largest likelihood says how often each symbol
may be; one that is far more frequent is left to the others to explain, until none stands out. Fakes that imitate
honest devices of large readings cannot be told from them, by anybody: for those see
`undertone_aggregator.campaign.rounds`.
"""

import numpy as np
from scipy.special import gammainc

from undertone_aggregator.threshold.channel import Vector, WindowChannel
from undertone_aggregator.threshold.counts import CohortCounts
from undertone_aggregator.threshold.em import expectation_maximisation

# A Poisson count as large as a symbol's has this probability at most: with 1,000 symbols in all rounds, a false alarm
# in a million campaigns.
_CHANCE = 1e-9
_REPEATS = 20
_SETTLES = 4


def without_excess(counts: CohortCounts) -> tuple[CohortCounts, int]:
    """The round with such symbols as frequent as all others let expect; and by how many reports it is smaller.

    A round that would lose more than half stays as it is: who is honest then cannot be said, and the fit will be bad.
    """
    channel = WindowChannel(counts.mechanism)
    seen = np.asarray(counts.counts, dtype=np.float64)
    kept = seen.copy()
    odd = np.zeros(len(seen), dtype=bool)
    for _ in range(_REPEATS):
        expected = _expected(channel, kept)
        for _ in range(_SETTLES if odd.any() else 0):
            kept[odd] = expected[odd]
            expected = _expected(channel, kept)
        outlying = ~odd & (seen > expected) & (gammainc(np.maximum(seen, 1.0), expected) < _CHANCE)
        if not outlying.any():
            break
        odd |= outlying
        if seen[odd].sum() > seen.sum() / 2:
            return counts, 0
    kept = np.minimum(np.rint(kept), seen)
    return CohortCounts(counts.mechanism, kept.astype(np.int64)), int((seen - kept).sum())


def _expected(channel: WindowChannel, counts: Vector) -> Vector:
    """The histogram of the likeliest distribution of readings; shape [cells]."""
    density = expectation_maximisation(channel, counts, tolerance=1e-5, max_iterations=2000).density
    return np.asarray(counts.sum() * channel.apply(density))

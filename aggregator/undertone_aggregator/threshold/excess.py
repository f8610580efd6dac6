"""Removal of false reports from a threshold round: symbols that are more frequent than honest devices could send them.

Whatever the readings are, the symbols of honest devices follow A f for some distribution f of the readings. So a symbol
just outside a window can be likely only if its neighbours are. The f of largest likelihood predicts how often each
symbol occurs. A symbol that is far more frequent is replaced by its prediction from the others. This is repeated until
no such symbol is left. If fake devices imitate honest devices with large readings, no method can tell them apart; for
such fakes see `undertone_aggregator.campaign.rounds`.
"""

import numpy as np

from undertone_aggregator.threshold.channel import Vector, WindowChannel
from undertone_aggregator.threshold.counts import CohortCounts
from undertone_aggregator.threshold.em import expectation_maximisation
from undertone_aggregator.threshold.remembered import remembered_for_each

# A symbol counts as false if honest devices send it so often with at most this probability (Poisson).
_CHANCE = 1e-9
_REPEATS = 20
_SETTLES = 4


@remembered_for_each
def without_excess(counts: CohortCounts) -> tuple[CohortCounts, int]:
    """Reduce the counts of false symbols to those that the other symbols predict.

    Return the round and the number of reports removed. If a round would lose more than half of its reports, it stays as
    it is. Honest and false reports cannot be told apart then, and the misfit will show this.
    """
    # Readers of a store import this module but never call this function, and scipy.special takes long to import.
    from scipy.special import gammainc

    channel = WindowChannel(counts.mechanism)
    seen = np.asarray(counts.counts, dtype=np.float64)
    trimmed = seen.copy()
    odd = np.zeros(len(seen), dtype=bool)
    for _ in range(_REPEATS):
        expected = _expected(channel, trimmed)
        for _ in range(_SETTLES if odd.any() else 0):
            trimmed[odd] = expected[odd]
            expected = _expected(channel, trimmed)
        outlying = ~odd & (seen > expected) & (gammainc(np.maximum(seen, 1.0), expected) < _CHANCE)
        if not outlying.any():
            break
        odd |= outlying
        if seen[odd].sum() > seen.sum() / 2:
            return counts, 0
    trimmed = np.minimum(np.rint(trimmed), seen)
    return CohortCounts(counts.mechanism, trimmed.astype(np.int64)), int((seen - trimmed).sum())


def _expected(channel: WindowChannel, counts: Vector) -> Vector:
    """Return the expected histogram under the likeliest distribution of readings; shape [cells]."""
    density = expectation_maximisation(channel, counts, tolerance=1e-5, max_iterations=2000).density
    return np.asarray(counts.sum() * channel.apply(density))

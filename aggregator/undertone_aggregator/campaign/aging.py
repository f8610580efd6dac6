"""Evidence that ages: how far readings have moved since an old report, and old histograms moved as far.

A report epoch's truncated means show the level of the readings. We compare it with the level of the distribution from
which θ was chosen: readings have changed since by a factor or, if both ends of the range are truncated, by an amount.
If the factor is f, an old report of a reading x counts as a report of f x, under a θ or under edges that are f times as
large. So old histograms stay useful: they show the shape of the distribution, and the newest means show its level. All
of this is post-processing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.partial import Counts
from undertone_aggregator.estimate.estimates import MEASURED, Estimates
from undertone_aggregator.estimate.excess import SCALES
from undertone_aggregator.estimate.reconstruct import STALE, STALE_SHARE, model_of, reported_of
from undertone_aggregator.estimate.two_sided import TwoSided
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.channel import Window
from undertone_shared.mechanism import WindowMechanism

# The present level of the readings is the median over this many of the newest cycles, so that a single odd day does not
# change it.
_NEWEST = 3
# An old report counts with this weight if readings have moved since: the shape of their distribution may have changed.
_AGED = 0.25
# A change of the level is rounded: as a factor to powers of 2^(1/8), as an amount to eighths of the range.
_PARTS = 8.0


@dataclass(frozen=True)
class Move:
    """How far readings have moved since a report: a reading of x then is now ``factor`` x + ``amount``."""

    factor: float = 1.0
    amount: float = 0.0

    def weighed(self, counts: Counts) -> Counts:
        """Return the counts of old reports [symbols] or [pieces, symbols] times their weight, as integers.

        The weight is 1 if readings have not moved, else `_AGED`. The weighted counts become integers by rounding their
        cumulative sums. If each count was rounded by itself, symbols with few reports could lose all of them.
        """
        if self == Move():
            return counts
        sums = np.rint(np.cumsum(counts.T * _AGED)).astype(np.int64)
        return np.diff(sums, prepend=0).reshape(counts.T.shape).T

    def theta(self, old: int, bound: int) -> int | None:
        """Return ``old``, the θ of old reports, moved as far as the readings.

        Return None if readings moved by an amount, or if the moved θ is below 1 or above the bound.
        """
        theta = round(old * self.factor)
        return theta if 1 <= theta <= bound and not self.amount else None

    def window(self, mechanism: Window, bound: int) -> Window:
        """Return an old round's mechanism with its edges moved as far as the readings."""
        if self == Move() or mechanism.edges is None:
            return mechanism
        inner = np.array(mechanism.edges[1:-1], dtype=np.float64)
        places = np.arange(1, len(inner) + 1)
        # Edges stay distinct integers between 1 and the bound.
        edges = np.rint(inner * self.factor + self.amount).astype(np.int64)
        edges = np.maximum.accumulate(np.maximum(edges, places) - places) + places
        edges = np.minimum(edges, bound - len(inner) + places)
        moved = (0, *(int(edge) for edge in edges), bound + 1)
        return WindowMechanism(
            mechanism.a, mechanism.b, mechanism.window, mechanism.stride, mechanism.levels, moved
        )  # fmt: skip


class Ageing:
    """How far readings have moved since each cycle of a campaign.

    ``epochs``: the epochs whose reports are used. ``estimates``: the truncated means of these epochs' slots.
    """

    def __init__(self, epochs: Sequence[Epoch], estimates: Estimates) -> None:
        # (fingerprint of the epoch, cycle) -> move from the readings of the first choice of θ to those of the cycle.
        self._states: dict[tuple[bytes, int], Move] = {}
        self._now, self._width = Move(), 1.0
        chosen = [epoch for epoch in epochs if epoch.threshold is not None]
        starts = [epoch.campaign.first_slot for epoch in chosen]
        for epoch, first, stop in zip(chosen, starts, [*starts[1:], math.inf], strict=False):
            inside = (estimates.kind == MEASURED) & (first <= estimates.slot) & (estimates.slot < stop)
            states = _states(chosen[0], epoch, estimates.take(inside))
            for cycle, state in states.items():
                self._states[epoch.campaign.fingerprint, cycle] = state
            if states:
                newest = list(states.values())[-_NEWEST:]
                factors, amounts = [state.factor for state in newest], [state.amount for state in newest]
                self._now = Move(float(np.median(factors)), float(np.median(amounts)))
        if chosen and chosen[-1].campaign.report is not None:
            self._width = float(chosen[-1].campaign.report.theta - chosen[-1].campaign.report.low)

    def since(self, epoch: Epoch, cycle: int) -> Move:
        """Return how far readings have moved since the reports of ``epoch`` in the cycle of this number.

        A move too small to make θ stale counts as no move. Other moves are rounded, so that many cycles have the same
        move and their histograms can be added up.
        """
        then = self._states.get((epoch.campaign.fingerprint, cycle), Move())
        factor, share = self._now.factor / then.factor, (self._now.amount - then.amount) / self._width
        if 1 / STALE <= factor <= STALE and abs(share) <= STALE_SHARE:
            return Move()
        return Move(
            float(2.0 ** (round(_PARTS * np.log2(factor)) / _PARTS)), round(_PARTS * share) * self._width / _PARTS
        )


def _states(first: Epoch, epoch: Epoch, estimates: Estimates) -> dict[int, Move]:
    """Return a map: cycle of ``epoch`` -> move from the readings for which ``first`` chose θ to those of the cycle."""
    campaign, began, chosen = epoch.campaign, first.threshold, epoch.threshold
    if not estimates or began is None or chosen is None or campaign.report is None:
        return {}
    model = model_of(epoch)
    moved = model.moved(reported_of(estimates, campaign))
    if moved is None:
        return {}
    middle: dict[int, float] = {}
    for slot, change in zip(estimates.slot.tolist(), moved[:, 0].tolist(), strict=True):
        cycle, place = divmod(slot, campaign.cycle)
        if cycle not in middle or place <= campaign.cycle // 2:
            middle[cycle] = change
    if isinstance(model, TwoSided):
        base = _mean(chosen) - _mean(began)
        return {cycle: Move(1.0, base + share * model.width) for cycle, share in middle.items()}
    # Values above θ count as θ in both distributions, because their tails are known less well.
    scale = _scale(began, float(np.minimum(_middles(chosen), chosen.theta) @ np.asarray(chosen.density)), chosen.theta)
    return {cycle: Move(scale * factor) for cycle, factor in middle.items()}


def _scale(began: Threshold, mean: float, theta: int) -> float:
    """Return the scale c for which E[min(c x, ``theta``)] is ``mean``; x has the density of the choice ``began``."""
    levels = np.minimum(np.outer(SCALES, _middles(began)), theta) @ np.asarray(began.density)
    return float(np.exp(np.interp(mean, levels, np.log(SCALES))))


def _middles(chosen: Threshold) -> NDArray[np.float64]:
    """Return the middle of each cell of the distribution that a choice of θ found."""
    edges = np.asarray(chosen.edges, dtype=np.float64)
    return np.asarray((edges[:-1] + edges[1:] - 1.0) / 2.0)


def _mean(chosen: Threshold) -> float:
    return float(_middles(chosen) @ np.asarray(chosen.density))

"""θ by time of day: the daily cycle is divided into a few blocks. Each has its own θ for the same mechanism.

A *plan* is such a division with its θ. With e_p(θ) the mean excess of piece p of the day, n reports a slot and V the
mechanism's variance, a plan costs the mean over the slots of V θ_p²/(4n) + e_p(θ_p)². This is its mean square error by
ToPL's Eq. 8 (`threshold.objective`). Dynamic programming over the pieces gives the plan of least expected cost for each
number of blocks. More blocks are used only if the gain is large enough (`_WORTH`), and if its logarithm exceeds its
standard deviation over the draws from the posterior.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.day import Day
from undertone_aggregator.threshold.objective import Integers, Query, Variance, mean_square_error
from undertone_aggregator.threshold.posterior import decision_grid
from undertone_aggregator.threshold.result import Block, Threshold

# A further block must reduce the mean square error by at least this share.
_WORTH = 0.003
# The logarithm of a block's gain must exceed this factor times its standard deviation over the posterior draws.
_CERTAIN = 1.0
# The θ of a block is at most this factor above or below the whole day's θ.
_REACH = 8


def in_blocks(chosen: Threshold, day: Day | None, most: int, query: Query, variance: Variance) -> Threshold:
    """Divide the cycle into at most ``most`` blocks.

    Return ``chosen`` unchanged if the reports do not favour more than one block, and with a notice if it has a bottom.

    `variance` is evaluated only at the day's θ, because a block's readings fill its range as the day's readings fill
    the day's range.
    """
    if day is None or most < 2 or len(day.starts) < 2:
        return chosen
    if chosen.bottom:
        notice = "there is one range for the whole cycle, because readings are truncated from below as well"
        return replace(chosen, notices=[*chosen.notices, notice])
    thetas = _candidates(chosen, day)
    noise = variance(chosen.theta)
    excess = day.excess(thetas)
    errors = mean_square_error(excess, thetas, query, lambda _: noise) * day.shares[:, None, None]
    plan = _plan(errors, int(np.searchsorted(thetas, chosen.theta)), most)
    if len(plan) == 1:
        return chosen
    ends = [*plan[1:], len(day.starts)]
    spans = [slice(*span) for span in zip(plan, ends, strict=True)]
    blocks = [_block(chosen, day, span, thetas, excess, errors) for span in spans]
    mse = float(sum(block.share * block.choice.expected_mse for block in blocks))
    return replace(chosen, blocks=blocks, expected_mse=mse)


def _candidates(chosen: Threshold, day: Day) -> Integers:
    grid = np.asarray(decision_grid(day.edges[-1] - 1, chosen.theta)[1:-1], dtype=np.int64)
    return grid[(grid * _REACH >= chosen.theta) & (grid <= chosen.theta * _REACH)]


def _plan(errors: Vector, whole: int, most: int) -> list[int]:
    """Return the first piece of each block. ``errors`` [pieces, draws, thetas]; ``whole``: the index of the day's θ.

    The division with the least mean error over the draws must also gain in the typical draw. If a few draws have much
    heavier tails than the rest, they dominate the mean. If they need another division than the rest, the reports do not
    show enough of the tail, and the whole cycle keeps one θ.
    """
    expected = errors.mean(axis=1)
    in_force = np.full(len(errors), whole)
    best = [0]
    for starts in _segmentations(expected, most)[1:]:
        places = _places(expected, starts)
        gains = np.log(_of(errors, in_force) / _of(errors, places))
        gain, doubt = float(gains.mean()), float(gains.std())
        if gain > _WORTH * (len(starts) - len(best)) and gain > _CERTAIN * doubt:
            best, in_force = starts, places
    return best


def _segmentations(expected: Vector, most: int) -> list[list[int]]:
    """Return, for 1, 2, … ``most`` blocks, the first pieces of the cheapest division; ``expected`` [pieces, thetas]."""
    pieces = len(expected)
    sums = np.vstack([np.zeros(expected.shape[1]), np.cumsum(expected, axis=0)])
    cost = np.full((pieces + 1, pieces + 1), np.inf)
    for i in range(pieces):
        cost[i, i + 1 :] = (sums[i + 1 :] - sums[i]).min(axis=1)
    least = cost[0]
    starts: list[list[list[int]]] = [[[0] for _ in range(pieces + 1)]]
    for _ in range(1, min(most, pieces)):
        through = least[:, None] + cost
        at = through.argmin(axis=0)
        starts.append([[*starts[-1][int(k)], int(k)] for k in at])
        least = through.min(axis=0)
    return [of_all[pieces] for of_all in starts]


def _places(expected: Vector, starts: Sequence[int]) -> Integers:
    """Return for each piece the index of the θ with the least cost for its block; [pieces]."""
    best = np.add.reduceat(expected, starts, axis=0).argmin(axis=1)
    return np.repeat(best, np.diff([*starts, len(expected)]))


def _of(errors: Vector, places: Integers) -> Vector:
    """Return the cost under each draw if each piece uses the θ at its index in ``places`` [pieces]; [draws]."""
    return np.asarray(errors[np.arange(len(errors)), :, places].sum(axis=0))


def _block(chosen: Threshold, day: Day, span: slice, thetas: Integers, excess: Vector, errors: Vector) -> Block:
    """Choose θ of one block by the rule of `threshold.robust`: the θ of the least mean, over the draws, of RMSE(θ) /
    min RMSE.
    """
    together = errors[span].sum(axis=0)
    regrets = np.sqrt(together / together.min(axis=1, keepdims=True))
    at = int(np.argmin(regrets.mean(axis=0)))
    best = thetas[np.argmin(together, axis=1)]
    share = float(day.shares[span].sum())
    weights = day.shares[span] / share
    removed = weights @ excess[span, :, at]
    density = weights @ day.densities[span].mean(axis=1)
    choice = replace(
        chosen,
        theta=int(thetas[at]),
        low=int(np.quantile(best, 0.05)),
        high=int(np.quantile(best, 0.95)),
        bias=float(removed.mean()),
        bias_se=float(removed.std()),
        expected_mse=float(together[:, at].mean() / share),
        density=density,
        edges=day.edges,
        warnings=[],
        notices=[],
        pieces=None,
    )
    return Block(day.starts[span.start], share, choice)

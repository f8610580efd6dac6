"""Limits on how far θ may move at once: from the θ of the epoch before, or, at the first choice, from the θ that
results without the largest readings.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from undertone_aggregator.threshold.bin_edges import quantile
from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.objective import Integers, Query, Variance, best_threshold
from undertone_aggregator.threshold.posterior import decision_grid
from undertone_aggregator.threshold.result import Threshold

Limit = Callable[[Threshold, int, int | None, int], Threshold]

# θ changes at most by this factor from one report epoch to the next, so that fake devices cannot move it faster.
LARGEST_CHANGE = 2
# The first θ is at most LARGEST_CHANGE times the θ that results if this share of the largest readings is left out. They
# may come from fakes that imitate honest devices, which no test detects.
SUSPECTED = 0.01


def limit_change(chosen: Threshold, theta: int) -> Threshold:
    """Limit the chosen θ: at most `LARGEST_CHANGE` times above or below the θ that applies now."""
    capped = min(max(chosen.theta, -(-theta // LARGEST_CHANGE)), theta * LARGEST_CHANGE)
    if capped == chosen.theta:
        return chosen
    above = f", counted from {chosen.offset}" if chosen.offset else ""
    notice = (
        f"theta would be {chosen.offset + chosen.theta}, but becomes {chosen.offset + capped}, because one epoch"
        f" changes it by a factor of at most {LARGEST_CHANGE}{above}"
    )
    return replace(chosen, theta=capped, notices=[*chosen.notices, notice])


def limit_range(chosen: Threshold, low: int, theta: int, bound: int) -> Threshold:
    """Limit the chosen range, which lies within [0, ``bound``], to one near the range (``low``, ``theta``) that applies
    now.

    Each end moves outwards by at most one old width; the new width is at least half the old one. If neither range has a
    low end above 0, `limit_change` limits θ.
    """
    if not low and not chosen.bottom:
        return limit_change(chosen, theta)
    width = theta - low
    bottom, top = max(chosen.bottom, low - width, 0), min(chosen.theta, theta + width)
    least = -(-width // LARGEST_CHANGE)
    if top - bottom < least:
        bottom = min(max((top + bottom - least) // 2, low - width, 0), min(bound, theta + width) - least)
        top = bottom + least
    if (bottom, top) == (chosen.bottom, chosen.theta):
        return chosen
    ends = f"{chosen.offset + chosen.bottom} to {chosen.offset + chosen.theta}"
    notice = (
        f"the range would be {ends}, but becomes {chosen.offset + bottom} to {chosen.offset + top}: in one epoch, each"
        " end moves outwards by at most the range's width, and the range keeps at least half of its width"
    )
    return replace(chosen, theta=top, bottom=bottom, notices=[*chosen.notices, notice])


def limit_blocks(chosen: Threshold, limited: Limit) -> Threshold:
    """Apply ``limited`` to each block of a choice; the notices that result name the block.

    ``limited`` takes (a choice, first slot, end, harmless θ). The end is None for the end of the cycle. The harmless θ
    is the θ that the whole cycle would have within its limits. A block's θ up to the harmless θ needs no limit.
    """
    held = limited(chosen, 0, None, 1)
    if not chosen.blocks:
        return held
    ends = [block.first for block in chosen.blocks[1:]] + [None]
    notices, blocks = list(chosen.notices), []
    for block, end in zip(chosen.blocks, ends, strict=True):
        choice = limited(block.choice, block.first, end, held.theta)
        notices += [
            f"in the part of the cycle that begins with slot {block.first}, {sentence}" for sentence in choice.notices
        ]
        blocks.append(block._replace(choice=replace(choice, notices=[])))
    return replace(chosen, blocks=blocks, notices=notices)


def limit_first(chosen: Threshold, query: Query, variance: Variance, harmless: int = 1) -> Threshold:
    """Limit the first θ to `LARGEST_CHANGE` times what it would be if the largest readings were false.

    A θ of at most ``harmless`` is not limited. If readings are truncated from below as well, the distance of θ from the
    bottom is limited to `LARGEST_CHANGE` times that of the largest reading that is not suspected.
    """
    if chosen.bottom:
        high = quantile(chosen.density, chosen.edges, 1 - SUSPECTED)
        return limit_most(chosen, chosen.bottom + LARGEST_CHANGE * max(high - chosen.bottom, 1))
    thetas: Integers = np.asarray(decision_grid(int(chosen.edges[-1]) - 1)[1:-1], dtype=np.int64)
    without, _ = best_threshold(_trimmed(chosen.density), chosen.edges, thetas, query, variance)
    most = max(LARGEST_CHANGE * without, harmless)
    if chosen.theta <= most:
        return chosen
    notice = (
        f"theta would be {chosen.offset + chosen.theta}, but {chosen.offset + without} if the largest {SUSPECTED:.0%}"
        f" of readings were false: theta starts at {chosen.offset + most} and may double each epoch"
    )
    return replace(chosen, theta=most, notices=[*chosen.notices, notice])


def limit_most(chosen: Threshold, most: int | None) -> Threshold:
    """Limit θ to the operator's largest value ``most``; None means no limit."""
    if most is None or chosen.theta <= most:
        return chosen
    notice = f"theta would be {chosen.offset + chosen.theta}, but becomes {chosen.offset + most}, its limit"
    return replace(chosen, theta=most, notices=[*chosen.notices, notice])


def _trimmed(density: Vector) -> Vector:
    """Return the density [d] without the share `SUSPECTED` of its highest readings."""
    above = np.cumsum(density[::-1])[::-1] - density
    trimmed = np.clip(density + above - SUSPECTED * density.sum(), 0.0, density)
    return np.asarray(trimmed / trimmed.sum())

"""What keeps θ from being moved too far at once: by the epoch before, and in the first choice by its own evidence."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from undertone_aggregator.threshold.bin_edges import quantile
from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.objective import Integers, Query, Variance, best_threshold
from undertone_aggregator.threshold.posterior import decision_grid
from undertone_aggregator.threshold.result import Threshold

Limit = Callable[[Threshold, int, int | None, int], Threshold]

# θ changes at most by this factor from one report epoch to the next: fake devices move it no faster.
LARGEST_CHANGE = 2
# The first θ is at most so many times what it would be without the largest readings of this share: they may be fakes
# that imitate honest devices, and no test tells those.
SUSPECTED = 0.01


def limit_change(chosen: Threshold, theta: int) -> Threshold:
    """The choice, at most `LARGEST_CHANGE` times away from the θ in force."""
    capped = min(max(chosen.theta, -(-theta // LARGEST_CHANGE)), theta * LARGEST_CHANGE)
    if capped == chosen.theta:
        return chosen
    said = (
        f"theta would be {chosen.offset + chosen.theta}; one epoch changes it by a factor of {LARGEST_CHANGE} at most"
    )
    return replace(chosen, theta=capped, warnings=[*chosen.warnings, said])


def limit_range(chosen: Threshold, low: int, theta: int) -> Threshold:
    """The choice, each end at most one width of the range in force further out, and half of that range at least."""
    if not low and not chosen.bottom:
        return limit_change(chosen, theta)
    width = theta - low
    bottom, top = max(chosen.bottom, low - width, 0), min(chosen.theta, theta + width)
    least = -(-width // LARGEST_CHANGE)
    if top - bottom < least:
        bottom = max((top + bottom - least) // 2, 0)
        top = bottom + least
    if (bottom, top) == (chosen.bottom, chosen.theta):
        return chosen
    ends = f"{chosen.offset + chosen.bottom} to {chosen.offset + chosen.theta}"
    said = f"the range would be {ends}; one epoch moves its ends by one width at most"
    return replace(chosen, theta=top, bottom=bottom, warnings=[*chosen.warnings, said])


def limit_blocks(chosen: Threshold, limited: Limit) -> Threshold:
    """The choice with each block's own within its limits; what they say names the block.

    ``limited``: of (a choice, first slot, end) of the cycle, None for the cycle's end, and the θ below which there is
    no harm: what one θ for all would be, within its limits.
    """
    held = limited(chosen, 0, None, 1)
    if not chosen.blocks:
        return held
    ends = [block.first for block in chosen.blocks[1:]] + [None]
    said, blocks = list(chosen.warnings), []
    for block, end in zip(chosen.blocks, ends, strict=True):
        choice = limited(block.choice, block.first, end, held.theta)
        said += [f"from slot {block.first} of the cycle on, {sentence}" for sentence in choice.warnings]
        blocks.append(block._replace(choice=replace(choice, warnings=[])))
    return replace(chosen, blocks=blocks, warnings=said)


def limit_first(chosen: Threshold, query: Query, variance: Variance, harmless: int = 1) -> Threshold:
    """The first choice, at most `LARGEST_CHANGE` times what it would be if its largest readings were false.

    Up to ``harmless`` θ is what it is.
    """
    if chosen.bottom:
        high = quantile(chosen.density, chosen.edges, 1 - SUSPECTED)
        return limit_most(chosen, chosen.bottom + LARGEST_CHANGE * max(high - chosen.bottom, 1))
    thetas: Integers = np.asarray(decision_grid(int(chosen.edges[-1]) - 1)[1:-1], dtype=np.int64)
    without, _ = best_threshold(_trimmed(chosen.density), chosen.edges, thetas, query, variance)
    most = max(LARGEST_CHANGE * without, harmless)
    if chosen.theta <= most:
        return chosen
    said = (
        f"theta would be {chosen.offset + chosen.theta}, but {chosen.offset + without} if the largest {SUSPECTED:.0%}"
        f" of readings were false: it starts at {chosen.offset + most} and may double each epoch"
    )
    return replace(chosen, theta=most, warnings=[*chosen.warnings, said])


def limit_most(chosen: Threshold, most: int | None) -> Threshold:
    """The choice, at most the operator's ``most``."""
    if most is None or chosen.theta <= most:
        return chosen
    said = f"theta would be {chosen.offset + chosen.theta}, above its limit of {chosen.offset + most}"
    return replace(chosen, theta=most, warnings=[*chosen.warnings, said])


def _trimmed(density: Vector) -> Vector:
    """The density [d] without its highest `SUSPECTED` share."""
    above = np.cumsum(density[::-1])[::-1] - density
    kept = np.clip(density + above - SUSPECTED * density.sum(), 0.0, density)
    return np.asarray(kept / kept.sum())

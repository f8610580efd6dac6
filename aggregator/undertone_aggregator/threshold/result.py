"""The result of choosing θ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from undertone_aggregator.design.population import Blocks, Population, ReadingModel
from undertone_aggregator.threshold.bin_edges import quantile
from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.pieces import Pieces

# Name of the paper's method. With it, what truncation removes is not added to a mean, but widens the mean's interval.
WHITE_BOX = "sw-w"
# A share of the readings counts as known if it is at least this many times its standard error from the reports
# (`Threshold.seen`).
RESOLVED = 5.0


@dataclass(frozen=True)
class Threshold:
    """The chosen θ with its uncertainty and the fitted distribution; all lengths are in units of the reading.

    `low`, `high`: range that holds the optimal θ with a probability of 90 %, for each tail of the readings that the
    reports do not exclude. `bias`, `bias_se`: the mean excess E[(x - θ)⁺] that truncation at θ removes from the mean,
    and its standard deviation. `expected_mse`: the mean square error (ToPL's Eq. 8) at θ, averaged over the
    uncertainty. `density` [d] over `edges` [d + 1] (integers, bin i = [edges[i], edges[i+1])) is the fitted
    distribution of readings.

    `warnings` are sentences about what makes the choice uncertain. `notices` are sentences about how θ was limited, or
    why there are no blocks or no table; they say nothing about whether the published intervals hold.

    `bottom`: if not 0, readings are also truncated from below at this value, which raises the mean; `bias` is then
    E[(x - θ)⁺] - E[(bottom - x)⁺]. `blocks`: blocks of the cycle, each with its own θ from its first slot on;
    `theta` is then the θ that the cycle would have as a single block. `offset`: the campaign's offset in the reader's
    units; warnings and notices add it to values, fields do not.

    `seen`: value up to which the reports determine the distribution; beyond it `density` continues the shape below. The
    share of readings beyond it is `RESOLVED` times the standard error that a share has. `seen` is None if the reports
    do not determine a tail, or if the method does not give it. `pieces`: the excess of readings by piece of the cycle;
    None if the method does not give it.

    Methods without an uncertainty estimate (`ems`, `sw-w`) set low = high = θ and bias_se = nan. A campaign by `sw-w`
    takes the other fields from the robust fit of the same reports (`choose.with_tail`).
    """

    theta: int
    low: int
    high: int
    bias: float
    bias_se: float
    expected_mse: float
    density: Vector
    edges: Sequence[int]
    method: str
    warnings: list[str] = field(default_factory=list)
    bottom: int = 0
    blocks: "Sequence[Block]" = ()
    offset: int = 0
    seen: int | None = None
    pieces: Pieces | None = None
    notices: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Width of the range to which readings are truncated, from `bottom` to θ. With blocks, it is that of the widest
        block.
        """
        if self.blocks:
            return max(block.choice.width for block in self.blocks)
        return self.theta - self.bottom

    @property
    def readings(self) -> ReadingModel:
        """Distribution of the readings, shifted down by the bottom, for which a mechanism is designed.

        If there are blocks, each has a distribution of its own.
        """
        if self.blocks:
            return Blocks([(share, choice.width, choice.population) for _, share, choice in self.blocks])
        return self.population

    @property
    def population(self) -> Population:
        """Fitted distribution of max(reading - bottom, 0) over all readings."""
        return Population(self.density, self.edges).above(self.bottom)

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(first slot of the cycle, bottom, θ) of each block."""
        if self.blocks:
            return tuple((first, choice.bottom, choice.theta) for first, _, choice in self.blocks)
        return ((0, self.bottom, self.theta),)

    def quantile(self, share: float) -> int:
        """Return the smallest integer x with P(reading <= x) >= share under the fitted density."""
        return quantile(self.density, self.edges, share)


class Block(NamedTuple):
    """Part of the day with its own θ: its ``first`` slot, its ``share`` of the day's slots, and the ``choice`` of θ."""

    first: int
    share: float
    choice: Threshold

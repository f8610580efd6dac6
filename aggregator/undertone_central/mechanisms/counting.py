"""Counters of Chan, Shi and Song (TISSEC 2011): the running sum of a stream, ε-DP at the level of events.

A value is an integer in [0, B] (B = 1 counts events). None is an empty item, which a reader cannot tell from 0. One
value changes each sum that contains it by at most B.
"""

from abc import abstractmethod
from fractions import Fraction
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from undertone_central.mechanisms.budget import Epsilon, check_bound, check_count, parse_epsilon
from undertone_central.mechanisms.continual import Continual, OneByOne, clip, integers
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import Draws, Integers
from undertone_shared.errors import Invalid

LONGEST = 1 << 40
# Type of the identifier of a noise draw: (kind of sum, number).
Term = tuple[str, int]


class Counter(Continual):
    """Base of the counters; they release the noisy running sum after each value."""

    released = "counts"
    name: ClassVar[str]

    def __init__(self, bound: int, epsilon: Epsilon, source: FreshBytes | None = None) -> None:
        self.bound = check_bound(bound)
        self.epsilon = parse_epsilon(epsilon)
        self._source = source or FreshBytes()
        self._time = 0

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        return f"event-level differential privacy, pure ε = {float(self.epsilon):g} per value; {self._length}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {
            "mechanism": self.name,
            "released": self.released,
            "bound": self.bound,
            "epsilon": str(self.epsilon),
        }

    @property
    def _length(self) -> str:
        return "streams of any length"

    def _draws(self, share: Fraction) -> Draws:
        """Make the Laplace noise for a kind of sum, which uses the part ``share`` of ε."""
        return Draws(self.bound / (self.epsilon * share), self._source)

    @abstractmethod
    def terms(self, time: int) -> dict[Term, float]:
        """Return the draws whose sum is the noise of the count after ``time`` values, each with its variance."""

    def variance(self, first: int, end: int) -> float:
        """Return the variance of count ``end`` minus count ``first``; draws in both cancel. Count 0 is the exact 0."""
        before, after = self.terms(first), self.terms(end)
        return sum(v for term, v in (before | after).items() if (term in before) != (term in after))


class Bounded(Counter):
    """A counter for at most ``horizon`` values; formulas call this number T. Raises Invalid if more values arrive."""

    def __init__(self, bound: int, epsilon: Epsilon, horizon: int, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, source)
        self.horizon = check_count("horizon", horizon, 1, LONGEST)

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {**super().parameters, "horizon": self.horizon}

    @property
    def _length(self) -> str:
        return f"at most {self.horizon} values"

    def _tick(self, n: int = 1) -> None:
        if self._time + n > self.horizon:
            raise Invalid(f"the stream has more than the horizon of {self.horizon} values")
        self._time += n


class Simple1(Bounded):
    """Counter with fresh noise on every running sum: Lap(TB/ε), where T is the horizon and B the bound.

    A value is in up to T running sums, so each of them gets ε/T.
    """

    name = "simple-1"
    kept = ("_time", "_sum")

    def __init__(self, bound: int, epsilon: Epsilon, horizon: int, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, horizon, source)
        self._sum = 0
        self._noise = self._draws(Fraction(1, horizon))

    def extend(self, values: Integers) -> Integers:
        """Return the noisy running sums, one after each of these values."""
        sums = self._sum + np.cumsum(np.clip(integers(values), 0, self.bound))
        self._tick(len(sums))
        self._sum = int(sums[-1]) if len(sums) else self._sum
        return sums + self._noise.take(len(sums))

    def terms(self, time: int) -> dict[Term, float]:
        """Return the single noise draw of the prefix sum after ``time`` values."""
        return {("prefix", time): self._noise.law.variance} if time else {}


class Simple2(Counter):
    """Counter that adds noise Lap(B/ε) to each value, of bound B, and sums.

    The error grows with the square root of time.
    """

    name = "simple-2"
    kept = ("_time", "_sum")

    def __init__(self, bound: int, epsilon: Epsilon, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, source)
        self._sum = 0
        self._noise = self._draws(Fraction(1))

    def extend(self, values: Integers) -> Integers:
        """Return the noisy running sums, one after each of these values."""
        values = np.clip(integers(values), 0, self.bound)
        sums = self._sum + np.cumsum(values + self._noise.take(len(values)))
        self._time += len(sums)
        self._sum = int(sums[-1]) if len(sums) else self._sum
        return sums

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: one for each value."""
        return {("value", i): self._noise.law.variance for i in range(time)}

    def variance(self, first: int, end: int) -> float:
        """Return the noise variance of the sum of values number ``first`` to ``end`` - 1, each with its own draw."""
        return (end - first) * self._noise.law.variance


class TwoLevel(Bounded, OneByOne):
    """Counter over blocks of values and over single values, with ε/2 each.

    The count is the sum of all complete blocks and of the values after them. ``block`` None means floor(sqrt(T)). The
    last block may be incomplete: then its values are counted one by one.
    """

    name = "two-level"
    kept = ("_time", "_blocks", "_items", "_exact")

    def __init__(
        self, bound: int, epsilon: Epsilon, horizon: int, source: FreshBytes | None = None, *, block: int | None = None
    ) -> None:
        super().__init__(bound, epsilon, horizon, source)
        self.block = check_count("block", isqrt(horizon) if block is None else block, 1, LONGEST)
        # Noisy sums of all complete blocks, and of the open block's values; and the open block's exact sum.
        self._blocks = self._items = self._exact = 0
        self._noise = self._draws(Fraction(1, 2))

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {**super().parameters, "block": self.block}

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._tick()
        x = clip(value, self.bound)
        self._exact += x
        if self._time % self.block:
            self._items += x + self._noise.draw()
        else:
            self._blocks += self._exact + self._noise.draw()
            self._exact = self._items = 0
        return [self._blocks + self._items]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: one for each complete block and one for each value after the blocks."""
        blocks = time // self.block
        named = [("block", i) for i in range(blocks)] + [("value", i) for i in range(blocks * self.block, time)]
        return dict.fromkeys(named, self._noise.law.variance)


class Binary(Bounded, OneByOne):
    """Binary counter: a count is a sum of up to log2(horizon) + 1 intervals, whose noise is drawn only once.

    The count after t values sums the dyadic intervals of t's binary digits, each with noise Lap(B levels/ε). There are
    floor(log2 T) + 1 levels. Memory: one exact and one noisy sum per level.
    """

    name = "binary"
    kept = ("_time", "_exact", "_noisy")

    def __init__(self, bound: int, epsilon: Epsilon, horizon: int, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, horizon, source)
        levels = horizon.bit_length()
        self._exact = [0] * levels
        self._noisy = [0] * levels
        self._noise = self._draws(Fraction(1, levels))

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._tick()
        level = (self._time & -self._time).bit_length() - 1
        total = clip(value, self.bound) + sum(self._exact[:level])
        self._exact[: level + 1] = [0] * level + [total]
        self._noisy[: level + 1] = [0] * level + [total + self._noise.draw()]
        return [sum(self._noisy)]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: one for each binary digit of ``time`` that is 1."""
        return {(f"level {i}", time >> i): self._noise.law.variance for i in digits(time)}


def digits(time: int) -> list[int]:
    """Return the places of the binary digits that are 1."""
    return [i for i in range(time.bit_length()) if time >> i & 1]

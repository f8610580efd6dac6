"""Counters for streams without an end: an infinite hierarchy, Chan et al.'s hybrid mechanism, and monotone counts."""

from fractions import Fraction
from typing import Any, ClassVar

from undertone_central.mechanisms.budget import Epsilon
from undertone_central.mechanisms.continual import OneByOne, clip
from undertone_central.mechanisms.counting import Binary, Counter, Term, digits
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import Draws, discrete_laplace


class Unbounded(Counter, OneByOne):
    """Binary counter for streams of any length.

    Of its infinitely many levels i = 0, 1, …, level i gets 8ε/((i+8)(i+9)), which sums to ε.
    """

    name = "unbounded"
    kept = ("_time", "_exact", "_noisy")

    def __init__(self, bound: int, epsilon: Epsilon, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, source)
        self._exact: list[int] = []
        self._noisy: list[int] = []
        self._levels: list[Draws] = []

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._time += 1
        level = (self._time & -self._time).bit_length() - 1
        if level == len(self._exact):
            self._exact.append(0)
            self._noisy.append(0)
        while level >= len(self._levels):
            self._levels.append(self._draws(_share(len(self._levels))))
        total = clip(value, self.bound) + sum(self._exact[:level])
        self._exact[: level + 1] = [0] * level + [total]
        self._noisy[: level + 1] = [0] * level + [total + self._levels[level].draw()]
        return [sum(self._noisy)]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: one for each binary digit of ``time`` that is 1, with the scale of its level."""
        scales = {i: self.bound / (self.epsilon * _share(i)) for i in digits(time)}
        return {(f"level {i}", time >> i): discrete_laplace(scale).variance for i, scale in scales.items()}


def _share(level: int) -> Fraction:
    # With any positive constant in place of 8 the shares of all levels sum to 1. The constant 8 spreads ε over more of
    # the first levels than a smaller one would.
    return Fraction(8, (level + 8) * (level + 9))


class HybridCounter(Counter, OneByOne):
    """Hybrid counter: a noisy sum from each power of two to the next, and a binary counter in between, with ε/2 each.

    The sum of the values number 2^k + 1 to 2^(k+1) gets Lap(2B/ε) once, at its end. Until then, a new binary counter of
    horizon 2^k - 1 counts its values.
    """

    name = "hybrid"
    kept = ("_time", "_segment", "_logarithmic", "_within", "_base")

    def __init__(self, bound: int, epsilon: Epsilon, source: FreshBytes | None = None) -> None:
        super().__init__(bound, epsilon, source)
        self._noise = self._draws(Fraction(1, 2))
        # The exact sum of the open segment, the noisy sum of all complete segments, and the start of the open segment.
        self._segment = self._logarithmic = self._base = 0
        self._within = self._counter(0)

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._time += 1
        x = clip(value, self.bound)
        self._segment += x
        if self._time & (self._time - 1):
            return [self._logarithmic + self._within.push(x)[0]]
        self._logarithmic += self._segment + self._noise.draw()
        self._segment, self._base = 0, self._time
        self._within = self._counter(self._base)
        return [self._logarithmic]

    def restore(self, state: dict[str, Any]) -> None:
        """Restore ``state``, as returned by `state`. Raises Invalid."""
        self._base = int(state.get("_base", 0)) if isinstance(state, dict) else 0
        self._within = self._counter(self._base)
        super().restore(state)

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: one for each complete segment, and those of the open segment's binary counter."""
        if not time:
            return {}
        terms: dict[Term, float] = {("segment", i): self._noise.law.variance for i in range(time.bit_length())}
        base = 1 << time.bit_length() - 1
        within = self._counter(base).terms(time - base)
        return terms | {(f"segment {base}, {level}", number): v for (level, number), v in within.items()}

    def _counter(self, base: int) -> Binary:
        return Binary(self.bound, self.epsilon / 2, max(base - 1, 1), self._source)


class Monotone(Counter, OneByOne):
    """Monotone counter of 0/1 values: each count is the one before it, or one more (Chan et al.).

    For bound B, each count is at most B above the one before it. This is post-processing of another counter's counts.
    """

    kept: ClassVar[tuple[str, ...]] = ("_counter", "_shown")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.bound, self.epsilon = counter.bound, counter.epsilon
        self._shown = 0

    @property
    def guarantee(self) -> str:
        """The guarantee of the wrapped counter."""
        return self._counter.guarantee

    @property
    def parameters(self) -> dict[str, Any]:
        """The wrapped counter's public parameters, with ``monotone``."""
        return {**self._counter.parameters, "monotone": True}

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        (count,) = self._counter.push(value)
        self._shown = min(max(count, self._shown), self._shown + self.bound)
        return [self._shown]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the wrapped counter's draws. They are only an approximation, because monotone counts have no closed
        form.
        """
        return self._counter.terms(time)

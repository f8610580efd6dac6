"""The k-ary counter with subtraction: for long streams, the least error of all counters here under pure ε.

Andersson, Pagh, Steiner, Torkamani, *Count on Your Elders: Laplace vs Gaussian Noise*, FORC 2025, arXiv:2408.07021.
Write the time t with the digits -m..m to the base k = 2m + 1: t = Σ d_i k^i. Level i divides time into nodes of k^i
values. The running sum after t values is the sum of d_i nodes of each level i with d_i > 0, minus |d_i| nodes of each
level with d_i < 0. A value is in one node of each of h levels, so noise Lap(Bh/ε) for each node's sum gives ε in total.
The noise of the count after t values is the sum of the signed noise of its nodes. So it needs Σ |d_i| draws, about half
as many as with digits 0..k-1.

A node that is subtracted may end after t. Its sum is not known yet, but its noise can be drawn in advance. With A the
matrix of running sums, A = BC: row t of B has the signs of the nodes of t, and C the nodes' indicators. The release A x
+ B z is B(C x + z), which is post-processing of the noisy nodes.
"""

from fractions import Fraction
from typing import Any

from undertone_central.mechanisms.budget import Epsilon, check_count
from undertone_central.mechanisms.continual import OneByOne, clip
from undertone_central.mechanisms.counting import LONGEST, Bounded, Term
from undertone_central.noise.entropy import FreshBytes
from undertone_shared.errors import Invalid


class KAry(Bounded, OneByOne):
    """Counter over a tree of odd fan-out k whose nodes are added and subtracted. Best under pure ε for long streams.

    ``fanout`` None means the k with the least mean variance over the horizon. Memory: (k - 1)/2 numbers for each level.
    """

    name = "k-ary"
    kept = ("_time", "_sum", "_digits", "_noisy", "_ahead")

    def __init__(
        self, bound: int, epsilon: Epsilon, horizon: int, source: FreshBytes | None = None, *, fanout: int | None = None
    ) -> None:
        super().__init__(bound, epsilon, horizon, source)
        self.fanout = best_fanout(self.horizon) if fanout is None else check_count("fanout", fanout, 3, 2 * LONGEST + 1)
        if not self.fanout % 2:
            raise Invalid(f"fanout is {self.fanout}, expected an odd number")
        self._half = self.fanout // 2
        levels = levels_of(self.horizon, self.fanout)
        self._sum = 0
        # The digits of the time; for each level, the sum of the noise of its nodes in the count, with their signs.
        self._digits, self._noisy = [0] * levels, [0] * levels
        # Noise drawn in advance for the nodes that are subtracted, from level 0 on. Of each level, the first draw is
        # used next.
        self._ahead: list[int] = []
        self._noise = self._draws(Fraction(1, levels))

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {**super().parameters, "fanout": self.fanout}

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._tick()
        self._sum += clip(value, self.bound)
        level = 0
        while self._digits[level] == self._half:
            # Node m + 1 of a group is never added or subtracted by itself: from that node on, the digit is negative,
            # and the running sum uses the whole group (one node of the next level) minus its last nodes.
            drawn = self._noise.take(self._half).tolist()
            self._digits[level], self._noisy[level] = -self._half, -sum(drawn)
            at = self._before(level)
            self._ahead[at:at] = drawn
            level += 1
        if self._digits[level] < 0:
            self._noisy[level] += self._ahead.pop(self._before(level))
        else:
            self._noisy[level] += self._noise.draw()
        self._digits[level] += 1
        return [self._sum + sum(self._noisy)]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws: for each level i, those of the |d_i| nodes that are added or subtracted."""
        named: list[Term] = []
        base, size = 0, self.fanout ** (len(self._digits) - 1)
        for level in reversed(range(len(self._digits))):
            digit = (time - base + size // 2) // size
            at = base // size
            named += [(f"level {level}", node) for node in range(min(at, at + digit), max(at, at + digit))]
            base += digit * size
            size //= self.fanout
        return dict.fromkeys(named, self._noise.law.variance)

    def _before(self, level: int) -> int:
        """Return the number of draws made in advance that belong to lower levels."""
        return -sum(min(digit, 0) for digit in self._digits[:level])


def levels_of(horizon: int, fanout: int) -> int:
    """Return h, the least number of digits -m..m to the base k = 2m + 1 for all times up to T: (k^h - 1)/2 >= T."""
    levels = 1
    while (fanout**levels - 1) // 2 < horizon:
        levels += 1
    return levels


def mean_draws(horizon: int, fanout: int) -> Fraction:
    """Return the mean over the times 1..T of Σ |d_i|: the number of draws in a count."""
    half, total = fanout // 2, 0
    for level in range(levels_of(horizon, fanout)):
        # With u = t + (k^(i+1) - 1)/2 the digit is (u // k^i) mod k - m.
        size = fanout**level
        shift = (size * fanout - 1) // 2
        total += _absolute_digits(horizon + shift + 1, size, half) - _absolute_digits(shift + 1, size, half)
    return Fraction(total, horizon)


def best_fanout(horizon: int) -> int:
    """Return the odd k whose counts have the least mean variance, h² times `mean_draws`. For each h, only the smallest
    k is tried.
    """
    candidates = {_least_fanout(horizon, levels) for levels in range(1, horizon.bit_length() + 1)}
    return min(candidates, key=lambda k: (levels_of(horizon, k) ** 2 * mean_draws(horizon, k), k))


def _least_fanout(horizon: int, levels: int) -> int:
    """Return the smallest odd k >= 3 for which this number of levels is enough."""
    low, high = 1, horizon
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if levels_of(horizon, 2 * middle + 1) <= levels else (middle + 1, high)
    return 2 * low + 1


def _absolute_digits(end: int, size: int, half: int) -> int:
    """Return the sum over 0 <= u < end of |(u // size) mod k - m|."""
    cycles, rest = divmod(end, size * (2 * half + 1))
    digits, part = divmod(rest, size)
    total = cycles * size * half * (half + 1)
    first = min(digits, half)
    # The digits -m, -m + 1, … of the last, incomplete cycle.
    total += size * (first * half - first * (first - 1) // 2)
    later = digits - first
    total += size * (later * (later - 1) // 2)
    return total + part * abs(digits - half)

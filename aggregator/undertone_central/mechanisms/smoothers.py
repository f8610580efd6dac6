"""Smoothers of ToPS (Appendix D): prediction of the next block sum from the sums that were already released.

This is post-processing of released numbers alone. A block has g values; its sum is released when it is complete. Until
then each of its values is published as u/g, where u is the prediction. The last value corrects the block, so that block
sums are exactly the released sums. In the paper g = b^s, where b is the fan-out, and s minimises the expected error
(Eq. 7 of ToPS), see `best_smoothing`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from fractions import Fraction
from math import log
from typing import ClassVar

import numpy as np

from undertone_central.mechanisms.continual import Saved
from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

# Number of released sums that the median uses. In blocks of 256 they cover one span of 2^20 values.
MEDIAN_OF = 4096
MOVING_OVER = 5
EXPONENTIAL_SHARE = 0.6
AUTO_SHARES = (0.06, 0.2, 0.6, 1.0)
AUTO_MEMORY = 0.98


class Smoother(Saved, ABC):
    """Base of the smoothers. ``prediction`` is the expected next block sum; it is ``initial`` until a sum is
    released.
    """

    kept: ClassVar[tuple[str, ...]] = ("prediction",)

    def __init__(self) -> None:
        self.prediction = 0.0

    def start(self, initial: float) -> None:
        """Set the prediction that is used before any sum is released."""
        self.prediction = initial

    @abstractmethod
    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""

    def follow(self, released: Integers) -> Integers:
        """Update with these sums. Return integer predictions: one before each block, and one after the last; [n] → [n +
        1].
        """
        predictions = [self.prediction]
        for x in released.tolist():
            self.update(x)
            predictions.append(self.prediction)
        return np.rint(predictions).astype(np.int64)


class Recent(Smoother):
    """Predicts the newest sum."""

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        self.prediction = float(released)

    def follow(self, released: Integers) -> Integers:
        """Do the same as the base class, with array operations."""
        predictions = np.concatenate([[round(self.prediction)], released])
        if len(released):
            self.prediction = float(released[-1])
        return predictions.astype(np.int64)


class Mean(Smoother):
    """Predicts the mean of all sums."""

    kept = ("prediction", "_count")

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        self._count += 1
        before = self.prediction if self._count > 1 else 0.0
        self.prediction = before + (released - before) / self._count


class Median(Smoother):
    """Predicts the median of the newest 4096 sums."""

    kept = ("prediction", "_recent", "_sorted")

    def __init__(self) -> None:
        super().__init__()
        self._recent: list[int] = []
        self._sorted: list[int] = []

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        if len(self._recent) == MEDIAN_OF:
            del self._sorted[bisect_left(self._sorted, self._recent.pop(0))]
        self._recent.append(released)
        insort(self._sorted, released)
        half = len(self._sorted) // 2
        self.prediction = (self._sorted[half] + self._sorted[~half]) / 2


class MovingAverage(Smoother):
    """Predicts the mean of the newest 5 sums."""

    kept = ("prediction", "_recent")

    def __init__(self) -> None:
        super().__init__()
        self._recent: list[int] = []

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        self._recent = [*self._recent[1 - MOVING_OVER :], released]
        self.prediction = sum(self._recent) / len(self._recent)


class Exponential(Smoother):
    """Predicts u_i = (1 - α) u_(i-1) + α x_i, α = 0.6; u_1 = x_1."""

    kept = ("prediction", "_started")

    def __init__(self) -> None:
        super().__init__()
        self._started = False

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        share = EXPONENTIAL_SHARE if self._started else 1.0
        self._started = True
        self.prediction += share * (released - self.prediction)


class Auto(Smoother):
    """Predicts with the one of several exponential averages that has predicted the released sums best so far.

    In these averages the newest of n sums has the shares 1/n (the mean of all), 0.06, 0.2, 0.6 and 1 (the newest
    alone). Each average is judged by its squared errors. Older errors lose 2 % of their weight per block.
    """

    kept = ("prediction", "_count", "_levels", "_errors")

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._levels = [0.0] * (len(AUTO_SHARES) + 1)
        self._errors = [0.0] * (len(AUTO_SHARES) + 1)

    def start(self, initial: float) -> None:
        """Set the prediction that is used before any sum is released."""
        super().start(initial)
        self._levels = [initial] * len(self._levels)

    def update(self, released: int) -> None:
        """Update the prediction with a released block sum."""
        self._count += 1
        for i, share in enumerate((1 / self._count, *AUTO_SHARES)):
            error = released - self._levels[i]
            self._errors[i] = AUTO_MEMORY * self._errors[i] + error * error
            # The first released sum replaces the initial level of each average.
            self._levels[i] += (share if self._count > 1 else 1.0) * error
        self.prediction = self._levels[self._errors.index(min(self._errors))]


SMOOTHERS: dict[str, type[Smoother]] = {
    "auto": Auto,
    "recent": Recent,
    "mean": Mean,
    "median": Median,
    "moving-average": MovingAverage,
    "exponential": Exponential,
}


def make_smoother(name: str) -> Smoother:
    """Return a new smoother of this name. Raises Invalid for an unknown name."""
    if name not in SMOOTHERS:
        raise Invalid(f"smoother is {name!r}, expected one of {', '.join(SMOOTHERS)}")
    return SMOOTHERS[name]()


def best_smoothing(fanout: int, levels: int, epsilon: Fraction) -> int:
    """Return the s from 0 to levels - 1 that minimises Eq. 7 of ToPS; it is the same for any θ.

    Eq. 7 is (b-1)(L-s)³ 2θ²/ε² + (b^s θ/6)²: the noise of a range's nodes, and the error of predictions in blocks.
    """
    return min(
        range(levels),
        key=lambda s: (fanout - 1) * (levels - s) ** 3 * 2 / epsilon**2 + Fraction(fanout ** (2 * s), 36),
    )


def paper_smoothing(fanout: int, levels: int, epsilon: Fraction) -> int:
    """Return the authors' s: the real s in [0, levels] that minimises Eq. 7, rounded to an integer below levels.

    The derivative of Eq. 7 over θ², -6(b-1)(L-s)²/ε² + ln(b) b^(2s)/18, rises in s (see `best_smoothing`), so bisection
    finds its zero.
    """

    def slope(s: float) -> float:
        rising: float = log(fanout) * fanout ** (2 * s) / 18
        return rising - 6 * (fanout - 1) * (levels - s) ** 2 / float(epsilon) ** 2

    low, high = 0.0, float(levels)
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return min(round(low), levels - 1)

"""What truncation removes from the means of slots, by column, and the error of a mean over several slots."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Slots = NDArray[np.int64]

# The shape's errors of two slots are alike if they are near in the cycle: their correlation falls by a factor of e over
# this share of the cycle, two hours of a day.
_ALIKE = 1 / 12


class Reported(NamedTuple):
    """What reports say of some slots, ascending; arrays [slots].

    ``mean``: the truncated mean less the offset; ``error``: its standard error; ``devices``: the number that it is for.
    """

    slot: Slots
    mean: Vector
    error: Vector
    devices: Vector


class Removed(NamedTuple):
    """What truncation removes from the means of some slots; arrays [slots].

    Its error has three independent parts, as standard deviations. ``shared``: the same in all slots. ``shape``: the
    error of the day's shape, which is the same every day and averages out over a cycle. ``own``: of the slot alone.
    """

    bias: Vector
    shared: Vector
    shape: Vector
    own: Vector

    @classmethod
    def unknown(cls, slots: int) -> "Removed":
        """Return nan for ``slots`` slots."""
        return cls(*np.full((4, slots), np.nan))

    @property
    def standard_error(self) -> Vector:
        """The standard error of each ``bias``."""
        return np.asarray(np.sqrt(np.square(self.shared) + np.square(self.shape) + np.square(self.own)))

    def as_error(self) -> "Removed":
        """Return what is removed as an error of means to which nothing is added: its size is part of ``shared``."""
        return self._replace(bias=np.zeros_like(self.bias), shared=np.hypot(self.shared, self.bias))

    def take(self, places: NDArray[np.intp]) -> "Removed":
        """Return what is removed from the slots at these places."""
        return Removed(*(column[places] for column in self))


def error_of_mean(removed: Removed, slots: Slots, cycle: int) -> float:
    """Return the standard error of the mean of some slots' biases.

    With a_p the sum of the shape errors in phase p, over the number of slots, the variance of their sum is a'Ca, where
    C has correlations e^(-d/(cycle/12)) by circular distance d and is conditioned on errors that add up to 0 over the
    cycle. C is circulant, so a'Ca is a sum over the Fourier transforms of a and of C's first row without their first
    terms.
    """
    n = len(slots)
    shared, own = float(removed.shared.sum()) / n, float(np.sqrt(np.square(removed.own).sum())) / n
    weights = np.bincount(np.asarray(slots) % cycle, removed.shape, minlength=cycle) / n
    distance = np.minimum(np.arange(cycle), cycle - np.arange(cycle))
    spectrum = np.fft.fft(np.exp(-distance / (cycle * _ALIKE))).real
    left = 1.0 - spectrum[0] / cycle
    if left <= 0.0:
        # A cycle of one slot has no shape: its error is the same in every slot.
        return math.hypot(shared, own, float(weights.sum()))
    power = np.square(np.abs(np.fft.fft(weights)[1:]))
    shape = float(power @ spectrum[1:]) / cycle / left
    return math.sqrt(shared**2 + own**2 + max(shape, 0.0))

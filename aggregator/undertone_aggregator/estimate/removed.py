"""What truncation removes from the means of slots, by column, and the error of a mean over several slots."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Slots = NDArray[np.int64]

# The shape's errors in two slots are similar if the slots are near in the cycle: their correlation falls by a factor of
# e over this share of the cycle, two hours of a day.
_ALIKE = 1 / 12


class Reported(NamedTuple):
    """What reports say of some slots, ascending; arrays [slots].

    ``mean``: the truncated mean minus the offset; ``error``: its standard error; ``devices``: the number of devices
    that the mean is for.
    """

    slot: Slots
    mean: Vector
    error: Vector
    devices: Vector


class Removed(NamedTuple):
    """What truncation removes from the means of some slots (``bias``), and its error; arrays [slots].

    The error has independent parts, given as standard deviations:

    - ``fit`` is the error of the fit's mean; ``explained`` that of the explanation of a changed mean, with its sign.
      Both come from the choice of θ, so each is fully correlated over all slots and groups.
    - ``level`` is the error of the level of the cycle around the slot, a sum of the noise of these slots.
    - ``shape`` is the error of the day's shape, which is the same every day and averages out over a cycle.
    - ``own`` and ``chance`` are errors of the slot alone; ``chance`` comes from the few devices with large readings.
    """

    bias: Vector
    fit: Vector
    explained: Vector
    level: Vector
    shape: Vector
    own: Vector
    chance: Vector

    @classmethod
    def unknown(cls, slots: int) -> "Removed":
        """Return what is removed from ``slots`` slots if that is unknown: nan."""
        return cls(*np.full((len(cls._fields), slots), np.nan))

    @property
    def shared(self) -> Vector:
        """The part of the error that is fully correlated over all slots."""
        return np.asarray(np.sqrt(np.square(self.fit) + np.square(self.explained)))

    @property
    def standard_error(self) -> Vector:
        """The standard error of each ``bias``."""
        return np.asarray(np.sqrt(np.square(self.shared) + np.square(self.level) + np.square(self.shape) + self.alone))

    @property
    def alone(self) -> Vector:
        """The variance of the part of the error that belongs to the slot alone."""
        return np.asarray(np.square(self.own) + np.square(self.chance))

    def as_error(self) -> "Removed":
        """Return what is removed with a bias of 0, for means without a bias; its size becomes a part of ``fit``."""
        return self._replace(bias=np.zeros_like(self.bias), fit=np.hypot(self.fit, self.bias))

    def take(self, places: NDArray[np.intp]) -> "Removed":
        """Return what is removed from the slots at these places."""
        return Removed(*(column[places] for column in self))


def error_of_mean(removed: Removed, slots: Slots, reported: Slots, noise: Vector, cycle: int) -> float:
    """Return the error that some slots' biases add to the mean of these slots: √(Var(ȳ + x̄) - Var(ȳ)), at least 0.

    ȳ and x̄ are the means of the truncated means y and of the biases x over ``slots``. ``noise``: the variances of y in
    all ``reported`` slots, which are ascending. The level's error is a sum of the same noise, see `level_weights`, so
    it is correlated with ȳ.
    """
    n = len(slots)
    weights = np.isin(reported, slots) / n
    levels = level_weights(removed.level / n, slots, reported, noise, cycle)
    variance = float((levels * (levels + 2.0 * weights)) @ noise) + float(removed.alone.sum()) / n**2
    variance += (float(removed.shared.sum()) / n) ** 2 + shape_variance(removed.shape / n, slots, cycle)
    return math.sqrt(max(variance, 0.0))


def errors_of_slots(removed: Removed, slots: Slots, noise: Vector, cycle: int) -> Vector:
    """Return `error_of_mean` of each slot alone, [slots].

    ``slots``: all slots with reports, ascending. ``noise``: the variances of their truncated means.
    """
    each, _, _ = _gains(removed.level, slots, slots, noise, cycle)
    return np.asarray(np.sqrt(np.square(removed.standard_error) + 2.0 * each * noise))


def level_weights(errors: Vector, slots: Slots, reported: Slots, noise: Vector, cycle: int) -> Vector:
    """Return how much each reported slot's noise counts in the sum of the level errors of ``slots``; [k].

    The level of slot t is the mean over the reported slots s within half a cycle of t. The error of this mean is e_t
    Σ_s ε_s / √(Σ_s σ_s²). Here e_t (``errors``) is its standard deviation, ε_s the noise of slot s, and σ_s² (``noise``
    [k]) the variance of ε_s.
    """
    each, first, end = _gains(errors, slots, reported, noise, cycle)
    jump = np.zeros(len(reported) + 1)
    np.add.at(jump, first, each)
    np.add.at(jump, end, -each)
    return np.asarray(np.cumsum(jump)[:-1])


def _gains(errors: Vector, slots: Slots, reported: Slots, noise: Vector, cycle: int) -> tuple[Vector, Slots, Slots]:
    """Return e_t / √(Σ_s σ_s²) of `level_weights` [slots], and where in ``reported`` the slots s of each t begin and
    end.
    """
    first = np.searchsorted(reported, slots - cycle // 2)
    end = np.searchsorted(reported, slots + cycle // 2, side="right")
    sums = np.append(0.0, np.cumsum(noise))
    around = np.sqrt(np.maximum(sums[end] - sums[first], 0.0))
    return np.divide(errors, around, out=np.zeros(len(slots)), where=around > 0.0), first, end


def shape_variance(errors: Vector, slots: Slots, cycle: int) -> float:
    """Return the variance of a weighted sum of the slots' errors of the day's shape.

    ``errors``: each slot's standard deviation, times its weight in the sum, which may be negative.

    The variance is a'Ca. The vector a holds the sum of ``errors`` in each phase of the cycle. C is the correlation of
    the errors in two phases. It starts from e^(-d/(cycle/12)), where d is their circular distance. It is then
    conditioned on errors that add up to 0 over the cycle, and scaled to variances of 1. C is circulant, so a'Ca is
    computed from the Fourier transforms of a and of C's first row, without their first terms.
    """
    weights = np.bincount(np.asarray(slots) % cycle, errors, minlength=cycle)
    distance = np.minimum(np.arange(cycle), cycle - np.arange(cycle))
    spectrum = np.fft.fft(np.exp(-distance / (cycle * _ALIKE))).real
    left = 1.0 - spectrum[0] / cycle
    if left <= 0.0:
        # In a cycle of one slot, all errors are equal, so the weights add up.
        return float(np.square(weights.sum()))
    power = np.square(np.abs(np.fft.fft(weights)[1:]))
    return max(float(power @ spectrum[1:]) / cycle / float(left), 0.0)

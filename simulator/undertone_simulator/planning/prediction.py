"""The predicted error of a design, which all planners use.

Of n devices every s-th reports in a slot. Let θ/2 be the half-width, V the mechanism's variance over a slot's readings
in units of (θ/2)², S² the variance of the truncated readings and b the bias of their mean by truncation. Then the mean
of one slot has

    error² = b² + noise,   noise = (s/n) (V θ²/4 + S² (1 - 1/s)).

Reports of different slots are drawn independently. Therefore the mean over m slots has 1/m of the mean noise, and the
mean of the m biases.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def noise(
    theta: NDArray[np.integer] | int,
    variance: Vector | float,
    devices: float,
    stride: int = 1,
    spread: Vector | float = 0.0,
) -> Vector:
    """Return the noise variance of a slot's mean, in the unit of θ squared. The arguments broadcast.

    ``variance``: V, in units of (θ/2)². ``stride``: s. ``spread``: S², which matters only for a stride above 1.
    """
    return np.asarray(stride / devices * (variance * np.square(np.asarray(theta) / 2.0) + spread * (1 - 1 / stride)))


@dataclass(frozen=True)
class Prediction:
    """The errors of one design by slot of the day: ``variance`` of the noise [slots] and ``bias`` [slots]."""

    variance: Vector
    bias: Vector

    @property
    def standard_error(self) -> float:
        """Root mean square of the noise over the slots of a day."""
        return float(np.sqrt(np.mean(self.variance)))

    @property
    def error(self) -> float:
        """Root mean square error over the slots of a day: noise and bias."""
        return float(np.sqrt(np.mean(self.variance + np.square(self.bias))))

    def over(self, slots: int) -> "tuple[float, float]":
        """Return (standard error, error) of the mean over ``slots`` consecutive slots.

        The error is a root mean square over the slots of the day at which they may begin.
        """
        days, rest = divmod(slots, len(self.bias))
        sums = np.concatenate([[0.0], np.cumsum(np.tile(self.bias, 2))])
        first = np.arange(len(self.bias))
        bias = (days * self.bias.sum() + sums[first + rest] - sums[first]) / slots
        variance = float(np.mean(self.variance)) / slots
        return math.sqrt(variance), math.sqrt(variance + float(np.mean(np.square(bias))))

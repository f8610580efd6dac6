"""Rival mechanisms and methods at equal privacy: formulas for one reading, simulations for any 24 hours, streams.

For one reading, variances are in units of (θ/2)², for x = 2 reading/θ - 1. For any window of w slots, a fleet of n
copies of the data's devices is simulated: noise of a mean of many reports, and the choice of the devices that report,
are normal with their exact variances; IPP and CAPP are drawn device by device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.continuous import (
    hybrid_variance,
    piecewise_variance,
    square_wave_half_width,
    worst_hybrid_variance,
)

Array = NDArray[np.float64]


def laplace_variance(epsilon: float) -> float:
    """Return the variance of Laplace noise for readings in [-1, 1]: 8/ε²."""
    return 8 / epsilon**2


def staircase_variance(epsilon: float) -> float:
    """Return the least variance of the staircase mechanism for sensitivity 2 (Geng, Viswanath, IEEE Trans. IT 2016).

    4 (2^(-2/3) b^(2/3) (1 + b)^(2/3) + b) / (1 - b)² with b = e^-ε.
    """
    b = exp(-epsilon)
    return float(4 * (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2)


def duchi_variance(epsilon: float, x: float) -> float:
    """Return the variance of Duchi, Jordan and Wainwright's one bit: ((e^ε + 1)/(e^ε - 1))² - x²."""
    return ((exp(epsilon) + 1) / (exp(epsilon) - 1)) ** 2 - x * x


def three_outputs_variance(epsilon: float, x: float) -> float:
    """Return the variance of Three-Outputs (Zhao et al., IEEE IoT Journal 2021) with the least worst variance.

    The outputs are -C, 0, C with C = e^ε (e^ε + 1)/((e^ε - 1)(e^ε - a)), and 0 has probability a (1 - (1 - e^-ε)|x|).
    """
    e = exp(epsilon)

    def variance(a: float, at: float) -> float:
        c = e * (e + 1) / ((e - 1) * (e - a))
        return c * c * (1 - a + a * (1 - 1 / e) * at) - at * at

    steps = np.linspace(0.0, e / (e + 2), 400)
    worst = [max(variance(a, at) for at in np.linspace(0, 1, 41)) for a in steps]
    return variance(float(steps[int(np.argmin(worst))]), abs(x))


# The published mechanisms for one reading: name -> (variance at x, source).
ONE_READING: dict[str, tuple[Callable[[float, float], float], str]] = {
    "Laplace": (lambda e, x: laplace_variance(e), "Dwork et al. 2006"),
    "staircase": (lambda e, x: staircase_variance(e), "Geng, Viswanath 2016"),
    "Duchi, one bit": (duchi_variance, "Duchi, Jordan, Wainwright 2018"),
    "piecewise": (piecewise_variance, "Wang et al. 2019"),
    "three outputs": (three_outputs_variance, "Zhao et al. 2021"),
    "Hybrid": (hybrid_variance, "Wang et al. 2019"),
}


@dataclass(frozen=True)
class CopiedFleet:
    """A fleet of ``devices`` copies of the data's devices: readings [slots, homes] and the window of w slots."""

    readings: Array
    devices: int
    window: int

    @property
    def truth(self) -> Array:
        """The mean of the readings of each slot."""
        return np.asarray(self.readings.mean(axis=1))

    def truncated(self, theta: float) -> tuple[Array, Array]:
        """Return the mean and the standard deviation of the truncated readings of each slot."""
        low = np.minimum(self.readings, theta)
        return low.mean(axis=1), low.std(axis=1)

    def error(self, estimates: Array) -> float:
        """Return the root mean square error of a slot, relative to the mean reading."""
        return sqrt(float(np.mean((estimates - self.truth) ** 2))) / float(self.truth.mean())


def by_budget(fleet: CopiedFleet, theta: float, epsilon: float, generator: np.random.Generator) -> Array:
    """LBU (Ren et al., SIGMOD 2022): every device reports every slot by the Hybrid with ε/w."""
    mean, _ = fleet.truncated(theta)
    noise = worst_hybrid_variance(epsilon / fleet.window) * theta**2 / 4 / fleet.devices
    return np.asarray(mean + sqrt(noise) * generator.standard_normal(len(mean)))


def by_population(
    fleet: CopiedFleet, theta: float, variance: float, stride: int, generator: np.random.Generator
) -> Array:
    """LPU (Ren et al.), and turns: a random stride-th of the devices reports, with ``variance`` of one report."""
    mean, spread = fleet.truncated(theta)
    group = max(fleet.devices // stride, 1)
    total = (variance * theta**2 / 4 + spread**2 * (1 - group / fleet.devices)) / group
    return np.asarray(mean + np.sqrt(total) * generator.standard_normal(len(mean)))


def adaptive(
    fleet: CopiedFleet, theta: float, epsilon: float, generator: np.random.Generator, *, absorbs: bool
) -> Array:
    """LPD and LPA (Ren et al.): publish anew if the dissimilarity, from n/(2w) devices, exceeds the error to expect.

    LPD publishes with half of the devices that are left in the window, LPA with those of the slots that it skipped.
    """
    mean, spread = fleet.truncated(theta)
    noise, n, w = worst_hybrid_variance(epsilon) * theta**2 / 4, fleet.devices, fleet.window
    unit = n // (2 * w)
    used = np.zeros(len(mean))
    out = np.zeros(len(mean))
    last, published, idle_until = 0.0, -1, -1
    for t in range(len(mean)):

        def draw(size: float, t: int = t) -> float:
            deviation = sqrt((noise + spread[t] ** 2) / size)
            return float(mean[t] + deviation * generator.standard_normal())

        own = (noise + spread[t] ** 2) / unit
        dissimilarity = (draw(unit) - last) ** 2 - own
        if absorbs:
            size = 0 if t <= idle_until else unit * min(t - max(published, idle_until), w)
        else:
            size = int((n / 2 - used[max(t - w + 1, 0) : t].sum()) / 2)
        if size >= 1 and (published < 0 or dissimilarity > (noise + spread[t] ** 2) / size):
            last, published, used[t] = draw(size), t, size
            idle_until = t + size // unit - 1 if absorbs else -1
        out[t] = last
    return out


def perturbed_input(
    fleet: CopiedFleet, theta: float, epsilon: float, generator: np.random.Generator, *, margin: float | None
) -> Array:
    """IPP (``margin`` None) and CAPP (Du et al., arXiv:2504.14993): a device corrects its input by its own deviations.

    Square Wave with ε/w. IPP adds the last deviation, and clips to [0, 1]; CAPP adds all deviations, and clips to
    [-margin, 1 + margin], which it scales to [0, 1]. The estimate is the mean of the reports.
    """
    share = epsilon / fleet.window
    b = square_wave_half_width(share)
    inside = 2 * b * exp(share) / (2 * b * exp(share) + 1)
    homes = fleet.readings.shape[1]
    which = np.arange(fleet.devices) % homes
    deviation = np.zeros(fleet.devices)
    low, width = (0.0, 1.0) if margin is None else (-margin, 1 + 2 * margin)
    out = np.zeros(len(fleet.readings))
    for t, readings in enumerate(fleet.readings):
        x = np.minimum(readings, theta)[which] / theta
        asked = (np.clip(x + deviation, low, low + width) - low) / width
        near = asked - b + 2 * b * generator.random(fleet.devices)
        # The rest of [-b, 1 + b] has length 1: from -b to asked - b, and from asked + b to 1 + b.
        far = generator.random(fleet.devices)
        far = np.where(far < asked, far - b, far + b)
        sent = np.where(generator.random(fleet.devices) < inside, near, far) * width + low
        deviation = x - sent if margin is None else deviation + x - sent
        out[t] = theta * sent.mean()
    return out


def hindsight(fleet: CopiedFleet, estimates: Array) -> float:
    """Return the error after the best affine map of the estimates, which only somebody with the truth could know."""
    centred = estimates - estimates.mean()
    slope = float(centred @ fleet.truth / max(float(centred @ centred), 1e-300))
    return fleet.error(fleet.truth.mean() + slope * centred)


def square_root_slot_variance(slots: int, squared: float) -> float:
    """Return the mean noise variance of a slot's value under the square-root factorisation, for one device.

    Running sums are C(Cx + z) with C Toeplitz, coefficients binom(2k, k)/4^k. A whole day is protected, so the
    sensitivity of Cx for readings in [0, 1] is |C 1|. A slot's value is the difference of two sums. ``squared``: μ².
    """
    k = np.arange(1, slots)
    f = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    place = np.subtract.outer(np.arange(slots), np.arange(slots))
    c = np.where(place >= 0, f[np.abs(place)], 0.0)
    differences = np.vstack([c[:1], np.diff(c, axis=0)])
    sensitivity = float(np.square(c.sum(axis=1)).sum())
    return sensitivity / squared * float(np.square(differences).sum(axis=1).mean())


def best_of(thetas: list[float], error: Callable[[float], float]) -> float:
    """Return the θ of least error."""
    return min(thetas, key=error)


def grid(fleet: CopiedFleet, count: int = 10) -> list[float]:
    """Return θ from the median reading up to the largest, evenly in their logarithm."""
    low, high = max(float(np.median(fleet.readings)), 1.0), float(fleet.readings.max())
    return [exp(log(low) + (log(high) - log(low)) * i / (count - 1)) for i in range(count)]

"""Rival mechanisms and methods at equal privacy: formulas for one reading; simulations for windows and streams.

For one reading, variances are in units of (θ/2)²; x = 2 reading/θ - 1 is the scaled reading. For a guarantee over any
window of w slots, a fleet of n copies of the data's devices is simulated. The noise of a mean, and the choice of the
devices that report, are drawn from normal distributions with the exact variances. Only IPP and CAPP (`perturbed_input`)
are drawn device by device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.continuous import (
    hybrid_variance,
    piecewise_variance,
    square_wave_half_width,
    worst_hybrid_variance,
)

Array = NDArray[np.float64]
Dissimilarity = Literal["unbiased", "square", "known"]


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
    """Return the variance of Three-Outputs (Zhao et al., IEEE IoT Journal 2021).

    The outputs are -C, 0, C with C = e^ε (e^ε + 1)/((e^ε - 1)(e^ε - a)), and 0 has probability a (1 - (1 - e^-ε)|x|).
    The variance is that at ``x``, with the a whose largest variance over all x is least.
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
    """A fleet of ``devices`` copies of the data's devices: their readings [slots, homes], and the window's length w."""

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
    """Return the estimates of LBU (Ren et al., SIGMOD 2022): every device reports every slot by the Hybrid with ε/w."""
    mean, _ = fleet.truncated(theta)
    noise = worst_hybrid_variance(epsilon / fleet.window) * theta**2 / 4 / fleet.devices
    return np.asarray(mean + sqrt(noise) * generator.standard_normal(len(mean)))


def by_population(
    fleet: CopiedFleet, theta: float, variance: float, stride: int, generator: np.random.Generator
) -> Array:
    """Return the estimates of LPU (Ren et al.) and of turns: one device in ``stride`` reports, chosen at random.

    ``variance``: that of one report, in units of (θ/2)².
    """
    mean, spread = fleet.truncated(theta)
    group = max(fleet.devices // stride, 1)
    total = (variance * theta**2 / 4 + spread**2 * (1 - group / fleet.devices)) / group
    return np.asarray(mean + np.sqrt(total) * generator.standard_normal(len(mean)))


def adaptive(
    fleet: CopiedFleet,
    theta: float,
    epsilon: float,
    generator: np.random.Generator,
    *,
    absorbs: bool,
    dissimilarity: Dissimilarity = "unbiased",
) -> Array:
    """Return the estimates of LPD or LPA (Ren et al., SIGMOD 2022).

    Both publish a new mean only if the dissimilarity, which n/(2w) devices measure, exceeds the expected error of a new
    mean. Otherwise they publish the last mean again.

    Of the n devices, n/2 are for publications, n/(2w) in each slot. LPD publishes with half of those that the window
    has not used. LPA publishes with those of this slot and of the slots that it skipped, and then skips as many slots.

    ``dissimilarity``: "unbiased" as in the paper, which subtracts the variance from the square of the noisy difference;
    "square" does not; "known" is the true square, which nobody knows.
    """
    mean, spread = fleet.truncated(theta)
    noise, n, w = worst_hybrid_variance(epsilon) * theta**2 / 4, fleet.devices, fleet.window
    unit = n // (2 * w)
    used = np.zeros(len(mean))
    out = np.zeros(len(mean))
    last, published, idle_until = 0.0, -1, -1
    for t in range(len(mean)):
        variance = noise + spread[t] ** 2

        def draw(size: float, t: int = t, variance: float = variance) -> float:
            return float(mean[t] + sqrt(variance / size) * generator.standard_normal())

        if dissimilarity == "known":
            square = (mean[t] - last) ** 2
        else:
            square = (draw(unit) - last) ** 2 - (variance / unit if dissimilarity == "unbiased" else 0.0)
        if absorbs:
            size = 0 if t <= idle_until else unit * min(t - max(published, idle_until), w)
        else:
            size = int((n / 2 - used[max(t - w + 1, 0) : t].sum()) / 2)
        if size >= 1 and (published < 0 or square > variance / size):
            last, published, used[t] = draw(size), t, size
            idle_until = t + size // unit - 1 if absorbs else -1
        out[t] = last
    return out


@dataclass(frozen=True)
class Fast:
    """The parameters of FAST (Fan and Xiong, IEEE TKDE 26(9), 2014).

    ``samples``: M, the largest number of samples in a window; ``set_point``: ξ, the feedback error to keep;
    ``magnitude``: θ of the paper, by how much the interval changes; ``process``: Q, the variance of a step of the
    means. The gains of the controller are the paper's.
    """

    samples: int
    set_point: float
    magnitude: float
    process: float
    proportional: ClassVar[float] = 0.9
    integral: ClassVar[float] = 0.1
    derivative: ClassVar[float] = 0.0
    span: ClassVar[int] = 5
    # The least mean in the feedback error's denominator, as a share of the truncation threshold.
    least: ClassVar[float] = 0.01


def fast(
    fleet: CopiedFleet, theta: float, squared: float, options: Fast, generator: np.random.Generator
) -> tuple[Array, list[int]]:
    """Run FAST: a PID controller chooses slots to sample.

    A Kalman filter corrects with the samples and predicts the other slots.

    The model: slot k has the mean x_k = x_{k-1} + N(0, Q), and a sample z is x_k + N(0, R). The filter has an estimate
    x with variance P. It predicts x and P + Q; at a sample, with K = P/(P + R), it corrects to x + K (z - x) and (1 -
    K) P. The feedback error E of a sample is |corrected - predicted| over the corrected value. Δ = Cp E + Ci (mean of
    the last five E) + Cd (E - E before)/(slots between), and the next interval is max(1, I + m (1 - e^((Δ - ξ)/ξ))),
    with I the last interval and m = ``options.magnitude``.

    In a sampled slot, every device reports with Gaussian noise of variance ``theta``² M/μ². M reports of a window have
    the budget μ² = ``squared`` together, whatever slots the earlier reports choose, so sampling stops after M samples
    in a window. (In the paper, a trusted curator adds Laplace noise, and M is for the whole series.) Returns the
    estimates and the sampled slots.
    """
    mean, _ = fleet.truncated(theta)
    noise = theta**2 * options.samples / squared / fleet.devices
    value, variance, interval, following, taken = 0.0, float("inf"), 1.0, 0, 0
    errors: list[float] = []
    out, sampled = np.zeros(len(mean)), list[int]()
    for t in range(len(mean)):
        if t % fleet.window == 0:
            taken, following = 0, t
        variance += options.process
        if t >= following and taken < options.samples:
            taken += 1
            measured = float(mean[t]) + sqrt(noise) * generator.standard_normal()
            gain = 1.0 if variance == float("inf") else variance / (variance + noise)
            corrected = value + gain * (measured - value)
            if sampled:
                errors.append(abs(corrected - value) / max(corrected, options.least * theta))
                interval = _interval(errors, t - sampled[-1], interval, options)
            value, variance = corrected, noise if gain == 1.0 else (1 - gain) * variance
            sampled.append(t)
            following = t + round(interval)
        out[t] = value
    return out, sampled


def filtered_stream(means: Array, share: float, noise: float, process: float, window: int) -> Array:
    """Filter means whose noise is correlated: x_k as in `fast`, measured with noise e_k = r e_{k-1} + fresh noise.

    ``share``: r; ``noise``: the variance of e in every slot; e begins anew with each window; ``process``: Q. The
    estimate of a slot uses that slot and earlier ones.
    """
    value, spread = np.zeros(2), np.diag([1e12 * (noise + process), 0.0])
    out = np.zeros(len(means))
    for t, measured in enumerate(means):
        reused = share if t % window else 0.0
        value = np.array([value[0], reused * value[1]])
        spread = spread * np.array([[1.0, reused], [reused, reused * reused]])
        spread += np.diag([process, noise * (1 - reused * reused)])
        gain = spread.sum(axis=1) / spread.sum()
        value = value + gain * (measured - value.sum())
        spread = spread - np.outer(gain, spread.sum(axis=0))
        out[t] = value[0]
    return out


def _interval(errors: Sequence[float], between: int, interval: float, options: Fast) -> float:
    """Return FAST's next interval.

    ``errors``: the feedback errors of all samples so far. ``between``: number of slots from the last sample but one to
    the last one.
    """
    recent = errors[-options.span :]
    change = (errors[-1] - errors[-2]) / between if len(errors) > 1 else 0.0
    delta = (
        options.proportional * errors[-1] + options.integral * sum(recent) / len(recent) + options.derivative * change
    )
    # If an error is far above the set point, the interval becomes the shortest one; without the limit the power would
    # overflow.
    power = min((delta - options.set_point) / options.set_point, 50.0)
    return max(1.0, interval + options.magnitude * (1 - exp(power)))


def perturbed_input(
    fleet: CopiedFleet, theta: float, epsilon: float, generator: np.random.Generator, *, margin: float | None
) -> Array:
    """Return the estimates of IPP (``margin`` None) or CAPP (Du et al., arXiv:2504.14993).

    A device perturbs each reading by Square Wave with ε/w, after it has corrected the reading by its own earlier
    deviations. IPP adds the last deviation, and clips to [0, 1]; CAPP adds all deviations, and clips to [-margin, 1 +
    margin], which it scales to [0, 1]. The estimate is the mean of the reports.
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
    """Return the error after the best affine map of the estimates.

    Only a person who has the truth could choose this map.
    """
    centred = estimates - estimates.mean()
    slope = float(centred @ fleet.truth / max(float(centred @ centred), 1e-300))
    return fleet.error(fleet.truth.mean() + slope * centred)


def square_root_slot_variance(slots: int, squared: float) -> float:
    """Return the mean noise variance of a slot's value under the square-root factorisation, for one device.

    Running sums of the readings x are C(Cx + z), with z the noise and C Toeplitz, coefficients binom(2k, k)/4^k. A
    whole day is protected, so the sensitivity of Cx for readings in [0, 1] is |C 1|. A slot's value is the difference
    of two sums. ``squared``: μ².
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


def grid(fleet: CopiedFleet, count: int = 30) -> list[float]:
    """Return ``count`` values of θ from the median reading (at least 1) to the largest, evenly in their logarithm."""
    low, high = max(float(np.median(fleet.readings)), 1.0), float(fleet.readings.max())
    return [exp(log(low) + (log(high) - log(low)) * i / (count - 1)) for i in range(count)]

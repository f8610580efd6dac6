"""Methods that release a stream of l readings under one budget, with one interface: their noise and their slots.

A method states the covariance of one device's noise in units of the range, whether it clips steps, and which slots it
reports. The baselines are Algorithms 1 and 2 of Bao et al., sampling of every fourth slot (without and with correlated
noise), and the multiplicative bound by logarithm. FAST, which samples adaptively and corrects by a Kalman filter, is in
`undertone_studies.rivals`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import log1p

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.calibration import mu, zcdp_rho
from undertone_aggregator.design.stream.filters import as_schedule, closed_form, optimised, shipped
from undertone_aggregator.design.stream.schedule import covariance, paper
from undertone_aggregator.design.stream.sensitivity import exact
from undertone_shared.errors import Invalid

Array = NDArray[np.float64]

LONGEST = 2048
FILTER_TAPS = 2
SAMPLING = 4
# Precision of the paper's schedule, in bits.
_BITS = 64


@dataclass(frozen=True)
class Method:
    """One method. ``covariance`` [k, k]: noise of one device at the reported slots ``seen`` [k]; the range is 1.

    ``slew``: limit to which steps between reports are clipped, or None. ``mechanism``: the mechanism in [stream] that
    runs the method in a campaign, a key of `design.named.STREAMS`; None if no campaign can run it. ``share``: the value
    that the option ``share`` of [stream] needs for it. ``transform``: (forward, inverse) for readings that are released
    on another scale.
    """

    name: str
    covariance: Array
    seen: NDArray[np.intp]
    slew: float | None
    mechanism: str | None
    note: str
    transform: "tuple[Callable[[Array], Array], Callable[[Array], Array]] | None" = None
    share: Fraction | None = None

    def release(self, readings: Array, rng: np.random.Generator) -> Array:
        """Simulate the devices' releases [devices, k] for readings [devices, l] in [0, 1], in floating point."""
        noise = rng.standard_normal((len(readings), len(self.seen))) @ np.linalg.cholesky(self.covariance).T
        return self.clipped(readings) + noise

    def clipped(self, readings: Array) -> Array:
        """Clip the readings at the reported slots: each against the clipped reading before it; [devices, k]."""
        transformed = readings if self.transform is None else self.transform[0](readings)
        path = np.clip(transformed[:, self.seen], 0.0, 1.0)
        if self.slew is not None:
            for i in range(1, path.shape[1]):
                path[:, i] = np.clip(path[:, i], path[:, i - 1] - self.slew, path[:, i - 1] + self.slew)
        return path


def all_methods(
    slew: Fraction, slots: int, epsilon: float, delta: float, *, chains: int = 1, per_report: bool = False
) -> list[Method]:
    """Return every method under (ε, δ). The budget is for the whole stream, or per report: then the stream's μ is √l
    times as large.

    ``chains`` applies to the methods "closed-form" and "one-bit"; the others have one chain. Raises Invalid.
    """
    if not 2 <= slots <= LONGEST:
        raise Invalid(f"slots is {slots}, expected 2 to {LONGEST}")
    times = slots if per_report else 1
    squared = mu(epsilon, delta) ** 2 * times
    whole = np.arange(slots)
    sampled = np.arange(0, slots, SAMPLING)
    step, far = float(slew), min(slew * SAMPLING, Fraction(499, 1000))
    direct, three, ships = main_methods(slew, slots, epsilon, delta, chains=chains, per_report=per_report)
    plain, tight = _paper(slew, slots)
    one_bit = 2 * zcdp_rho(epsilon, delta) * times
    return [
        direct,
        Method("differences", _differences(step, slots) * slots / squared, whole, step, None, "Algorithm 2"),
        three,
        Method("exact", plain * tight / squared, whole, step, None, "Algorithm 3, exact S²"),
        ships,
        _filter("share", slew, slots, 1, squared, "constant r, exact S²"),
        _filter("filter", slew, slots, FILTER_TAPS, squared, f"{FILTER_TAPS} taps, exact S²"),
        Method("one-bit", ships.covariance * squared / one_bit, whole, step, "one-bit", "one bit a report, by zCDP"),
        Method(
            "sampled",
            np.eye(len(sampled)) * len(sampled) / squared,
            sampled,
            None,
            None,
            f"every {SAMPLING}th slot, independent noise",
        ),
        Method(
            "sampled-cgm",
            _scaled(far, len(sampled), squared),
            sampled,
            float(far),
            None,
            f"every {SAMPLING}th slot, closed form at {SAMPLING}C (sampling + CGM)",
        ),
    ]


def main_methods(
    slew: Fraction, slots: int, epsilon: float, delta: float, *, chains: int = 1, per_report: bool = False
) -> tuple[Method, Method, Method]:
    """Return Algorithm 1, Algorithm 3 and the shipped method: three of those that `all_methods` returns."""
    squared = mu(epsilon, delta) ** 2 * (slots if per_report else 1)
    whole, step = np.arange(slots), float(slew)
    optimum = shipped(slew, slots, chains)
    noise = _stationary(float(optimum.taps[0]), slots) * float(optimum.variance) / squared
    plain = covariance(paper(slew, slots, _BITS)) * slots / squared
    return (
        Method("direct", np.eye(slots) * slots / squared, whole, None, "direct", "Algorithm 1: independent noise"),
        Method("paper", plain, whole, step, None, "Algorithm 3, calibrated by √l"),
        Method("closed-form", noise, whole, step, "gaussian", "constant r, closed form: what ships"),
    )


def with_share(r: Fraction, slew: Fraction, slots: int, squared: float, chains: int = 1) -> Method:
    """Return the method with a given constant share r, whose sensitivity is bounded by `closed_form`.

    A device can check any r by this bound. ``squared``: the budget μ².
    """
    noise = _stationary(float(r), slots) * float(closed_form(r, slew, slots, chains) / (1 - r * r)) / squared
    note = f"constant r = {float(r):g}, closed form: the share that suits the smoother"
    return Method("tuned", noise, np.arange(slots), float(slew), "gaussian", note, share=r)


def logarithmic(base: Method, least: float) -> Method:
    """Return ``base`` applied to the logarithm of the readings, so that the bound on steps bounds ratios of readings.

    ``least``: share of the range below which readings are not distinguished; log(x + least) is mapped onto [0, 1]. The
    inverse is an exponential, so released readings and their mean are too high, by a share of about half the noise's
    variance on the log scale.
    """
    if not 0 < least < 1:
        raise Invalid(f"least is {least}, expected a share of the range between 0 and 1")
    width = log1p(1 / least)

    def there(x: Array) -> Array:
        return np.asarray(np.log1p(x / least) / width)

    def back(y: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(y * width) * least)

    note = f"{base.note}, on logarithms: means come back biased"
    return Method(f"log-{base.name}", base.covariance, base.seen, base.slew, None, note, (there, back))


@lru_cache(maxsize=16)
def _paper(slew: Fraction, slots: int) -> tuple[Array, float]:
    """Return the covariance of Algorithm 3 at σ_1 = 1, and its exact S²."""
    schedule = paper(slew, slots, _BITS)
    return covariance(schedule), float(exact(schedule, slew))


def _filter(name: str, slew: Fraction, slots: int, taps: int, squared: float, note: str) -> Method:
    optimum = optimised(slew, slots, min(taps, slots - 1))
    noise = covariance(as_schedule(optimum, slots)) / squared
    return Method(name, noise, np.arange(slots), float(slew), None, note)


def _scaled(slew: Fraction, slots: int, squared: float) -> Array:
    optimum = shipped(slew, slots)
    return _stationary(float(optimum.taps[0]), slots) * float(optimum.variance) / squared


def _stationary(r: float, slots: int) -> Array:
    t = np.arange(slots)
    return np.asarray(r ** np.abs(np.subtract.outer(t, t)).astype(np.float64))


def _differences(slew: float, slots: int) -> Array:
    t = np.arange(slots)
    return np.asarray(1.0 + 4 * slew * slew * np.minimum.outer(t, t))


def select(methods: Sequence[Method], name: str) -> Method:
    """Return the method of this name. Raises Invalid."""
    for method in methods:
        if method.name == name:
            return method
    raise Invalid(f"method is {name!r}, expected one of {', '.join(m.name for m in methods)}")

"""`undertone plan --window`: what every way of collecting gives at one and the same guarantee, ε for any such window.

With half-width A = (θ/2)², V the mechanism's variance among the readings of a slot in units of A, S² the variance of
its truncated readings, b what truncation takes off its mean, and n devices of which every s-th reports in a slot,

    error² = b² + (s/n) (A V + S² (1 - 1/s)),

averaged over the slots of a day; θ makes it least. A rest of w slots between two reports needs s = w + 1. The filter's
error is that of the server's own filter on the population's days with noise of this size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import Budget, hybrid, most_levels
from undertone_aggregator.design.budget import shown
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.stream import choose, release_variance, rho_for
from undertone_aggregator.estimate.filter import filtered
from undertone_aggregator.estimate.guarantee import lasting
from undertone_aggregator.estimate.seasonal import Calendar
from undertone_aggregator.estimate.state_space import Noise
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN
from undertone_simulator.readings.day_slots import DAYS, Slots, Vector
from undertone_simulator.readings.readings import Source

Make = Callable[[Fraction, int], Mechanism]

SKIPPED_DAYS = 14
SLEWS = (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10), Fraction(1, 4))
_THETAS = 160
_STREAM_THETAS = 10
_SEED = 20211121


@dataclass(frozen=True)
class Way:
    """One way of collecting: its slot, how often a device reports, the errors in shares of the mean, what it costs.

    ``noise``, ``bias``: the parts of ``raw``. ``same``: whether its guarantee is the plan's.
    """

    name: str
    slot_seconds: int
    reports_per_day: float
    theta: int
    noise: float
    bias: float
    raw: float
    filtered: float | None
    guarantee: str
    same: bool = True


@dataclass(frozen=True)
class WindowPlan:
    """All ways for one window; ``recommended``: the least error among those that show the course of a day."""

    window_seconds: int
    devices: int
    epsilon: Fraction
    unit: str
    ways: tuple[Way, ...]
    recommended: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Predicted:
    """θ of least error and what it comes to: per slot of the day the noise's variance and the bias, in the unit."""

    theta: int
    variance: Vector
    bias: Vector

    @property
    def error(self) -> float:
        """Root mean square over the slots of a day."""
        return float(np.sqrt(np.mean(self.variance + np.square(self.bias))))


def predict(slots: Slots, devices: float, stride: int, epsilon: Fraction, make: Make | None = None) -> Predicted:
    """The error of turns with this stride (1: everybody in every slot), at the best θ."""
    make = make or (lambda e, theta: hybrid(e, most_levels(theta)))
    thetas = np.unique(np.rint(np.geomspace(2, max(slots.edges[-1] - 1, 3), _THETAS)).astype(np.int64))
    means, variances = slots.moments(thetas)
    raw = slots.raw
    pooled = slots.density.mean(axis=0)
    # The Hybrid's variance hardly depends on θ: θ by one value of it, the error by each slot's own.
    middle = int(thetas[len(thetas) // 2])
    rough = Population(pooled, slots.edges).mean_variance(make(epsilon, middle), middle)
    sampled = variances * (1 - 1 / stride)
    errors = np.square(raw - means) + stride / devices * (rough * np.square(thetas / 2.0)[:, None] + sampled)
    best = int(np.argmin(errors.mean(axis=1)))
    theta = int(thetas[best])
    mechanism = make(epsilon, theta)
    own = [Population(density, slots.edges).mean_variance(mechanism, theta) for density in slots.density]
    noise = stride / devices * (np.array(own) * (theta / 2.0) ** 2 + sampled[best])
    return Predicted(theta, noise, raw - means[best])


def predict_stream(slots: Slots, devices: float, budget: Budget, windows: int) -> tuple[Predicted, Fraction, float]:
    """(error, slew C, share r) of the best Gaussian stream whose ``windows`` together cost ``budget``."""
    rho = rho_for(GAUSSIAN, budget) // windows
    best: tuple[Predicted, Fraction, float] | None = None
    days = slots.values.reshape(-1, slots.per_day, slots.values.shape[1])
    raw = slots.raw
    for theta in np.unique(np.rint(np.geomspace(slots.means.mean(), slots.edges[-1] - 1, _STREAM_THETAS)).astype(int)):
        for slew in SLEWS:
            rule = choose(GAUSSIAN, rho, slew=slew, reports=slots.per_day, theta=int(theta))
            variance = np.array([release_variance(rule, i + 1) for i in range(slots.per_day)]) * theta**2 / devices
            bias = raw - _slewed(days, int(theta), float(slew) * theta).mean(axis=(0, 2))
            predicted = Predicted(int(theta), variance, bias)
            if best is None or predicted.error < best[0].error:
                best = predicted, slew, rule.reuse / (1 << rule.shift)
    assert best is not None
    return best


def _slewed(days: NDArray[np.int64], theta: int, step: float) -> Vector:
    """Truncated at θ, each reading moved to within ``step`` of the one before; [days, slots, devices]."""
    out = np.minimum(days, theta).astype(np.float64)
    for slot in range(1, out.shape[1]):
        np.clip(out[:, slot], out[:, slot - 1] - step, out[:, slot - 1] + step, out=out[:, slot])
    return out


def after_filter(slots: Slots, predicted: Predicted, carried: float = 0.0) -> float | None:
    """Root mean square error of the causal filter after two weeks of the population's days; None for too few days.

    ``carried``: the share of a stream's noise that is in the next slot's.
    """
    days = len(slots.means) // slots.per_day
    if days <= SKIPPED_DAYS:
        return None
    number = np.arange(len(slots.means))
    phase = number % slots.per_day
    variance = np.maximum(predicted.variance[phase], 1e-12)
    fresh = np.random.default_rng(_SEED).standard_normal(len(number)) * np.sqrt(variance)
    noise, regression = fresh.copy(), np.where(phase == 0, 0.0, carried)
    for i in range(1, len(noise)):
        noise[i] = regression[i] * noise[i - 1] + fresh[i] * math.sqrt(1 - regression[i] ** 2)
    known = Noise(variance, regression if carried else None)
    values = slots.means - predicted.bias[phase] + noise
    result = filtered(number, values, known, Calendar(slots.per_day, phase / slots.per_day))
    late = number >= SKIPPED_DAYS * slots.per_day
    return float(np.sqrt(np.mean(np.square(result.causal - slots.means)[late])))


def plan_window(
    source: Source,
    bound: int,
    devices: int,
    epsilon: Fraction | float | str,
    window_seconds: int,
    *,
    delta: float = 1e-5,
    days: int = DAYS,
) -> WindowPlan:
    """Every way of collecting at ε for any window of so many seconds, its error raw and filtered. Raises Invalid."""
    check_integer("devices", devices, 1, 10**9)
    budget = Budget.parse(epsilon)
    seconds = 86400 // source.per_day
    if source.per_day < 2 or days < 1:
        raise Invalid(f"the readings cover {days} days of {source.per_day} slots, expected a whole one of 2 or more")
    if window_seconds < seconds or window_seconds % seconds or window_seconds > 31 * 86400:
        raise Invalid(f"window is {window_seconds} seconds, expected whole slots of {seconds}, at most 31 days")
    cut = [Slots.of(source, bound, span, days) for span in _spans(source.per_day, seconds)]
    ways = [_turns(slots, devices, budget, window_seconds, seconds) for slots in cut]
    ways.append(_split(cut[0], devices, budget, window_seconds, seconds))
    ways.append(_stream(cut[0], devices, Budget.parse(epsilon, delta), window_seconds, seconds))
    ways.append(_event(cut[0], devices, budget, window_seconds, seconds))
    courses = [way for way in ways if way.same and way.slot_seconds < 86400]
    best = min(courses, key=lambda way: way.raw if way.filtered is None else min(way.raw, way.filtered))
    return WindowPlan(
        window_seconds, devices, budget.epsilon, source.unit, tuple(ways), best.name, _sentences(ways, best)
    )


def _spans(per_day: int, seconds: int) -> list[int]:
    """Slots of the data that make up a slot: itself, two hours, a day."""
    return sorted({span for span in (1, 7200 // seconds, per_day) if span and per_day % span == 0})


def _way(name: str, slots: Slots, predicted: Predicted, seconds: int, reports: float, **facts: object) -> Way:
    mean = float(slots.means.mean())
    carried = float(facts.pop("carried", 0.0))  # type: ignore[arg-type]
    after = after_filter(slots, predicted, carried)
    noise, bias = (float(np.sqrt(np.mean(part))) / mean for part in (predicted.variance, np.square(predicted.bias)))
    return Way(
        name,
        seconds * slots.span,
        reports,
        predicted.theta,
        noise,
        bias,
        predicted.error / mean,
        None if after is None else after / mean,
        **facts,  # type: ignore[arg-type]
    )


def _turns(slots: Slots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    stride = -(-window // (seconds * slots.span)) + 1
    predicted = predict(slots, devices, stride, budget.epsilon)
    name = f"turns of {lasting(seconds * slots.span, short=True)}"
    said = f"{budget.text} for any {lasting(window)}, by the device alone"
    return _way(name, slots, predicted, seconds, slots.per_day / stride, guarantee=said)


def _split(slots: Slots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    """Every slot at ε/(w + 1): a window of w slots that begins within one meets w + 1 of them."""
    parts = window // seconds + 1
    least = max(budget.epsilon / parts, Fraction(1, 10_000))
    tau = math.tanh(float(least) / 2)

    # Stochastic rounding is the Hybrid at small ε; below 0.05 no integers are designed: its formula stands.
    thetas = np.unique(np.rint(np.geomspace(2, slots.edges[-1] - 1, _THETAS // 2)).astype(np.int64))
    means, _ = slots.moments(thetas)
    noise = np.square(thetas / 2.0) / tau**2 / devices
    best = int(np.argmin(np.square(slots.raw - means).mean(axis=1) + noise))
    predicted = Predicted(int(thetas[best]), np.full(slots.per_day, noise[best]), slots.raw - means[best])
    said = f"ε = {shown(least, 3)} a reading, {shown(budget.epsilon)} for any {lasting(window)}"
    return _way("every slot, ε split", slots, predicted, seconds, float(slots.per_day), guarantee=said)


def _stream(slots: Slots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    predicted, slew, share = predict_stream(slots, devices, budget, 2)
    name = f"stream (CGM), C = {float(slew):g}"
    said = f"{budget.text} for any {lasting(window)}: two windows of half the rho"
    return _way(name, slots, predicted, seconds, float(slots.per_day), guarantee=said, carried=share)


def _event(slots: Slots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    predicted = predict(slots, devices, 1, budget.epsilon)
    together = shown(budget.epsilon * (window // seconds + 1))
    said = f"{budget.text} a reading, {together} for any {lasting(window)}"
    return _way("every slot, ε each", slots, predicted, seconds, float(slots.per_day), guarantee=said, same=False)


def _sentences(ways: list[Way], best: Way) -> tuple[str, ...]:
    half, stream = ways[0], next(way for way in ways if way.name.startswith("stream"))
    said = [f"recommended: {best.name}"]
    longer = [way for way in ways if way.same and way.slot_seconds > half.slot_seconds and way.raw < half.raw]
    if longer and best.name == half.name:
        said.append(f"{longer[-1].name} would have an error of {longer[-1].raw:.1%}: longer slots are the first lever")
    wins = "beats" if stream.raw < half.raw else "loses to"
    said.append(
        f"the stream {wins} turns on readings like these: {stream.raw:.1%} against {half.raw:.1%} raw; it wins where "
        "readings move by less than about 1 % of the range from slot to slot"
    )
    return tuple(said)

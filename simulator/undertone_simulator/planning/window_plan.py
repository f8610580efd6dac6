"""`undertone plan --window`: compares ways of collecting that guarantee ε for any window of that length.

One way, every slot with ε each, has a weaker guarantee (`Way.same` is False).

The errors are those of `planning.prediction`. θ is chosen to minimise their mean square over the slots of a day; for
readings far from zero, so is the lower end of the range. Reports come from the table that the server would design for
the readings, if it has less variance than the Hybrid. A rest of w slots between two reports needs a stride of w + 1.
`with_filtered` adds the errors of the filtered series, from simulated campaigns (`planning.headline`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from undertone_aggregator.base.notebook import Summarised
from undertone_aggregator.base.plural import many
from undertone_aggregator.design import Budget, hybrid, most_levels
from undertone_aggregator.design.budget import shown
from undertone_aggregator.design.fitted import Promise
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.stream import choose, release_variance, rho_for
from undertone_aggregator.estimate.guarantee import lasting
from undertone_aggregator.threshold import Query, Threshold
from undertone_aggregator.threshold.two_sided import best_range, far_range
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.planning.headline import Headline
from undertone_simulator.planning.prediction import Prediction, noise
from undertone_simulator.readings.day_slots import DAYS, DaySlots
from undertone_simulator.readings.readings import ReadingSource

Make = Callable[[Fraction, int], Mechanism]

SLEWS = (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10), Fraction(1, 4))
_THETAS = 160
_STREAM_THETAS = 10
# Values of `Way.held`.
TURNS, EVENT = "turns", "event"


@dataclass(frozen=True)
class Way:
    """One way of collecting: its slot, a device's reports per day, errors as shares of the mean, and its guarantee.

    ``raw``: the error without filter and model; ``noise`` and ``bias`` are its two parts. ``filtered``: the error of
    the number that `undertone query` shows; None if no campaign was simulated. ``held``: the campaign that is simulated
    for this way: `TURNS`, or `EVENT` (ε for each reading); None: no campaign. ``same``: True if the plan's ε holds for
    any window, in a stream with a δ. ``bottom``: if not 0, readings are also truncated from below at this value.
    """

    name: str
    slot_seconds: int
    reports_per_day: float
    theta: int
    noise: float
    bias: float
    raw: float
    guarantee: str
    held: str | None = None
    filtered: float | None = None
    same: bool = True
    bottom: int = 0


@dataclass(frozen=True, repr=False)
class WindowPlan(Summarised):
    """All ways for one window.

    ``recommended``: the name of the way with the least error, raw or filtered, among those with the plan's guarantee
    and slots shorter than a day.

    ``mean``: the mean reading, in ``unit``. ``far_from_zero``: readings are so far from zero that a share of their mean
    says nothing.
    """

    window_seconds: int
    devices: int
    epsilon: Fraction
    unit: str
    per_day: int
    ways: tuple[Way, ...]
    recommended: str
    sentences: tuple[str, ...]
    mean: float
    far_from_zero: bool = False

    def text(self, share: float) -> str:
        """Return a share of the mean as text: in the unit if readings are far from zero, else in %."""
        return f"{share * self.mean:.3g} {self.unit}".rstrip() if self.far_from_zero else f"{100 * share:.3g} %"

    def facts(self) -> dict[str, str]:
        """Return size, ε, window, and each way with its raw error."""
        return {
            "devices": str(self.devices),
            "epsilon": shown(self.epsilon),
            "window": f"{self.window_seconds} s",
            "recommended": self.recommended,
            **{way.name: f"error {self.text(way.raw)}" for way in self.ways},
        }


@dataclass(frozen=True)
class Predicted(Prediction):
    """The θ of least error, the ``bottom`` of its range, and the errors that a campaign has with them."""

    theta: int
    bottom: int = 0


def predict_day(slots: DaySlots, devices: float, stride: int, epsilon: Fraction, make: Make | None = None) -> Predicted:
    """Return the errors of turns with this stride (1: every device in every slot), at the best range.

    ``make``: the mechanism; by default the table for the readings, or the Hybrid if it has less variance.
    """
    designed, make = make is None, make or (lambda e, theta: hybrid(e, most_levels(theta)))
    thetas = np.unique(np.rint(np.geomspace(2, max(slots.edges[-1] - 1, 3), _THETAS)).astype(np.int64))
    means, spreads = slots.moments(thetas)
    # The Hybrid's variance hardly depends on θ. So one value of it serves to choose θ, and each slot's own value gives
    # the error.
    middle = int(thetas[len(thetas) // 2])
    rough = Population(slots.density.mean(axis=0), slots.edges).mean_variance(make(epsilon, middle), middle)
    errors = np.square(slots.raw - means) + noise(thetas[:, None], rough, devices, stride, spreads)
    best = int(np.argmin(errors.mean(axis=1)))
    theta, mean, spread = int(thetas[best]), means[best], spreads[best]
    bottom, theta = _both_ends(slots, theta, max(round(devices / stride), 1), rough, stride > 1)
    if bottom:
        truncated = np.clip(slots.ordered, bottom, theta)
        mean, spread = truncated.mean(axis=1), truncated.var(axis=1)
    width, readings = theta - bottom, Population(slots.density.mean(axis=0), slots.edges).above(bottom)
    law = np.stack([Population(row, slots.edges).above(bottom).density for row in slots.density])
    own = law @ readings.variances(make(epsilon, width), width)
    if designed:
        promise = Promise(epsilon, readings)
        reach = promise.usual_reach(width, devices / stride)
        own = own * min(promise.variance(width, reach) / float(np.mean(own)), 1.0)
    return Predicted(noise(width, own, devices, stride, spread), slots.raw - mean, theta, bottom)


def _both_ends(slots: DaySlots, theta: int, reports: int, rough: float, turns: bool) -> tuple[int, int]:
    """Return the (bottom, θ) that the server would choose for readings far from zero; (0, theta) for others.

    ``rough``: the mechanism's variance, in units of half the width squared.
    """
    density, bound = slots.density.mean(axis=0), slots.edges[-1] - 1
    if far_range(density, slots.edges, bound) is None:
        return 0, theta
    one_end = Threshold(theta, theta, theta, 0.0, 0.0, 0.0, density, slots.edges, "known")
    query = Query.shown(reports, turns=turns)
    chosen = best_range(one_end, density, slots.edges, bound, query, lambda _: rough)
    return chosen.bottom, chosen.theta


def predict_stream(slots: DaySlots, devices: float, budget: Budget, windows: int) -> tuple[Predicted, Fraction]:
    """Return (errors, slew C) of the best Gaussian stream whose ``windows`` together cost ``budget``."""
    rho = rho_for(GAUSSIAN, budget) // windows
    thetas = np.unique(np.rint(np.geomspace(slots.means.mean(), slots.edges[-1] - 1, _STREAM_THETAS)).astype(int))
    best: tuple[Predicted, Fraction] | None = None
    for theta in thetas.tolist():
        for slew in SLEWS:
            rule = choose(GAUSSIAN, rho, slew=slew, reports=slots.per_day, theta=theta)
            variance = np.array([release_variance(rule, i + 1) for i in range(slots.per_day)]) * theta**2 / devices
            if best is not None and float(np.mean(variance)) >= best[0].error ** 2:
                # The noise alone causes at least the error of the best rule so far, so this slew is skipped.
                continue
            bias = slots.raw - slots.slewed_means(theta, float(slew) * theta)
            predicted = Predicted(variance, bias, theta)
            if best is None or predicted.error < best[0].error:
                best = predicted, slew
    assert best is not None
    return best


def plan_window(
    source: ReadingSource,
    bound: int,
    devices: int,
    epsilon: Fraction | float | str,
    window_seconds: int,
    *,
    delta: float = 1e-5,
    days: int = DAYS,
    make: Make | None = None,
) -> WindowPlan:
    """Compare the ways of collecting at ε for any window of this length, with raw errors.

    ``make``: the mechanism, as for `predict_day`. Raises Invalid.
    """
    check_integer("devices", devices, 1, 10**9)
    budget = Budget.parse(epsilon)
    seconds = 86400 // source.per_day
    if source.per_day < 2 or days < 1:
        raise Invalid(
            f"the readings cover {many(days, 'day')} of {many(source.per_day, 'slot')}, expected a whole day of 2 or"
            " more slots"
        )
    if window_seconds < seconds or window_seconds % seconds or window_seconds > 31 * 86400:
        raise Invalid(f"window is {window_seconds} s, expected a multiple of the slot's {seconds} s, at most 31 days")
    slots = DaySlots.of(source, bound, 1, days)
    cut = [slots.joined(span) for span in _spans(source.per_day, seconds)]
    ways = [_turns(slots, devices, budget, window_seconds, seconds, make) for slots in cut]
    ways.append(_split(cut[0], devices, budget, window_seconds, seconds))
    ways.append(_stream(cut[0], devices, Budget.parse(epsilon, delta), window_seconds, seconds))
    ways.append(_event(cut[0], devices, budget, window_seconds, seconds, make))
    plan = WindowPlan(
        window_seconds,
        devices,
        budget.epsilon,
        source.unit,
        source.per_day,
        tuple(ways),
        "",
        (),
        float(cut[0].means.mean()),
        any(way.bottom > 0 for way in ways),
    )
    return _concluded(plan)


def with_filtered(
    plan: WindowPlan,
    options: SimulateOptions,
    campaigns: int,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, planned: None,
) -> WindowPlan:
    """Return the plan with the error of the filtered series for each way that is ``held``.

    ``options``: the fleet, its readings, ε, and the mechanism of the simulated campaigns; ``campaigns``: their number
    for each way; ``progress(done, planned)`` gets numbers of campaigns. Raises Invalid, or OSError for a file.
    """
    seconds = 86400 // plan.per_day
    held = [way for way in plan.ways if way.held is not None]
    errors: dict[str, float] = {}

    def tick(done: int) -> None:
        progress(campaigns * len(errors) + done, campaigns * len(held))

    for way in held:
        windows = {EVENT: None, TURNS: f"{max(plan.window_seconds, way.slot_seconds)}s"}
        span = way.slot_seconds // seconds
        (error,) = Headline(options, campaigns, processes, tick).errors(span=span, window=windows[str(way.held)])
        # A reading of the campaign is a sum over `span` slots of the data, so its mean is `span` times theirs.
        errors[way.name] = error / (plan.mean * span)
    return _concluded(replace(plan, ways=tuple(replace(way, filtered=errors.get(way.name)) for way in plan.ways)))


def _concluded(plan: WindowPlan) -> WindowPlan:
    """Return the plan with the recommended way, and with what its sentences say about the ways."""
    courses = [way for way in plan.ways if way.same and way.slot_seconds < 86400]
    best = min(courses, key=lambda way: way.raw if way.filtered is None else min(way.raw, way.filtered))
    return replace(plan, recommended=best.name, sentences=_sentences(plan, best))


def _spans(per_day: int, seconds: int) -> list[int]:
    """Return the possible lengths of a report slot, in slots of the data: one slot, two hours, a day."""
    return sorted({span for span in (1, 7200 // seconds, per_day) if span and per_day % span == 0})


def _way(
    name: str,
    slots: DaySlots,
    predicted: Predicted,
    seconds: int,
    reports: float,
    guarantee: str,
    *,
    held: str | None = None,
    same: bool = True,
) -> Way:
    """Return a way with its errors as shares of the mean; ``held`` and ``same``: see `Way`."""
    mean = float(slots.means.mean())
    return Way(
        name,
        seconds * slots.span,
        reports,
        predicted.theta,
        predicted.standard_error / mean,
        float(np.sqrt(np.mean(np.square(predicted.bias)))) / mean,
        predicted.error / mean,
        guarantee,
        held,
        None,
        same,
        predicted.bottom,
    )


def _turns(slots: DaySlots, devices: int, budget: Budget, window: int, seconds: int, make: Make | None) -> Way:
    stride = -(-window // (seconds * slots.span)) + 1
    predicted = predict_day(slots, devices, stride, budget.epsilon, make)
    name = f"turns of {lasting(seconds * slots.span, short=True)}"
    guarantee = f"{budget.text} for any {lasting(window)}, which the device alone ensures"
    return _way(name, slots, predicted, seconds, slots.per_day / stride, guarantee, held=TURNS)


def _split(slots: DaySlots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    """Plan a report in every slot at ε/(w + 1), because a window as long as w slots can touch w + 1 slots."""
    parts = window // seconds + 1
    least = max(budget.epsilon / parts, Fraction(1, 10_000))
    tau = math.tanh(float(least) / 2)

    # At small ε the Hybrid is stochastic rounding. Its integer weights are not designed for ε below 0.05, so the errors
    # are computed here by the formula of stochastic rounding.
    thetas = np.unique(np.rint(np.geomspace(2, slots.edges[-1] - 1, _THETAS // 2)).astype(np.int64))
    means, _ = slots.moments(thetas)
    variance = noise(thetas, 1 / tau**2, devices)
    best = int(np.argmin(np.square(slots.raw - means).mean(axis=1) + variance))
    predicted = Predicted(np.full(slots.per_day, variance[best]), slots.raw - means[best], int(thetas[best]))
    guarantee = f"ε = {shown(least, 3)} a reading, {shown(budget.epsilon)} for any {lasting(window)}"
    return _way("every slot, ε split", slots, predicted, seconds, float(slots.per_day), guarantee)


def _stream(slots: DaySlots, devices: int, budget: Budget, window: int, seconds: int) -> Way:
    predicted, slew = predict_stream(slots, devices, budget, 2)
    name = f"stream (CGM), C = {float(slew):g}"
    guarantee = f"{budget.text} for any {lasting(window)}: two windows with half of rho each"
    return _way(name, slots, predicted, seconds, float(slots.per_day), guarantee)


def _event(slots: DaySlots, devices: int, budget: Budget, window: int, seconds: int, make: Make | None) -> Way:
    predicted = predict_day(slots, devices, 1, budget.epsilon, make)
    together = shown(budget.epsilon * (window // seconds + 1))
    guarantee = f"{budget.text} a reading, {together} for any {lasting(window)}"
    return _way(
        "every slot, ε each", slots, predicted, seconds, float(slots.per_day), guarantee, held=EVENT, same=False
    )


def _sentences(plan: WindowPlan, best: Way) -> tuple[str, ...]:
    ways, half = plan.ways, plan.ways[0]
    stream = next(way for way in ways if way.name.startswith("stream"))
    sentences = [f"recommended: {best.name}"]
    longer = [way for way in ways if way.same and way.slot_seconds > half.slot_seconds and way.raw < half.raw]
    if longer and best.name == half.name:
        sentences.append(
            f"longer slots have a smaller error: with {longer[-1].name}, the raw error is {plan.text(longer[-1].raw)}"
        )
    wins = "beats" if stream.raw < half.raw else "loses to"
    sentences.append(
        f"on readings like these, the stream {wins} turns: its raw error is {plan.text(stream.raw)}, that of turns is"
        f" {plan.text(half.raw)}; a stream wins where readings move by less than about 1 % of the range from slot to"
        " slot"
    )
    return tuple(sentences)

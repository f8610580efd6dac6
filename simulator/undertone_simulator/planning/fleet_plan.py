"""Plan of a campaign of reports: errors, θ, mechanism, traffic and privacy, for known readings.

θ is the one that the server would choose: by default it minimises n V θ²/4 + n² E[(x - θ)⁺]² (Eq. 8 for a slot of n
reports) for the readings x of the whole day, with V the mechanism's variance in units of (θ/2)². `planning.prediction`
then gives the errors of truncated means, with the bias E[(x - θ)⁺] of each time of the day. `planning.headline` has the
errors of the numbers that people read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from undertone_aggregator.base.notebook import Summarised
from undertone_aggregator.base.plural import many
from undertone_aggregator.design import Budget
from undertone_aggregator.design.budget import shown
from undertone_aggregator.design.fitted import Promise
from undertone_aggregator.design.mechanisms import traits_of
from undertone_aggregator.design.reach import WIDE_REACH
from undertone_aggregator.design.stream.plan import LARGEST_PLANNED
from undertone_aggregator.settings.options import ROUNDS
from undertone_aggregator.threshold import Threshold, Variance, constant_variance
from undertone_aggregator.threshold.joint import Design, choose_jointly
from undertone_shared.checks import check_integer
from undertone_shared.scalar import ReportRule
from undertone_simulator.planning.day_plan import DayPlan, plan_day
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.planning.prediction import Prediction
from undertone_simulator.planning.traffic import Traffic, traffic

_LARGEST_EPSILON = 8
AS_PAPERS = (
    "collected as in the papers: one round of the Square Wave, then reports by the Hybrid. θ is the best one for the"
    " query {} and these readings. (A campaign does not know the readings; it estimates their distribution, and the"
    " papers' white box says when to stop.)"
)


@dataclass(frozen=True)
class Span:
    """Errors of the mean over ``slots`` slots: the standard error, and the root mean square error, which includes bias.

    ``shown``: the error of the number that `undertone query` shows, from simulated campaigns (`planning.headline`);
    None if none was simulated.
    """

    name: str
    slots: int
    standard_error: float
    error: float
    shown: float | None = None


@dataclass(frozen=True, repr=False)
class FleetPlan(Summarised):
    """Predictions for a fleet; θ and errors are in ``unit``.

    ``gain``: share by which the mechanism's variance is below the Hybrid's.

    ``bottom``: if not 0, readings are also truncated from below at this value.

    ``devices_needed``, ``epsilon_needed``: the least that gives the error ``wanted`` of a slot's mean; None if no error
    was requested, or if it cannot be reached. ``day``: the plan with different θ by block of the day; None if one θ is
    as good.

    ``reach``: the table's reach, None without a table. ``reach_cost``: share by which the variance would be lower with
    a reach of 1.25. ``one_lie``: how far one false report can move a slot's mean. ``as_papers``: True for the papers'
    way.
    """

    devices: int
    reports: int
    epsilon: Fraction
    unit: str
    per_day: int
    mean: float
    theta: int
    bias: float
    mechanism: str
    gain: float
    spans: tuple[Span, ...]
    traffic: "Traffic"
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    day: DayPlan | None = None
    wanted: float | None = None
    devices_needed: int | None = None
    epsilon_needed: float | None = None
    bottom: int = 0
    reach: float | None = None
    reach_cost: float = 0.0
    one_lie: float = 0.0
    as_papers: bool = False

    @property
    def far_from_zero(self) -> bool:
        """True if readings are truncated at both ends.

        An error is then not shown as a share of the mean reading, because such a share says nothing.
        """
        return self.bottom > 0

    def facts(self) -> dict[str, str]:
        """Return size, ε, θ, mechanism and the error for each span."""
        errors = {
            f"error of {span.name}": f"{span.shown:.3g} {self.unit}"
            + ("" if self.far_from_zero else f" ({100 * span.shown / self.mean:.3g} %)")
            for span in self.spans
            if span.shown is not None
        }
        return {
            "devices": str(self.devices),
            "epsilon": shown(self.epsilon),
            "theta": f"{self.theta} {self.unit}",
            "mechanism": self.mechanism,
            **errors,
        }


@dataclass(frozen=True)
class Predictor:
    """Computes designs and their errors for one population, ε and kind of mechanism.

    ``query``: the query that θ is best for, see `Query.named`. ``two_sided``: see `KnownPopulation.best`.
    """

    known: KnownPopulation
    epsilon: Fraction
    kind: str = "auto"
    levels: int = 256
    reach: float | None = None
    query: str = "shown"
    two_sided: bool = True
    _designs: dict[int, Design] = field(default_factory=dict)

    def design(self, reports: int) -> Design:
        """Return θ and mechanism for ``reports`` reports a slot."""
        if reports not in self._designs:
            self._designs[reports] = choose_jointly(
                self.kind,
                self.epsilon,
                self.levels,
                lambda variance: self.best(reports, variance),
                reach=self.reach,
                reports=reports,
            )
        return self._designs[reports]

    def best(self, reports: int, variance: Variance) -> Threshold:
        """Return the best range if a slot has ``reports`` reports by a mechanism with this variance."""
        return self.known.best(reports, variance, self.query, two_sided=self.two_sided)

    def variance(self, reports: int) -> float:
        """Return V, the designed mechanism's mean variance over the readings, in units of half the width squared."""
        design = self.design(reports)
        return design.threshold.population.mean_variance(design.mechanism, design.threshold.width)

    def reach_cost(self, reports: int) -> float:
        """Return the share by which a table of reach `WIDE_REACH` has less variance, at the same range.

        It is at least 0, and 0 without a table.
        """
        design = self.design(reports)
        if design.reach is None:
            return 0.0
        width, readings = design.threshold.width, design.threshold.readings
        promise = Promise(self.epsilon, readings)
        least, own = (promise.variance(width, reach) for reach in (WIDE_REACH, design.reach))
        return max(1.0 - least / own, 0.0)

    def one_lie(self, reports: int) -> float:
        """Return the largest distance from a reading to a decoded symbol, divided by the number of reports."""
        design = self.design(reports)
        width = design.threshold.width
        decoded = [float(Fraction(*design.mechanism.decode(j, width))) for j in range(design.mechanism.symbols)]
        return max(max(decoded), width - min(decoded)) / reports

    def prediction(self, reports: int) -> Prediction:
        """Return the errors of the design for ``reports`` reports a slot."""
        chosen = self.design(reports).threshold
        return self.known.predicted(chosen.theta, self.variance(reports), reports, chosen.bottom)

    def spans(self, reports: int, as_papers: bool) -> tuple[Span, ...]:
        """Return the errors of the means over a slot, and over an hour and a day if these have several slots.

        ``reports``: number of reports in each slot. ``as_papers``: the means of truncated readings are shown as they
        are, without a filter and without a model of what truncation removes. Otherwise, ``shown`` is None.
        """
        known, prediction = self.known, self.prediction(reports)
        lengths = {"an hour": known.per_day // 24, "a day": known.per_day}
        every = [("a slot", 1), *((name, m) for name, m in lengths.items() if m > 1)]
        if as_papers:
            return tuple(Span(name, m, *prediction.over(m), prediction.over(m)[1]) for name, m in every)
        return tuple(Span(name, m, *prediction.over(m)) for name, m in every)


def plan_fleet(
    population: KnownPopulation,
    devices: int,
    epsilon: Fraction | float | str,
    *,
    kind: str = "auto",
    reach: float | None = None,
    query: str = "shown",
    as_papers: bool = False,
    cohort_share: float = 0.05,
    wanted: float | None = None,
    slots: int | None = None,
    rounds: Sequence[int] = ROUNDS,
    campaign: str = "campaign",
    device: str = "load-00001",
) -> FleetPlan:
    """Predict errors and costs. Raises Invalid.

    ``reach``: that of a table, by default `Promise.usual_reach` for this fleet. ``query``: the query that θ is best
    for. ``as_papers``: there is one θ for all slots, and no truncation from below. ``slots``: number of slots of the
    whole campaign, by default those of a year. ``rounds``: slots of each threshold round.
    """
    check_integer("devices", devices, 1, LARGEST_PLANNED)
    exact = Budget.parse(epsilon).epsilon
    predictor = Predictor(population, exact, kind, reach=reach, query=query, two_sided=not as_papers)
    reports = _reports(devices, cohort_share)
    design = predictor.design(reports)
    threshold, mechanism = design.threshold, design.mechanism
    variance = predictor.variance(reports)
    day = None if as_papers else plan_day(population, threshold, variance, reports)
    total = 365 * population.per_day if slots is None else slots
    sentences = statements(exact, population.per_day, total)
    predicted = predictor.spans(reports, as_papers)
    return FleetPlan(
        devices,
        reports,
        exact,
        population.unit,
        population.per_day,
        population.mean,
        threshold.theta,
        threshold.bias,
        traits_of(mechanism).kind,
        1.0 - variance / Predictor(population, exact, "hybrid").variance(reports),
        predicted,
        traffic(
            population.unit,
            population.bound,
            population.per_day,
            ReportRule(threshold.bottom, threshold.theta, mechanism),
            exact,
            campaign,
            device,
        ),
        (
            f"before the first mean: {rounds_in_words(rounds, population.per_day)}",
            *([AS_PAPERS.format(query)] if as_papers else []),
            *sentences,
        ),
        visible(population, devices, exact, predicted, threshold.bias)
        + (() if design.reason is None else (design.reason,)),
        day,
        wanted,
        None if wanted is None else devices_needed(predictor, reports, wanted, cohort_share),
        None if wanted is None else epsilon_needed(predictor, reports, wanted),
        threshold.bottom,
        design.reach,
        predictor.reach_cost(reports),
        predictor.one_lie(reports),
        as_papers,
    )


def rounds_in_words(rounds: Sequence[int], per_day: int) -> str:
    """Return the number of threshold rounds and their days; ``rounds``: the slots of each."""
    days = sum(rounds) / per_day
    return f"{len(rounds)} threshold round{'s'[: len(rounds) > 1]}, {days:.3g} day{'s'[: days != 1]}"


def _reports(devices: int, cohort_share: float) -> int:
    """Return the number of devices that report for a slot's mean; the others, the cohort, report for the threshold."""
    return max(round(devices * (1.0 - cohort_share)), 1)


def devices_needed(predictor: Predictor, reports: int, wanted: float, cohort_share: float) -> int | None:
    """Return the least number of devices for an error of at most ``wanted``; None above `LARGEST_PLANNED`.

    The mechanism's variance changes slowly with θ, so the variance for the planned fleet is used.
    """
    population, variance = predictor.known, predictor.variance(reports)

    def enough(devices: int) -> bool:
        n = _reports(devices, cohort_share)
        chosen = predictor.best(n, lambda _: variance)
        return population.predicted(chosen.theta, variance, n, chosen.bottom).error <= wanted

    return _least(1, LARGEST_PLANNED, enough)


def epsilon_needed(predictor: Predictor, reports: int, wanted: float) -> float | None:
    """Return the least ε from 0.05, to a hundredth, with a Hybrid error of at most ``wanted`` a slot; None above 8."""

    def enough(hundredths: int) -> bool:
        variance = constant_variance(hundredths / 100)
        chosen = predictor.best(reports, variance)
        return predictor.known.predicted(chosen.theta, variance(chosen.width), reports, chosen.bottom).error <= wanted

    least = _least(5, 100 * _LARGEST_EPSILON, enough)
    return None if least is None else least / 100


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """Return the least integer of [low, high] that is ``enough``, by bisection; None if ``high`` is not."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def visible(
    population: KnownPopulation, devices: int, epsilon: Fraction, spans: Sequence[Span], bias: float
) -> tuple[str, ...]:
    """Return a warning if the noise would hide the mean or the shape of the day; return () if it would hide neither."""
    slot, day = spans[0].standard_error, spans[-1].standard_error
    left = population.mean - bias
    curve = float(np.std(population.profile)) * left / population.mean if population.mean else 0.0
    unit = population.unit and f" {population.unit}"
    fleet = f"with {many(devices, 'device')} at ε = {shown(epsilon)}"
    level = f"the truncated mean is {left:.3g}{unit}"
    if day > left / 2:
        return (
            f"{fleet} nothing would be visible: {level}, and even over a day its standard error is {day:.3g}{unit}",
        )
    if slot > left / 2:
        return (
            f"{fleet}, without the filter, nothing would be visible in a single slot: {level}, and its standard error"
            f" is {slot:.3g}{unit} in a slot and {day:.3g}{unit} over a day",
        )
    if slot > curve and population.per_day > 1:
        return (
            f"{fleet}, without the filter, the level would be visible, but not the daily curve: a slot's standard error"
            f" is {slot:.3g}{unit}, and the curve's standard deviation is {curve:.3g}{unit}",
        )
    return ()


def statements(epsilon: Fraction, per_day: int, slots: int) -> tuple[str, ...]:
    """Return sentences about the privacy cost per reading, per day and of the whole campaign."""
    reading, day, whole = (shown(epsilon * n) for n in (1, per_day, slots))
    return (
        f"each reading is protected by ε = {reading} (event level), from whoever sees only its report, and also from"
        " whoever knows all other readings",
        f"each day: {many(per_day, 'reading adds', 'readings add')} up to ε = {day}",
        f"the campaign: {many(slots, 'reading adds', 'readings add')} up to ε = {whole}; a habit repeated daily is not"
        " hidden",
    )

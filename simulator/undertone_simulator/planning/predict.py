"""What a fleet would see: predicted errors for a population that is known, before anybody deploys anything.

With V the mechanism's mean variance among the readings in units of (θ/2)², a slot's mean over n reports has the
standard error θ/2 · √(V/n) and the bias E[(x - θ)⁺]; θ is the one of least n V θ²/4 + n² bias² (Eq. 8 in fleet mode).
The mean over m slots has the standard error of one over √m, as every report is drawn afresh, and the same bias.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import Budget
from undertone_aggregator.design.budget import shown
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.stream.plan import LARGEST_PLANNED
from undertone_aggregator.threshold import (
    Query,
    Threshold,
    best_threshold,
    constant_variance,
    even_thetas,
    mean_excess,
)
from undertone_aggregator.threshold.day import Day, piece_at, pieces_of
from undertone_aggregator.threshold.joint import choose_jointly
from undertone_aggregator.threshold.objective import Variance
from undertone_shared.checks import check_integer
from undertone_shared.scalar import ReportRule
from undertone_simulator.planning.planned_day import DayPlan, plan_day
from undertone_simulator.planning.traffic import Traffic, traffic
from undertone_simulator.readings.readings import Source, check_some

SAMPLE_DEVICES = 4096
SAMPLE_DAYS = 7
_CELLS = 800
_LARGEST_EPSILON = 8


@dataclass(frozen=True)
class Known:
    """A population's readings: their distribution, in all and by piece of the day, and each of its slots' mean."""

    unit: str
    bound: int
    per_day: int
    density: NDArray[np.float64]
    edges: tuple[int, ...]
    profile: NDArray[np.float64]
    mean: float
    day: Day

    @staticmethod
    def of(source: Source, bound: int, devices: int = SAMPLE_DEVICES, days: int = SAMPLE_DAYS) -> "Known":
        """From the first days of the first devices; readings are clipped to [0, bound]."""
        edges = _edges(bound)
        pieces = np.array([piece_at(slot, source.per_day) for slot in range(source.per_day)])
        shape = pieces_of(source.per_day), len(edges) - 1
        counts = np.zeros(shape, dtype=np.int64)
        sums, numbers = np.zeros(source.per_day), np.zeros(source.per_day)
        for day in range(days):
            values, present = source.part(0, devices, range(day * source.per_day, (day + 1) * source.per_day))
            there = np.ones(values.shape, dtype=np.bool_) if present is None else present
            clipped = np.clip(values, 0, bound)
            cells = np.searchsorted(edges, clipped, side="right") - 1 + shape[1] * pieces[:, None]
            counts += np.bincount(cells[there], minlength=counts.size).reshape(shape)
            sums += (clipped * there).sum(axis=1)
            numbers += there.sum(axis=1)
        check_some(sums)
        profile = sums / np.maximum(numbers, 1)
        densities = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        starts = tuple(int(first) for first in np.searchsorted(pieces, np.arange(shape[0])))
        by_time = Day(edges, densities[:, None, :], starts, np.bincount(pieces) / source.per_day)
        density, mean = counts.sum(axis=0) / counts.sum(), float(sums.sum() / numbers.sum())
        return Known(source.unit, bound, source.per_day, density, edges, profile, mean, by_time)

    def best(self, reports: int, variance: Variance) -> Threshold:
        """θ of least mean squared error for ``reports`` reports a slot; nothing about it is uncertain."""
        thetas = even_thetas(self.bound)
        theta, error = best_threshold(self.density, self.edges, thetas, Query.fleet(reports), variance)
        bias = float(mean_excess(self.density, self.edges, np.array([theta]))[0])
        return Threshold(theta, theta, theta, bias, 0.0, error, self.density, self.edges, "known")


@dataclass(frozen=True)
class Span:
    """The mean over ``slots`` slots: its standard error, and with the bias the root mean square error."""

    name: str
    slots: int
    standard_error: float
    error: float


@dataclass(frozen=True)
class FleetPlan:
    """What is predicted for a fleet; lengths in ``unit``. ``gain``: by how much less variance the mechanism has than

    the Hybrid. ``devices_needed``, ``epsilon_needed``: for ``wanted``, the error of a slot's mean; None if unasked or
    out of reach. ``day``: what blocks of the day with a θ of their own give; None where one θ is as good.
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


@dataclass(frozen=True)
class Predictor:
    """Errors for one population, ε and kind of mechanism."""

    known: Known
    epsilon: Fraction
    kind: str = "auto"
    levels: int = 256
    _designs: dict[int, tuple[Threshold, Mechanism, str | None]] = field(default_factory=dict)

    def design(self, reports: int) -> tuple[Threshold, Mechanism, str | None]:
        """θ and mechanism for so many reports a slot, and why it is the Hybrid where that was not asked for."""
        if reports not in self._designs:
            design = choose_jointly(self.kind, self.epsilon, self.levels, lambda v: self.known.best(reports, v))
            self._designs[reports] = design.threshold, design.mechanism, design.reason
        return self._designs[reports]

    def variance(self, reports: int) -> float:
        """V of the designed mechanism among the readings, in units of (θ/2)²."""
        threshold, mechanism, _ = self.design(reports)
        return Population(self.known.density, self.known.edges).mean_variance(mechanism, threshold.theta)

    def span(self, name: str, slots: int, reports: int) -> Span:
        """The error of the mean over ``slots`` slots of ``reports`` reports each."""
        threshold, _, _ = self.design(reports)
        error = threshold.theta / 2 * math.sqrt(self.variance(reports) / reports / slots)
        return Span(name, slots, error, math.hypot(error, threshold.bias))


def plan_fleet(
    known: Known,
    devices: int,
    epsilon: Fraction | float | str,
    *,
    kind: str = "auto",
    cohort_share: float = 0.05,
    wanted: float | None = None,
    slots: int | None = None,
    campaign: str = "campaign",
    device: str = "load-00001",
) -> FleetPlan:
    """Predicted errors and costs. ``slots``: of the whole campaign; a year if absent. Raises Invalid."""
    check_integer("devices", devices, 1, LARGEST_PLANNED)
    exact = Budget.parse(epsilon).epsilon
    predictor = Predictor(known, exact, kind)
    reports = max(round(devices * (1.0 - cohort_share)), 1)
    threshold, mechanism, reason = predictor.design(reports)
    population = Population(known.density, known.edges)
    hybrid_variance = Predictor(known, exact, "hybrid").variance(reports)
    per_hour = known.per_day // 24
    spans = [("a slot", 1), *([("an hour", per_hour)] if per_hour > 1 else []), ("a day", known.per_day)]
    total = 365 * known.per_day if slots is None else slots
    predicted = tuple(predictor.span(name, m, reports) for name, m in spans)
    return FleetPlan(
        devices,
        reports,
        exact,
        known.unit,
        known.per_day,
        known.mean,
        threshold.theta,
        threshold.bias,
        _name(mechanism),
        1.0 - population.mean_variance(mechanism, threshold.theta) / hybrid_variance,
        predicted,
        traffic(
            known.unit, known.bound, known.per_day, ReportRule(0, threshold.theta, mechanism), exact, campaign, device
        ),
        statements(exact, known.per_day, total),
        visible(known, devices, exact, predicted, threshold.bias) + (() if reason is None else (reason,)),
        plan_day(known.day, threshold, predictor.variance(reports), reports),
        wanted,
        None if wanted is None else devices_needed(predictor, reports, wanted, cohort_share),
        None if wanted is None else epsilon_needed(known, reports, wanted),
    )


def devices_needed(predictor: Predictor, reports: int, wanted: float, cohort_share: float) -> int | None:
    """The fewest devices whose slots have an error of at most ``wanted``; None above `LARGEST_PLANNED`.

    The mechanism's variance changes slowly with θ: it is taken at the planned fleet's.
    """
    known, variance = predictor.known, predictor.variance(reports)

    def enough(devices: int) -> bool:
        n = max(round(devices * (1.0 - cohort_share)), 1)
        return math.sqrt(known.best(n, lambda _: variance).expected_mse) / n <= wanted

    if not enough(LARGEST_PLANNED):
        return None
    low, high = 1, LARGEST_PLANNED
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def epsilon_needed(known: Known, reports: int, wanted: float) -> float | None:
    """The least ε, to a hundredth, at which a slot's error is at most ``wanted`` with the Hybrid; None above 8."""
    for hundredths in range(5, 100 * _LARGEST_EPSILON + 1):
        best = known.best(reports, constant_variance(hundredths / 100))
        if math.sqrt(best.expected_mse) / reports <= wanted:
            return hundredths / 100
    return None


def visible(known: Known, devices: int, epsilon: Fraction, spans: Sequence[Span], bias: float) -> tuple[str, ...]:
    """Plain sentences about what could not be seen, if anything: noise against what truncation leaves of the signal."""
    slot, day = spans[0].standard_error, spans[-1].standard_error
    left = known.mean - bias
    curve = float(np.std(known.profile)) * left / known.mean if known.mean else 0.0
    fleet = f"with {devices} devices at ε = {shown(epsilon)}"
    level = f"a truncated mean of {left:.3g} {known.unit}"
    if day > left / 2:
        return (f"{fleet} nothing would be visible: even over a day the noise is ± {day:.3g} on {level}",)
    if slot > left / 2:
        return (
            f"{fleet} nothing would be visible in a single slot: its noise is ± {slot:.3g} on {level};"
            f" over a day it is ± {day:.3g}",
        )
    if slot > curve:
        return (
            f"{fleet} the level would be visible, but not the daily curve: a slot's noise is ± {slot:.3g},"
            f" the curve's standard deviation {curve:.3g} {known.unit}",
        )
    return ()


def statements(epsilon: Fraction, per_day: int, slots: int) -> tuple[str, ...]:
    """What is spent per reading, per day and in the whole campaign."""
    reading, day, whole = (shown(epsilon * n) for n in (1, per_day, slots))
    return (
        f"each reading: ε = {reading} (event level), for whoever sees its report or knows all the other readings",
        f"each day: {per_day} readings add up to ε = {day}",
        f"the campaign: {slots} readings add up to ε = {whole}; a habit repeated daily is not hidden",
    )


def _name(mechanism: Mechanism) -> str:
    return traits_of(mechanism).kind


def _edges(bound: int) -> tuple[int, ...]:
    """Increasing integers from 0 to bound + 1, all of the small ones and some of the others."""
    inner = np.rint(np.geomspace(1, bound + 1, _CELLS)).astype(np.int64)
    return (0, *(int(edge) for edge in np.unique(inner)))

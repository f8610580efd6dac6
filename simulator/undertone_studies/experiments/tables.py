"""Designed tables on real readings: variance among the estimated populations, and slot means end to end on EDRP."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import hybrid, most_levels, square_wave
from undertone_aggregator.design.continuous import hybrid_variance
from undertone_aggregator.design.population import Mechanism, Population
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    Threshold,
    Variance,
    constant_variance,
    first_edges,
    next_range,
    theta_from_reports,
)
from undertone_aggregator.threshold.joint import Design, choose_jointly
from undertone_shared.campaign import ReportRule
from undertone_shared.errors import Invalid
from undertone_shared.table import TableMechanism
from undertone_simulator.seeded import Seeded
from undertone_simulator.vectorised import histogram
from undertone_studies.experiments.outcome import Outcome, Panel
from undertone_studies.experiments.registry import Options
from undertone_studies.experiments.theta import FLEET, READINGS, perturbed, whole_range
from undertone_studies.experiments.theta import ROUNDS as SHARES
from undertone_studies.experiments.theta_populations import Population as Frequencies
from undertone_studies.experiments.theta_populations import in_time_order, real

Readings = NDArray[np.int64]

EPSILONS = ("0.5", "1", "2", "4")
# The short protocol's; the documentation's figures are of 20 seeds and 5 runs.
SEEDS = 2
RUNS = 1
BOUND = 10_000
CYCLE = 48
ROUNDS = 3
DAYS = 7
LEVELS = 256
BASE = "Base (always 0)"
METHODS = ("ToPL (SW-W + HM)", "ToPL, one slot's objective", "HM at our θ", "auto")
GUARANTEE = "ε is of one reading (event level): 48 readings a day cost a household 48 ε."


@dataclass(frozen=True)
class Contender:
    """θ and mechanism of one method after the threshold rounds of one seed."""

    method: str
    theta: int
    mechanism: Mechanism


@dataclass(frozen=True)
class Trial:
    """One method in one week: θ, mean square errors of its slot means and, for the truncated means, of its noise.

    ``expected``: `expected_error`; ``predicted``: the mean of the squared standard errors that it states.
    """

    theta: int
    error: float
    expected: float
    noise: float
    predicted: float


def edrp(options: Options) -> Outcome:
    """Mean square error of EDRP's slot means: ToPL as published, the Hybrid at our θ, and θ and table together.

    Each seed: three threshold rounds of a day each from a random day on, every method from the same days and as many
    reports, then a week of slots; the error is that to the mean of the readings, truncation's bias included.
    """
    slots = in_time_order(_data(options))
    repeats = options.repeats or SEEDS
    rows: list[tuple[str | int | float, ...]] = []
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    for epsilon in EPSILONS:
        trials: dict[str, list[Trial]] = {method: [] for method in METHODS}
        zero: list[float] = []
        reporting: Counter[str] = Counter()
        for number in range(repeats):
            seed = options.seed * 1000 + number
            first = CYCLE * int(np.random.default_rng([seed, 7]).integers(len(slots) // CYCLE - ROUNDS - DAYS))
            week = slots[first + ROUNDS * CYCLE : first + (ROUNDS + DAYS) * CYCLE]
            zero.append(float(np.mean(np.square(week.mean(axis=1)))))
            for one in contenders(slots[first : first + ROUNDS * CYCLE], epsilon, seed):
                trials[one.method].append(_trial(week, one, seed))
            # The last contender is auto.
            reporting["table" if isinstance(one.mechanism, TableMechanism) else "hybrid"] += 1
        mean = {method: float(np.mean([one.error for one in found])) for method, found in trials.items()}
        for method in METHODS:
            errors[method].append(mean[method])
        auto, plain, topl = (trials[method] for method in ("auto", "HM at our θ", METHODS[0]))
        rows.append(
            (
                epsilon,
                *mean.values(),
                float(np.mean(zero)),
                mean["auto"] / mean[METHODS[0]],
                _ratio([one.expected for one in auto], [one.expected for one in topl])[0],
                *_ratio([one.error for one in auto], [one.error for one in plain]),
                *_ratio([one.expected for one in auto], [one.expected for one in plain]),
                float(np.sqrt(np.mean([one.predicted for one in auto]) / np.mean([one.noise for one in auto]))),
                ", ".join(str(int(np.median([one.theta for one in found]))) for found in trials.values()),
                ", ".join(f"{n} × {kind}" for kind, n in reporting.items()),
            )
        )
    x = [float(epsilon) for epsilon in EPSILONS]
    return Outcome(
        f"EDRP: mean square error (Wh²) of the mean of 622 meters in one half-hour, {repeats} seeds × {DAYS} days",
        (
            *("ε", *METHODS, BASE, "auto / ToPL", "expected auto / ToPL", "auto / HM", "± s.e."),
            *("expected auto / HM", "± s.e. of expected", "s.e. predicted / measured", "median θ", "auto is"),
        ),
        rows,
        (
            "Expected: the same weeks and the same θ, over the devices' noise: exact variance, and truncation's bias.",
            "Predicted over measured is of auto's standard errors, for the mean of the truncated readings.",
            "ToPL's objective is for random range queries of one stream; the second column gives it the fleet's.",
            GUARANTEE,
        ),
        (Panel("Error of one slot's mean", "ε", "MSE, Wh²", {method: (x, errors[method]) for method in METHODS}),),
    )


def ratios(options: Options) -> Outcome:
    """Mean variance of designed tables over HM's, on densities estimated at ε; the worst is capped at 1.25 × HM."""
    repeats = options.repeats or RUNS
    rows: list[tuple[str | int | float, ...]] = []
    for population in real(_data(options)):
        if population.name not in ("EDRP", "London daily", "POS"):
            continue
        true = Population(population.counts / population.counts.sum(), range(population.bound + 2))
        for epsilon in EPSILONS:
            estimated, actual, worst, thetas = [], [], [], []
            for number in range(repeats):
                generator = np.random.default_rng([options.seed, number, *epsilon.encode()])
                rounds = _sampled_rounds(population, epsilon, generator)
                design = jointly(rounds, population.bound, epsilon, "optimal", FLEET)
                theta, table = design.threshold.theta, design.mechanism
                unit = max(hybrid_variance(float(epsilon), x) for x in (0, 1))
                believed = Population(design.threshold.density, design.threshold.edges)
                estimated.append(believed.mean_variance(table, theta) / unit)
                actual.append(true.mean_variance(table, theta) / unit)
                worst.append(float(Population.even(theta).variances(table, theta).max()) / unit)
                thetas.append(theta)
            rows.append(
                (population.name, epsilon, max(estimated), max(actual), max(worst), int(np.median(thetas)), repeats)
            )
    return Outcome(
        "Variance of designed tables among the readings, over the Hybrid's",
        ("population", "ε", "estimated", "true", "worst reading", "median θ", "runs"),
        rows,
        (
            "Each ratio is the largest of the runs: 65,536 readings in three rounds, θ and table chosen together.",
            "estimated: under the density from private reports; true: under the true frequencies, same table.",
            "The worst reading counts its rounding to 25 levels, which the cap of 1.25 on the levels does not.",
            GUARANTEE,
        ),
    )


def contenders(days: Readings, epsilon: str, seed: int) -> list[Contender]:
    """What each method would report with after the threshold rounds ``days`` [slots, devices]."""
    devices = days.shape[1]
    rounds = cohort_rounds(days, epsilon, seed)
    generator = np.random.default_rng([seed, *epsilon.encode()])
    mechanism = whole_range(epsilon, BOUND)
    once = CohortCounts(mechanism, perturbed(mechanism, days.ravel(), generator))
    variance = constant_variance(float(epsilon))
    found = []
    for method, query in zip(METHODS[:2], (Query.paper(2**20), Query.fleet(devices)), strict=True):
        theta = theta_from_reports([once], bound=BOUND, variance=variance, query=query, method="sw-w").theta
        found.append(Contender(method, theta, hybrid(epsilon, most_levels(theta))))
    for method, kind in zip(METHODS[2:], ("hybrid", "auto"), strict=True):
        design = jointly(rounds, BOUND, epsilon, kind, devices)
        found.append(Contender(method, design.threshold.theta, design.mechanism))
    return found


def jointly(rounds: Sequence[CohortCounts], bound: int, epsilon: str, kind: str, devices: int) -> Design:
    """θ and mechanism from the rounds' reports, for the mean of one slot of so many devices."""

    def choose(variance: Variance) -> Threshold:
        return theta_from_reports(rounds, bound=bound, variance=variance, query=Query.fleet(devices))

    return choose_jointly(kind, epsilon, LEVELS, choose)


def cohort_rounds(days: Readings, epsilon: str, seed: int) -> list[CohortCounts]:
    """One round per cycle of ``days`` [slots, devices], each range chosen from those before."""
    devices = np.arange(days.shape[1])
    edges = first_edges(BOUND)
    rounds: list[CohortCounts] = []
    for start in range(0, len(days), CYCLE):
        mechanism = square_wave(epsilon, edges)
        counts = np.zeros(mechanism.symbols, dtype=np.int64)
        for slot in range(start, start + CYCLE):
            counts += histogram(mechanism, days[slot], BOUND, Seeded(seed).words(slot, devices))
        rounds.append(CohortCounts(mechanism, counts))
        edges = next_range(rounds, bound=BOUND)
    return rounds


def slot_means(week: Readings, one: Contender, seed: int) -> tuple[Readings, ...]:
    """(estimates, their variances, means of the readings, means of the truncated readings); each [slots]."""
    decoder = Decoder(ReportRule(0, one.theta, one.mechanism), 0)
    devices = np.arange(week.shape[1])
    rows = []
    for number, readings in enumerate(week):
        truncated = np.minimum(readings, one.theta)
        words = Seeded(seed).words(ROUNDS * CYCLE + number, devices)
        mean, variance, _ = decoder.mean(histogram(one.mechanism, truncated, one.theta, words))
        rows.append((mean, variance, readings.mean(), truncated.mean()))
    return tuple(np.array(rows).T)


def expected_error(week: Readings, one: Contender) -> float:
    """The mean over the slots of ``week`` [slots, devices] of E[(estimate - mean of the readings)²], exactly."""
    counts = np.bincount(week.ravel())
    population = Population(counts / counts.sum(), range(len(counts) + 1))
    noise = population.mean_variance(one.mechanism, one.theta) * (one.theta / 2) ** 2 / week.shape[1]
    bias = np.mean(week - np.minimum(week, one.theta), axis=1)
    return float(noise + np.mean(np.square(bias)))


def _trial(week: Readings, one: Contender, seed: int) -> Trial:
    means, variances, truths, truncated = slot_means(week, one, seed)
    return Trial(
        one.theta,
        float(np.mean(np.square(means - truths))),
        expected_error(week, one),
        float(np.mean(np.square(means - truncated))),
        float(np.mean(variances)),
    )


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Ratio of two means over the same seeds, and its standard error."""
    top, bottom = np.array(above), np.array(below)
    ratio = top.mean() / bottom.mean()
    return float(ratio), float(np.std(top - ratio * bottom) / (bottom.mean() * np.sqrt(len(top))))


def _sampled_rounds(population: Frequencies, epsilon: str, generator: np.random.Generator) -> list[CohortCounts]:
    """The threshold experiment's rounds: disjoint shares of `READINGS` readings."""
    readings = np.repeat(
        np.arange(len(population.counts)),
        generator.multivariate_hypergeometric(population.counts, READINGS, method="marginals"),
    )
    generator.shuffle(readings)
    edges = first_edges(population.bound)
    rounds: list[CohortCounts] = []
    for part in np.split(readings, np.cumsum([round(READINGS * share) for share in SHARES])[:-1]):
        mechanism = square_wave(epsilon, edges)
        rounds.append(CohortCounts(mechanism, perturbed(mechanism, part, generator)))
        edges = next_range(rounds, bound=population.bound)
    return rounds


def _data(options: Options) -> Path:
    if options.data is None:
        raise Invalid("this experiment needs the real data sets: name their folder with --data")
    return options.data

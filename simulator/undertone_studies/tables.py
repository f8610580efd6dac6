"""Shared code of the studies of designed tables: threshold rounds, choices of θ and mechanism, and slot means."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import hybrid, most_levels, square_wave
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.design.population import Population
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_aggregator.threshold import CohortCounts, Query, Threshold, Variance, constant_variance, first_edges
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_aggregator.threshold.joint import Design, choose_jointly
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ReportRule
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.seeded import Seeded
from undertone_studies.registry import StudyOptions
from undertone_studies.theta import perturbed, whole_range

Integers = NDArray[np.int64]

EPSILONS = ("0.5", "1", "2", "4")
# Default numbers of repeats: seeds of `tables-edrp`, and runs of `tables-ratios`. They are small so that the studies
# are quick; the stored results have more.
SEEDS = 2
RUNS = 1
BOUND = 10_000
CYCLE = 48
ROUNDS = 3
DAYS = 7
LEVELS = 256
BASE = "Base (always 0)"
METHODS = ("ToPL (SW-W + HM)", "ToPL, one slot's objective", "HM at our θ", "auto")
GUARANTEE = "ε is for one reading (event level): 48 readings a day cost a household 48 ε."


@dataclass(frozen=True)
class Contender:
    """One of the compared methods, with the θ and the mechanism that it chose after one seed's threshold rounds."""

    method: str
    theta: int
    mechanism: Mechanism


def contenders(days: Integers, epsilon: str, seed: int) -> list[Contender]:
    """Return the θ and mechanism that each method chooses after the threshold rounds ``days`` [slots, devices]."""
    devices = days.shape[1]
    rounds = cohort_rounds(days, epsilon, seed)
    generator = np.random.default_rng([seed, *epsilon.encode()])
    mechanism = whole_range(epsilon, BOUND)
    once = CohortCounts(mechanism, perturbed(mechanism, days.ravel(), generator))
    variance = constant_variance(float(epsilon))
    contenders = []
    for method, query in zip(METHODS[:2], (Query.paper(2**20), Query.fleet(devices)), strict=True):
        theta = theta_from_reports([once], bound=BOUND, variance=variance, query=query, method="sw-w").theta
        contenders.append(Contender(method, theta, hybrid(epsilon, most_levels(theta))))
    for method, kind in zip(METHODS[2:], ("hybrid", "auto"), strict=True):
        design = jointly(rounds, BOUND, epsilon, kind, devices)
        contenders.append(Contender(method, design.threshold.theta, design.mechanism))
    return contenders


def jointly(rounds: Sequence[CohortCounts], bound: int, epsilon: str, kind: str, devices: int) -> Design:
    """Choose θ and mechanism from the rounds' reports, for the mean of one slot of ``devices`` devices."""

    def choose(variance: Variance) -> Threshold:
        return theta_from_reports(rounds, bound=bound, variance=variance, query=Query.fleet(devices))

    return choose_jointly(kind, epsilon, LEVELS, choose)


def cohort_rounds(days: Integers, epsilon: str, seed: int) -> list[CohortCounts]:
    """Simulate one round per cycle of ``days`` [slots, devices], each range chosen from the rounds before."""
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


def slot_means(week: Integers, contender: Contender, seed: int) -> tuple[Integers, ...]:
    """Return (estimates, their variances, means of the readings, means of the truncated readings); each [slots]."""
    decoder = Decoder(ReportRule(0, contender.theta, contender.mechanism), 0)
    devices = np.arange(week.shape[1])
    rows = []
    for number, readings in enumerate(week):
        truncated = np.minimum(readings, contender.theta)
        words = Seeded(seed).words(ROUNDS * CYCLE + number, devices)
        mean, variance, _ = decoder.mean(histogram(contender.mechanism, truncated, contender.theta, words))
        rows.append((mean, variance, readings.mean(), truncated.mean()))
    return tuple(np.array(rows).T)


def expected_error(week: Integers, contender: Contender) -> float:
    """Return the exact mean over the slots of ``week`` [slots, devices] of E[(estimate - mean of the readings)²]."""
    counts = np.bincount(week.ravel())
    population = Population(counts / counts.sum(), range(len(counts) + 1))
    noise = population.mean_variance(contender.mechanism, contender.theta) * (contender.theta / 2) ** 2 / week.shape[1]
    bias = np.mean(week - np.minimum(week, contender.theta), axis=1)
    return float(noise + np.mean(np.square(bias)))


def _data(options: StudyOptions) -> Path:
    if options.data is None:
        raise Invalid("this experiment needs the real data sets: name their folder with --data")
    return options.data

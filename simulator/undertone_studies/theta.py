"""The regret of a chosen θ: MSE(θ) divided by the least MSE of all candidates, computed with the true frequencies.

The MSE is that of ToPL's Eq. 8 for one of two queries. In paper mode the query is the sum of a random range of up to
2^20 values of one stream; in fleet mode it is the sum of one slot of `FLEET` devices. Each run samples `READINGS`
readings without replacement, or takes four whole days of readings in time order. Candidates are the values of
`even_thetas`, about 1024. Our method takes its reports in three disjoint rounds, of 1/4, 1/4 and 1/2 of the readings,
and the paper's methods in one round with 1024 bins. Every reading is perturbed once, by a mixture of two uniform draws,
which has exactly the mechanism's distribution.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import best_fraction, square_wave
from undertone_aggregator.design.continuous import square_wave_half_width
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    Threshold,
    constant_variance,
    even_thetas,
    first_edges,
    mean_excess,
    mean_square_error,
)
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_shared.mechanism import WindowMechanism
from undertone_studies.theta_populations import CountedReadings, in_time_order, mixture, real, synthetic

Integers = NDArray[np.int64]

EPSILONS = ("0.2", "0.6", "1", "1.5", "2")
ROUNDS = (1 / 4, 1 / 4, 1 / 2)
READINGS = 65_536
RUNS, SHORT = 50, 3
PAPER_BINS = 1024
FLEET = 10_000
# If θ differs from the best θ by more than this factor, the method should say so: by a range that contains the best θ,
# or by a warning.
OFF = 1.7
# Seeds of the random mixtures. Seed 1 is not among them, because it was used to develop the method.
MIXTURES = (4,)
_VARIANCE = constant_variance(1.0)


@dataclass(frozen=True)
class Regret:
    """Regret of one method on one population at one ε: quantiles over `runs`, and number of runs with a regret above 3.

    `held`: number of runs whose range of θ contains the best θ. `off`: number of runs with θ more than a factor `OFF`
    from the best θ. `told`: number of the runs in `off` whose range contains the best θ, or which raised a warning.
    """

    mode: str
    population: str
    method: str
    epsilon: str
    runs: int
    median: float
    ninety: float
    worst: float
    above_three: int
    held: int
    off: int
    told: int


@dataclass(frozen=True)
class Judge:
    """The regret of each candidate θ (its MSE divided by the least MSE) for one population and query."""

    thetas: NDArray[np.int64]
    ratios: NDArray[np.float64]
    query: Query

    @staticmethod
    def of(population: CountedReadings, query: Query) -> "Judge":
        """Compute the regret of each candidate θ from the true frequencies of the readings."""
        thetas = even_thetas(population.bound)
        share = population.counts / population.counts.sum()
        excess = mean_excess(share, range(population.bound + 2), thetas)
        errors = mean_square_error(excess, thetas, query, _VARIANCE)
        return Judge(thetas, errors / errors.min(), query)

    @property
    def best(self) -> int:
        """The θ of least MSE."""
        return int(self.thetas[np.argmin(self.ratios)])

    def holds(self, chosen: Threshold) -> bool:
        """Return True if the choice's range contains the best θ."""
        return chosen.low <= self.best <= chosen.high

    def off(self, chosen: Threshold) -> bool:
        """Return True if θ is more than a factor `OFF` above or below the best θ."""
        return max(chosen.theta / self.best, self.best / chosen.theta) > OFF

    def ratio(self, theta: int) -> float:
        """Return the regret of `theta`, one of the even_thetas."""
        return float(self.ratios[np.searchsorted(self.thetas, theta)])


@dataclass(frozen=True)
class Task:
    """One cell of the table: `methods` on one population at one ε.

    With `slots` [slots, households] the rounds are whole days; without `slots` they are randomly drawn readings.
    """

    mode: str
    population: CountedReadings
    query: Query
    methods: tuple[str, ...]
    epsilon: str
    runs: int
    seed: int
    slots: Integers | None = None


def run(tasks: Sequence[Task], workers: int | None = None) -> list[Regret]:
    """Compute the tasks' rows with `workers` processes, by default one per processor.

    The result does not depend on their number.
    """
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        return [row for task in tasks for row in rows_of(task)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return [row for rows in pool.map(rows_of, tasks) for row in rows]


def protocol(
    data: Path | None, quick: bool = False, seed: int = 1, runs: int = RUNS, only: Sequence[str] = ()
) -> list[Task]:
    """Return all tasks: paper mode, EDRP in time order, and fleet mode.

    `quick`: use two ε and no mixtures. Real populations are left out without `data`. `only`: names of the wanted
    populations, empty for all.
    """
    epsilons = ("0.6", "2") if quick else EPSILONS
    populations = [*(real(data) if data is not None else []), *synthetic(), *([] if quick else map(mixture, MIXTURES))]
    wanted = [population for population in populations if not only or population.name in only]
    paper, fleet = Query.paper(2**20), Query.fleet(FLEET)
    cells: list[tuple[str, CountedReadings, Query, tuple[str, ...], Integers | None]] = [
        ("paper", population, paper, ("robust", "ems", "sw-w") if population.tuned else ("robust",), None)
        for population in wanted
    ]
    edrp = [population for population in wanted if population.name == "EDRP"]
    if data is not None and edrp:
        cells.append(("paper, in time order", edrp[0], paper, ("robust",), in_time_order(data)))
    cells += [("fleet", population, fleet, ("robust",), None) for population in wanted if population.measured]
    return [
        Task(mode, population, query, methods, epsilon, runs, seed, slots)
        for mode, population, query, methods, slots in cells
        for epsilon in epsilons
    ]


def rows_of(task: Task) -> list[Regret]:
    """Return the task's regrets, a row for each of its methods."""
    judge = Judge.of(task.population, task.query)
    name = "ordered" if task.slots is not None else task.population.name
    choices: dict[str, list[Threshold]] = {method: [] for method in task.methods}
    for number in range(task.runs):
        key = [task.seed, number, *name.encode(), *task.epsilon.encode()]
        generator = np.random.default_rng(key)
        if task.slots is None:
            readings = _sampled(task.population, generator)
            parts = np.split(readings, np.cumsum([round(READINGS * share) for share in ROUNDS])[:-1])
        else:
            parts = _days(task.slots, generator)
        bound = task.population.bound
        chosen = {"robust": robust(parts, task.epsilon, bound, judge, generator)}
        if len(task.methods) > 1:
            # The paper's methods have a random generator of their own, so that their results do not change if our
            # method draws more or fewer numbers.
            chosen |= papers(np.concatenate(parts), task.epsilon, bound, judge, np.random.default_rng([*key, 1]))
        for method in task.methods:
            choices[method].append(chosen[method])
    return [_row(task, method, judge, choices[method]) for method in task.methods]


def robust(
    rounds: Sequence[Integers], epsilon: str, bound: int, judge: Judge, generator: np.random.Generator
) -> Threshold:
    """Choose θ from disjoint rounds of readings, each round's range chosen from the rounds before."""
    edges = first_edges(bound)
    histograms: list[CohortCounts] = []
    for readings in rounds:
        if histograms:
            edges = next_range(histograms, bound=bound)
        mechanism = _zoomed(epsilon, edges)
        histograms.append(CohortCounts(mechanism, perturbed(mechanism, readings, generator)))
    return theta_from_reports(histograms, bound=bound, variance=_VARIANCE, query=judge.query, thetas=judge.thetas)


def papers(
    readings: Integers, epsilon: str, bound: int, judge: Judge, generator: np.random.Generator
) -> dict[str, Threshold]:
    """Choose θ by the papers' EMS and SW-W, from one round of all readings, in up to 1024 equal bins on [0, bound]."""
    mechanism = whole_range(epsilon, bound)
    histogram = CohortCounts(mechanism, perturbed(mechanism, readings, generator))
    return {
        method: theta_from_reports(
            [histogram], bound=bound, variance=_VARIANCE, query=judge.query, method=method, thetas=judge.thetas
        )
        for method in ("ems", "sw-w")
    }


def perturbed(mechanism: WindowMechanism, readings: Integers, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the histogram [cells] of one report per reading.

    A window mechanism is a mixture: with probability (a - b)w/Z (`mechanism.a`, ``b``, ``window``, ``total``) a uniform
    cell of the level's window, else a uniform cell of all. This is exactly the distribution of `draw`, with
    floating-point uniforms: for simulation only.
    """
    edges = np.asarray(mechanism.edges)
    level = np.clip(np.searchsorted(edges, readings, side="right") - 1, 0, mechanism.levels)
    inside = (mechanism.a - mechanism.b) * mechanism.window / mechanism.total
    symbols = np.where(
        generator.random(len(readings)) < inside,
        mechanism.stride * level + generator.integers(mechanism.window, size=len(readings)),
        generator.integers(mechanism.cells, size=len(readings)),
    )
    return np.bincount(symbols, minlength=mechanism.cells)


def table(rows: Sequence[Regret]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and a line for each mode, population and method, with a cell for each ε.

    A cell has the median, 90 % quantile and largest of the regrets, and in brackets the number of regrets above 3.
    """
    epsilons = list(dict.fromkeys(row.epsilon for row in rows))
    by_cell = {(row.mode, row.population, row.method, row.epsilon): row for row in rows}
    lines = [
        [*key, *(_cell(by_cell[*key, epsilon]) for epsilon in epsilons)]
        for key in dict.fromkeys((row.mode, row.population, row.method) for row in rows)
    ]
    return ["mode", "readings", "method", *(f"ε = {epsilon}" for epsilon in epsilons)], lines


def _days(slots: Integers, generator: np.random.Generator) -> list[Integers]:
    """Return rounds of whole consecutive days (1, 1 and 2), as a fleet would have, from a random day on."""
    first = 48 * int(generator.integers(len(slots) // 48 - 3))
    return [slots[first + 48 * start : first + 48 * end].ravel() for start, end in ((0, 1), (1, 2), (2, 4))]


def _sampled(population: CountedReadings, generator: np.random.Generator) -> Integers:
    counts = generator.multivariate_hypergeometric(population.counts, READINGS, method="marginals")
    readings = np.repeat(np.arange(len(counts)), counts)
    generator.shuffle(readings)
    return readings


@lru_cache(maxsize=4096)
def _zoomed(epsilon: str, edges: tuple[int, ...]) -> WindowMechanism:
    return square_wave(epsilon, edges)


@lru_cache(maxsize=64)
def whole_range(epsilon: str, bound: int) -> WindowMechanism:
    """Return the paper's Square Wave: up to `PAPER_BINS` equal bins on [0, bound].

    A campaign cannot have as many bins.
    """
    inner = np.unique(np.rint(np.linspace(0, bound + 1, PAPER_BINS + 1)).astype(np.int64))
    edges = tuple(int(edge) for edge in inner)
    bins = len(edges) - 1
    a, b = best_fraction(epsilon)
    window = 2 * int(square_wave_half_width(float(epsilon)) * bins) + 1
    return WindowMechanism(a, b, window, 1, bins - 1, edges)


def _row(task: Task, method: str, judge: Judge, choices: Sequence[Threshold]) -> Regret:
    values = np.asarray([judge.ratio(chosen.theta) for chosen in choices])
    off = [chosen for chosen in choices if judge.off(chosen)]
    return Regret(
        mode=task.mode,
        population=task.population.name,
        method=method,
        epsilon=task.epsilon,
        runs=len(values),
        median=float(np.median(values)),
        ninety=float(np.quantile(values, 0.9)),
        worst=float(values.max()),
        above_three=int((values > 3.0).sum()),
        held=sum(judge.holds(chosen) for chosen in choices),
        off=len(off),
        told=sum(judge.holds(chosen) or bool(chosen.warnings) for chosen in off),
    )


def _cell(row: Regret) -> str:
    figures = " / ".join(f"{value:.3g}" for value in (row.median, row.ninety, row.worst))
    return f"{figures} ({row.above_three})"

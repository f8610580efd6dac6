"""How good the chosen θ is: MSE(θ) over the least MSE of any candidate, with the true frequencies.

Paper mode of Eq. 8 (r = 2^20, report ε = 1) or fleet mode; m readings without replacement; 1024 candidates rounded to
distinct integers. Our method takes its reports in three disjoint rounds (1/4, 1/4, 1/2), the paper's methods in one of
1024 bins. Every reading is perturbed once, by the mechanism's own mixture form, which has exactly its law.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import best_fraction, square_wave
from undertone_aggregator.design.continuous import square_wave_half_width
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    Threshold,
    candidates,
    choose_threshold,
    constant_variance,
    first_edges,
    mean_excess,
    mean_square_error,
    next_range,
)
from undertone_shared.mechanism import WindowMechanism
from undertone_simulator.experiments.theta_populations import Population, in_time_order, mixture, real, synthetic

Readings = NDArray[np.int64]
Log = Callable[[str], None]

EPSILONS = ("0.2", "0.6", "1", "1.5", "2")
ROUNDS = (1 / 4, 1 / 4, 1 / 2)
READINGS = 65_536
RUNS = 50
PAPER_BINS = 1024
FLEET = 10_000
# Drawn once, after the method was frozen.
MIXTURES = (1, 2, 3)
_VARIANCE = constant_variance(1.0)


@dataclass(frozen=True)
class Row:
    """Regret of one method on one population at one ε: quantiles over `runs`, and how many runs exceed 3."""

    mode: str
    population: str
    method: str
    epsilon: str
    runs: int
    median: float
    ninety: float
    worst: float
    above_three: int


@dataclass(frozen=True)
class Judge:
    """MSE over the least MSE for each candidate θ of one population and query."""

    thetas: NDArray[np.int64]
    ratios: NDArray[np.float64]
    query: Query

    @staticmethod
    def of(population: Population, query: Query) -> "Judge":
        """From the true frequencies."""
        thetas = candidates(population.bound)
        share = population.counts / population.counts.sum()
        excess = mean_excess(share, range(population.bound + 2), thetas)
        errors = mean_square_error(excess, thetas, query, _VARIANCE)
        return Judge(thetas, errors / errors.min(), query)

    def ratio(self, theta: int) -> float:
        """The regret of `theta`, one of the candidates."""
        return float(self.ratios[np.searchsorted(self.thetas, theta)])


def run(
    data: Path | None,
    quick: bool = False,
    seed: int = 1,
    log: Log = lambda _: None,
) -> list[Row]:
    """All tables: paper mode, EDRP in time order, fleet mode. `quick`: three runs, two ε, no mixtures.

    Real populations are left out without `data`. Several minutes per population on one core when not quick.
    """
    runs, epsilons = (3, ("0.6", "2")) if quick else (RUNS, EPSILONS)
    measured = real(data) if data is not None else []
    populations = [*measured, *synthetic(), *([] if quick else map(mixture, MIXTURES))]
    rows = []
    for population in populations:
        compared = ("robust", "ems", "sw-w") if population.tuned else ("robust",)
        rows += _table("paper", population, Query.paper(2**20), compared, epsilons, runs, seed, log)
    if data is not None:
        rows += _ordered(measured[2], in_time_order(data), epsilons, runs, seed, log)
    for population in measured:
        rows += _table("fleet", population, Query.fleet(FLEET), ("robust",), epsilons, runs, seed, log)
    return rows


def robust(
    rounds: Sequence[Readings], epsilon: str, bound: int, judge: Judge, generator: np.random.Generator
) -> Threshold:
    """θ from disjoint rounds of readings, each round's range chosen from those before."""
    edges = first_edges(bound)
    histograms: list[CohortCounts] = []
    for readings in rounds:
        if histograms:
            edges = next_range(histograms, bound=bound)
        mechanism = _zoomed(epsilon, edges)
        histograms.append(CohortCounts(mechanism, perturbed(mechanism, readings, generator)))
    return choose_threshold(histograms, bound=bound, variance=_VARIANCE, query=judge.query, thetas=judge.thetas)


def papers(
    readings: Readings, epsilon: str, bound: int, judge: Judge, generator: np.random.Generator
) -> dict[str, Threshold]:
    """θ by EMS and by SW-W from one round of all readings, in up to 1024 equal bins on [0, bound]."""
    mechanism = whole_range(epsilon, bound)
    histogram = CohortCounts(mechanism, perturbed(mechanism, readings, generator))
    return {
        method: choose_threshold(
            [histogram], bound=bound, variance=_VARIANCE, query=judge.query, method=method, thetas=judge.thetas
        )
        for method in ("ems", "sw-w")
    }


def perturbed(mechanism: WindowMechanism, readings: Readings, generator: np.random.Generator) -> NDArray[np.int64]:
    """The histogram [cells] of one report per reading.

    A window mechanism is a mixture: with probability (a - b)w/Z a uniform cell of the level's window, else a uniform
    cell of all. Exactly the law of `draw`, in floating-point uniforms: for simulation only.
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


def markdown(rows: Sequence[Row]) -> str:
    """The rows as one markdown table per mode: median / 90 % / worst, runs above 3 in brackets."""
    blocks = []
    for mode in dict.fromkeys(row.mode for row in rows):
        mine = [row for row in rows if row.mode == mode]
        epsilons = list(dict.fromkeys(row.epsilon for row in mine))
        found = {(row.population, row.method, row.epsilon): row for row in mine}
        lines = [
            f"**{mode}**",
            "",
            "| population | method | " + " | ".join(f"ε = {epsilon}" for epsilon in epsilons) + " |",
            "|---|---|" + "---|" * len(epsilons),
        ]
        for population, method in dict.fromkeys((row.population, row.method) for row in mine):
            cells = [_cell(found[population, method, epsilon]) for epsilon in epsilons]
            lines.append(f"| {population} | {method} | " + " | ".join(cells) + " |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _table(
    mode: str,
    population: Population,
    query: Query,
    methods: Sequence[str],
    epsilons: Sequence[str],
    runs: int,
    seed: int,
    log: Log,
) -> list[Row]:
    judge = Judge.of(population, query)
    rows = []
    for epsilon in epsilons:
        regrets: dict[str, list[float]] = {method: [] for method in methods}
        for number in range(runs):
            generator = np.random.default_rng([seed, number, *population.name.encode(), *epsilon.encode()])
            readings = _sampled(population, generator)
            parts = np.split(readings, np.cumsum([round(READINGS * share) for share in ROUNDS])[:-1])
            chosen = {"robust": robust(parts, epsilon, population.bound, judge, generator)}
            if len(methods) > 1:
                chosen |= papers(readings, epsilon, population.bound, judge, generator)
            for method in methods:
                regrets[method].append(judge.ratio(chosen[method].theta))
        rows += [_row(mode, population.name, method, epsilon, regrets[method]) for method in methods]
        log(f"{mode}, {population.name}, ε = {epsilon}: {_cell(rows[-len(methods)])}")
    return rows


def _ordered(
    population: Population, slots: Readings, epsilons: Sequence[str], runs: int, seed: int, log: Log
) -> list[Row]:
    """EDRP as a fleet would live it: rounds of whole consecutive days (1, 1 and 2), from random days on."""
    judge = Judge.of(population, Query.paper(2**20))
    rows = []
    for epsilon in epsilons:
        regrets = []
        for number in range(runs):
            generator = np.random.default_rng([seed, number, *b"ordered", *epsilon.encode()])
            first = 48 * int(generator.integers(len(slots) // 48 - 3))
            days = [slots[first + 48 * start : first + 48 * end].ravel() for start, end in ((0, 1), (1, 2), (2, 4))]
            regrets.append(judge.ratio(robust(days, epsilon, population.bound, judge, generator).theta))
        rows.append(_row("paper, in time order", population.name, "robust", epsilon, regrets))
        log(f"in time order, ε = {epsilon}: {_cell(rows[-1])}")
    return rows


def _sampled(population: Population, generator: np.random.Generator) -> Readings:
    counts = generator.multivariate_hypergeometric(population.counts, READINGS, method="marginals")
    readings = np.repeat(np.arange(len(counts)), counts)
    generator.shuffle(readings)
    return readings


@lru_cache(maxsize=4096)
def _zoomed(epsilon: str, edges: tuple[int, ...]) -> WindowMechanism:
    return square_wave(epsilon, edges)


@lru_cache(maxsize=64)
def whole_range(epsilon: str, bound: int) -> WindowMechanism:
    """The paper's Square Wave: up to `PAPER_BINS` equal bins on [0, bound], more than a campaign carries."""
    inner = np.unique(np.rint(np.linspace(0, bound + 1, PAPER_BINS + 1)).astype(np.int64))
    edges = tuple(int(edge) for edge in inner)
    bins = len(edges) - 1
    a, b = best_fraction(epsilon)
    window = 2 * int(square_wave_half_width(float(epsilon)) * bins) + 1
    return WindowMechanism(a, b, window, 1, bins - 1, edges)


def _row(mode: str, population: str, method: str, epsilon: str, regrets: Sequence[float]) -> Row:
    values = np.asarray(regrets)
    return Row(
        mode=mode,
        population=population,
        method=method,
        epsilon=epsilon,
        runs=len(values),
        median=float(np.median(values)),
        ninety=float(np.quantile(values, 0.9)),
        worst=float(values.max()),
        above_three=int((values > 3.0).sum()),
    )


def _cell(row: Row) -> str:
    figures = "/".join(f"{value:.3g}" for value in (row.median, row.ninety, row.worst))
    return f"{figures} ({row.above_three})"

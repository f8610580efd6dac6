"""Experiment: the effect of fake devices on θ in the threshold rounds, before anything is published."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import hybrid, most_levels, square_wave
from undertone_aggregator.design.levels import weight_rows
from undertone_aggregator.threshold import CohortCounts, Query, Threshold, constant_variance, first_edges, mean_excess
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_aggregator.threshold.limits import limit_first
from undertone_shared.mechanism import WindowMechanism
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.readings.populations import population
from undertone_simulator.wire.liar import largest_lie
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Poisoning θ: what fake devices do in the rounds"
PARAGRAPH = (
    "False reports in the threshold rounds move θ, and a θ that is too large adds noise to every slot. If all fakes "
    "send the largest symbol, this symbol occurs more often than honest devices could send it. The server then counts "
    "this symbol only as often as the other symbols suggest. But fakes can also behave like honest devices with the "
    "largest possible reading, and nobody can tell such fakes from honest devices. Two rules limit what such fakes can "
    "do. The first θ is at most twice what it would be without the largest 1 % of the readings. Later, each epoch at "
    "most doubles the day's θ. More fakes than 1 % get around the first rule: see the last row."
)
DEVICES = 10_000
ROUNDS = (48, 48, 144)
SHARES = (0.0, 0.001, 0.003, 0.01, 0.05)
LIES = ("largest symbol", "reading at the bound")


def run(options: StudyOptions) -> Outcome:
    """Choose θ after three rounds with a share of liars, and measure how far they then move a slot's mean."""
    source = population("households", options.seed)
    summary = KnownPopulation.of(source, source.bound, 1024, 2)
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for lie in LIES:
        honest = 0
        for share in SHARES[: 2 if options.quick else None]:
            thetas = [_theta(summary, lie, share, seed) for seed in range(1 if options.quick else options.repeats or 3)]
            theta = int(np.median([chosen.theta for chosen in thetas]))
            honest = honest or theta
            moved, bound = _moved(summary, theta, lie, share)
            warned = sum(bool(chosen.warnings) for chosen in thetas)
            rows.append((lie, share, theta, round(theta / honest, 2), moved, bound, f"{warned} of {len(thetas)}"))
            x, y = curves.setdefault(lie, ([], []))
            x.append(100 * share)
            y.append(theta / honest)
    columns = ("lie", "share of liars", "θ", "θ over honest", "shift of the mean, %", "bound, %", "runs that warn")
    notes = [
        f"The study has {DEVICES} households, ε = 1 per reading (event level), and rounds of "
        f"{', '.join(map(str, ROUNDS))} half-hours. θ is the median of the runs. The shift is that of the truncated "
        "mean, in % of the truncated mean. The study does not simulate this shift, but computes it for the Hybrid "
        "with the median θ.",
        "The column `bound` has the shift that the largest possible lie causes. This shift is the share of liars, "
        "multiplied by the difference between the largest decoded value and the truncated mean.",
    ]
    panel = Panel("θ with liars over θ without", "% of devices that lie", "ratio", curves, logarithmic=False)
    return Outcome(TITLE, columns, rows, notes, [panel])


def _theta(population: KnownPopulation, lie: str, share: float, seed: int) -> Threshold:
    generator = np.random.default_rng([seed, 20211121])
    edges, rounds = first_edges(population.bound), []
    query, variance = Query.fleet(DEVICES), constant_variance(1.0)
    for slots in ROUNDS:
        mechanism = square_wave("1", edges)
        lies = int(share * DEVICES) * slots
        counts = _histogram(population, mechanism, DEVICES * slots - lies, generator)
        if lie == LIES[0]:
            counts[largest_lie(mechanism)] += lies
        else:
            law = np.array(mechanism.weights(mechanism.levels)) / mechanism.total
            counts += generator.multinomial(lies, law)
        rounds.append(CohortCounts(mechanism, counts))
        edges = next_range(rounds, bound=population.bound)
    chosen = theta_from_reports(rounds, bound=population.bound, variance=variance, query=query)
    return limit_first(chosen, query, variance)


def _histogram(
    population: KnownPopulation, mechanism: WindowMechanism, reports: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    middle = (np.asarray(population.edges[:-1]) + np.asarray(population.edges[1:]) - 1) // 2
    level = np.searchsorted(np.asarray(mechanism.edges)[1:-1], middle, side="right")
    mass = np.bincount(level, population.density, minlength=mechanism.levels + 1)
    rows = weight_rows(mechanism) / mechanism.total
    return np.asarray(generator.multinomial(reports, mass @ rows / (mass @ rows).sum()))


def _moved(population: KnownPopulation, theta: int, lie: str, share: float) -> tuple[float, float]:
    """Return (shift of a slot's mean, stated bound) in % of the mean."""
    mechanism = hybrid("1", most_levels(theta))
    top = float(Fraction(*mechanism.decode(largest_lie(mechanism), theta)))
    mean = population.mean - float(mean_excess(population.density, population.edges, np.array([theta]))[0])
    sent = top if lie == LIES[0] else float(theta)
    return round(100 * share * (sent - mean) / mean, 2), round(100 * share * (top - mean) / mean, 2)

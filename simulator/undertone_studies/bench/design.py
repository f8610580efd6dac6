"""Benchmark: time to design a table, compared with the time to estimate one slot whose reports use the table."""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.table import optimal_table
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.options import parse
from undertone_aggregator.threshold import Query, Threshold, Variance, best_threshold
from undertone_aggregator.threshold.joint import choose_jointly
from undertone_shared.scalar import ReportRule
from undertone_shared.schedule import SEED_BYTES
from undertone_shared.table import TableMechanism
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.readings.populations import population
from undertone_simulator.seeded import Seeded
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds, duration

TITLE = "Designing mechanisms"

THETA = 700
DEVICES = 10_000
HOMES = 500
# 33 levels are the most that `optimal_table` designs; servers use 25. 65 cells are its default.
LEVELS = 32
CELLS = 65
_BASELINE = "estimation of one slot"


def run(options: StudyOptions) -> list[Measured]:
    """Measure the seconds to design a table, to choose θ with its mechanism, and to make a whole weekly decision.

    The baseline is the time to compute one slot's mean, standard error and misfit.
    """
    rows = []
    edges = tuple(range(0, 4 * THETA + 1, THETA // 50))
    density = np.exp(-np.array(edges[:-1]) / (THETA / 4))
    readings = Population(density / density.sum(), edges)
    for epsilon in ("1",) if options.quick else ("1", "4"):
        levels = tuple(readings.levels(np.linspace(0.0, THETA, LEVELS + 1), THETA).tolist())
        design = partial(optimal_table, epsilon, THETA, levels=LEVELS, cells=CELLS, density=levels)
        seconds = best_seconds([design, partial(_together, epsilon, readings)], 1 if options.quick else 3)
        slot = _slot(design(), readings)
        name = f"design of a table of {LEVELS + 1} levels and {CELLS} cells, ε = {epsilon}"
        rows += [
            duration(name, seconds[0], "s", _BASELINE, slot),
            duration(f"choice of θ and design of its mechanism, ε = {epsilon}", seconds[1], "s", _BASELINE, slot),
        ]
    weeks = 2 if options.quick else 4
    name = f"choice of θ, of blocks of the day and of mechanisms after {weeks} weeks, {HOMES} homes"
    return [*rows, duration(name, _decision(weeks), "s", _BASELINE, slot)]


def _decision(weeks: int) -> float:
    """Return the seconds of a running server's newest weekly decision, after it made the one before."""
    table = {"name": "bench", "sensor": "load", "unit": "Wh", "bound": 10_000, "epsilon": 1, "rounds": [48, 48]}
    # After the newest decision, a third of a week is left, so that one more epoch could begin.
    plan = parse(CampaignPlan, "campaign", table | {"report_slots": 336 * weeks + 112})
    simulated = Simulation(plan, population("households", 1), HOMES, 1).run()
    by_slot: dict[int, list[Key]] = {}
    for key in simulated.partial:
        by_slot.setdefault(key.slot, []).append(key)

    def read(first: int, last: int, kind: int) -> Partial:
        keys = (key for slot in range(first, last + 1) for key in by_slot.get(slot, ()) if key.kind == kind)
        return Partial({key: simulated.partial[key] for key in keys})

    rounds = Rounds(plan, EpochMeans(bytes(SEED_BYTES), read))
    newest = max(by_slot) - 110
    seconds = 0.0
    for now in ((newest - 336) * plan.slot_seconds, newest * plan.slot_seconds):
        issued = Timeline([epoch for epoch in simulated.timeline.epochs if epoch.issued_at < now])
        seconds = best_seconds([partial(rounds.next, issued, now)], 1)[0]
    return seconds


def _together(epsilon: str, population: Population) -> None:
    thetas = np.arange(20, 4 * THETA, 10)

    def choose(variance: Variance) -> Threshold:
        theta, error = best_threshold(population.density, population.edges, thetas, Query.fleet(DEVICES), variance)
        return Threshold(theta, theta, theta, 0.0, 0.0, error, population.density, population.edges, "ems")

    choose_jointly("auto", epsilon, 256, choose, _progress())


def _progress() -> Callable[[str], None]:
    """Return a function that prints progress on standard error, at most once a second."""
    told = time.monotonic()

    def tell(what: str) -> None:
        nonlocal told
        if time.monotonic() > told + 1.0:
            told = time.monotonic()
            print(f"  {what}", file=sys.stderr)

    return tell


def _slot(table: TableMechanism, population: Population) -> float:
    """Return the seconds for one slot's mean, standard error and misfit."""
    decoder = Decoder(ReportRule(0, THETA, table), 0, population)
    readings = np.minimum(np.random.default_rng(1).exponential(THETA / 4, DEVICES).astype(int), THETA)
    counts = histogram(table, readings, THETA, Seeded(1).words(0, range(DEVICES)))

    def estimate() -> None:
        decoder.mean(counts)
        decoder.goodness.misfits(counts[None])

    return best_seconds([estimate], 20)[0]

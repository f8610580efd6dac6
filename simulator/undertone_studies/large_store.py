"""A large store for benchmarks and tests: half-hours of many groups, for a year or another time, written in bulk.

Its rows are like those of a real server: threshold rounds with the means fitted to them, weekly epochs, reports for the
threshold and all others, late reports, losses, and an inventory of devices. For each time of day `_DRAWN` histograms
are drawn and repeated.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.campaign.binding import open_campaign
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import Counts, Key, Partial, pack_counts
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.design.fitted import population_table
from undertone_aggregator.design.levels import level_law, level_positions, weight_rows
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.window import square_wave
from undertone_aggregator.estimate.opened import MODELS
from undertone_aggregator.estimate.publication import settle, tell_groups
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.options import parse
from undertone_aggregator.store import tables
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.sqlite_store import SqliteStore
from undertone_aggregator.store.store import Batch
from undertone_aggregator.threshold import Threshold, WindowChannel, first_edges, mean_excess
from undertone_shared.report import COHORT, REPORT
from undertone_shared.scalar import Cohort, ReportRule
from undertone_simulator.readings.begin import START

NAME = "large"
SLOTS_OF_A_YEAR = 365 * 48
_HALF_HOUR, _DAY, _WEEK = 1800, 48, 7 * 48
_BOUND, _THETA, _EPSILON = 10_000, 700, 1
# Number of histograms drawn for each time of day.
_DRAWN = 20
_ROWS = 20_000
_WORKER = "bench"


def write_large_store(path: Path, slots: int, groups: int, *, devices: int = 100, seed: int = 1) -> None:
    """Write a new SQLite store with ``slots`` half-hours of ``groups`` groups of ``devices`` each, all slots settled.

    The first two days are threshold rounds; a new epoch begins each week, all with one θ and one table.
    """
    options = {"name": NAME, "sensor": "load", "unit": "Wh", "bound": _BOUND, "epsilon": _EPSILON}
    plan = parse(CampaignPlan, "campaign", {**options, "rounds": [_DAY, _DAY]})
    first = START // _HALF_HOUR
    epochs = _epochs(plan, first, slots)
    names = [f"group-{number:02d}" for number in range(groups)]
    with SqliteStore(str(path), campaign=NAME) as store:
        open_campaign(store, plan)
        store.set_devices(
            Device(f"{name}-{n:04d}", name, ACTIVE, first * _HALF_HOUR) for name in names for n in range(devices)
        )
        with store.transaction():
            for epoch in epochs:
                store.add_epoch(epoch)
            rows = _rows(epochs, first, slots, names, devices, seed)
            while some := list(islice(rows, _ROWS)):
                store.execute(tables.partials.insert(), some)
        settle(store, first + slots - 1, plan.min_reports)
        while store.sum_up(_WEEK):
            pass
        tell_groups(store, plan.min_reports)
        store.commit(_WORKER, _after(epochs[-1], first, slots, names, devices))
        models: dict[str, float] = {}
        estimator = Reconstruction(Timeline(epochs), models)
        for group, reports in store.histograms(first, first + 2 * _DAY - 1).each_group():
            estimator.truncated(reports, group)
        store.set_meta({MODELS: json.dumps(models)})


def _epochs(plan: CampaignPlan, first: int, slots: int) -> list[Epoch]:
    """Return two threshold epochs of a day, then an epoch for each week."""
    last, seed, issued = first + slots - 1, bytes(16), first * _HALF_HOUR
    cohort = Cohort(square_wave(plan.epsilon, first_edges(_BOUND, plan.cells)))
    every = plan.schedule(seed, 1)
    rounds = [plan.epoch(first + day * _DAY, last, cohort=cohort, schedule=every) for day in range(2)]
    edges = tuple(range(0, _BOUND + 1, 50))
    density = _law(edges, 150.0)
    chosen = Threshold(
        theta=_THETA,
        low=_THETA - 50,
        high=_THETA + 50,
        bias=float(mean_excess(density, edges, np.array([_THETA]))[0]),
        bias_se=0.3,
        expected_mse=1.0,
        density=density,
        edges=edges,
        method="robust",
    )
    table = population_table(_EPSILON, _THETA, Population(density, edges))
    rule, schedule = ReportRule(0, _THETA, table), plan.schedule(seed, plan.cohort_stride)
    text, decoded = threshold_to_json(chosen), traits_of(table).decoded
    weeks = [
        plan.epoch(begin, last, cohort=cohort, report=rule, schedule=schedule)
        for begin in range(first + 2 * _DAY, last + 1, _WEEK)
    ]
    learning = [Epoch(campaign, issued, budget=plan.budget) for campaign in rounds]
    return learning + [Epoch(campaign, issued, text, decoded, plan.budget) for campaign in weeks]


def _rows(
    epochs: list[Epoch], first: int, slots: int, groups: list[str], devices: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row of the table ``partials`` for each slot, kind and group."""
    rng = np.random.default_rng(seed)
    rule, cohort = epochs[-1].campaign.report, epochs[-1].campaign.cohort
    assert rule is not None
    assert cohort is not None
    few = max(devices // 20, 1)
    channel, cells = WindowChannel(cohort.mechanism), cohort.mechanism.edges
    learnt = _drawn(rng, lambda mean: channel.apply(_law(cells, mean)), devices)
    beside = _drawn(rng, lambda mean: channel.apply(_law(cells, mean)), few)
    sent = _drawn(rng, lambda mean: _symbols(rule.mechanism, mean), devices - few)
    for place, epoch in enumerate(epochs):
        begin = epoch.campaign.first_slot
        end = epochs[place + 1].campaign.first_slot if place + 1 < len(epochs) else first + slots
        kinds = [(COHORT, learnt)] if epoch.campaign.report is None else [(COHORT, beside), (REPORT, sent)]
        for slot in range(begin, min(end, first + slots)):
            for number, group in enumerate(groups):
                for kind, drawn in kinds:
                    counts = drawn[slot % _DAY][(slot // _DAY + 7 * number) % _DRAWN]
                    yield {
                        "campaign": 1,
                        "worker": _WORKER,
                        "slot": slot,
                        "fingerprint": epoch.campaign.fingerprint,
                        "kind": kind,
                        "grp": group,
                        "counts": counts,
                    }


def _after(newest: Epoch, first: int, slots: int, groups: list[str], devices: int) -> Batch:
    """Return what arrives after all slots have settled: for each group and day, a late report and a lost report.

    The late reports are of the newest epoch only. The batch also has the number of all reports counted before.
    """
    rule = newest.campaign.report
    assert rule is not None
    late: Counts = np.eye(1, rule.mechanism.symbols, dtype=np.int64)[0]
    begin, fingerprint = newest.campaign.first_slot, newest.campaign.fingerprint
    days = range(begin, first + slots, _DAY)
    partial = Partial({Key(NAME, fingerprint, REPORT, group, slot): late for group in groups for slot in days})
    lost = Counter({(group, slot): 1 for group in groups for slot in range(first, first + slots, _DAY)})
    return Batch(partial, Counter({COUNTED: slots * len(groups) * devices}), lost=lost)


def _drawn(rng: np.random.Generator, law: Any, reports: int) -> list[list[bytes]]:
    """Return packed histograms of ``reports`` reports each, [times of day][`_DRAWN`].

    ``law``: function from the mean reading at a time of day to the distribution of the symbols.
    """
    return [
        [pack_counts(counts) for counts in rng.multinomial(reports, _normal(law(_mean(phase))), _DRAWN)]
        for phase in range(_DAY)
    ]


def _mean(phase: int) -> float:
    """Return the mean reading at a time of day."""
    return 150.0 + 80.0 * float(np.sin(2 * np.pi * phase / _DAY))


def _law(edges: Any, mean: float) -> NDArray[np.float64]:
    """Return the exponential distribution over cells between integer edges; the last cell has all larger values."""
    survival = np.exp(-np.asarray(edges, dtype=np.float64) / mean)
    survival[-1] = 0.0
    return np.asarray(survival[:-1] - survival[1:])


def _symbols(mechanism: Mechanism, mean: float) -> NDArray[np.float64]:
    """Return the distribution of a report mechanism's symbols."""
    edges = tuple(range(0, _BOUND + 1, 50))
    rows = weight_rows(mechanism)
    levels = level_law(level_positions(mechanism, _THETA), _THETA, edges) @ _law(edges, mean)
    return np.asarray(levels @ rows / mechanism.row_total())


def _normal(law: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(law / law.sum())

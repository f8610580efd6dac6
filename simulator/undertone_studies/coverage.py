"""Coverage of the confidence intervals on real readings, with every report drawn by the vectorised mechanisms.

Three threshold rounds of a day each are taken in time order; θ and its Hybrid are chosen as the aggregator does. The
truncated mean's interval is tested on one day, with many seeds. The wider interval of the raw mean is tested on several
whole days, with fewer seeds, each with its own rounds. The seeds change the noise; the readings stay the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design import hybrid, most_levels, square_wave, worst_variance
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.reconstruct import Decoder, Reconstruction
from undertone_aggregator.threshold import CohortCounts, Query, Threshold, first_edges
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.off_board.issue import build
from undertone_shared.scalar import Cohort, ReportRule
from undertone_simulator.fast.vectorised import histogram, symbols
from undertone_simulator.seeded import Seeded

Integers = NDArray[np.int64]

ROUNDS = 3
CELLS = 128
SLOT_SECONDS = 1800
_CHUNK = 100


@dataclass(frozen=True)
class Coverage:
    """Result of a coverage study. ``held``: share of (slot, seed) whose interval contains the truth.

    ``ratio``: predicted error divided by empirical error.

    ``held_raw`` and ``least_held_raw``: coverage of the wider interval, on average and at its worst slot of the day;
    ``width_raw``: the median of its width divided by that of the truncated mean's interval.
    """

    epsilon: str
    theta: int
    seeds: int
    slots: int
    held: float
    ratio: float
    seeds_raw: int
    days_raw: int
    held_raw: float
    least_held_raw: float
    width_raw: float


def threshold(readings: Integers, epsilon: str, bound: int, cycle: int, seed: int) -> Threshold:
    """Choose θ after `ROUNDS` rounds of one cycle each; ``readings`` [devices, slots], integers in [0, bound]."""
    devices = np.arange(len(readings))
    rounds: list[CohortCounts] = []
    edges = first_edges(bound, CELLS)
    for number in range(ROUNDS):
        mechanism = square_wave(epsilon, edges)
        counts = np.zeros(mechanism.symbols, dtype=np.int64)
        for slot in range(number * cycle, (number + 1) * cycle):
            counts += histogram(mechanism, readings[:, slot], bound, Seeded(seed).words(slot, devices))
        rounds.append(CohortCounts(mechanism, counts))
        edges = next_range(rounds, bound=bound, cells=CELLS)
    variance = float(worst_variance(hybrid(epsilon)))
    return theta_from_reports(rounds, bound=bound, variance=lambda _: variance, query=Query.fleet(len(readings)))


def campaign(chosen: Threshold, epsilon: str, bound: int, cycle: int, first: int, last: int) -> Campaign:
    """Return the campaign of the report epoch under ``chosen``, for slots first to last."""
    return build(
        name="coverage",
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=bound,
        slot_seconds=SLOT_SECONDS,
        cycle=cycle,
        epoch=first * SLOT_SECONDS,
        last_slot=last,
        default=0,
        cohort=Cohort(square_wave(epsilon, first_edges(bound, CELLS))),
        report=ReportRule(0, chosen.theta, hybrid(epsilon, most_levels(chosen.theta))),
    )


def truncated(readings: Integers, rule: ReportRule, slots: range, seeds: int) -> tuple[float, float]:
    """Return (share of 95 % intervals that contain the truth, predicted standard error / empirical one)."""
    decoder = Decoder(rule, 0)
    held = 0
    squares = predicted = 0.0
    for slot in slots:
        x = np.minimum(readings[:, slot], rule.theta)
        for start in range(0, seeds, _CHUNK):
            rows = min(_CHUNK, seeds - start)
            # Each pair (seed, device) counts as a separate device.
            numbers = np.arange(start * len(x), (start + rows) * len(x))
            drawn = symbols(rule.mechanism, np.tile(x, rows), rule.theta, Seeded(1).words(slot, numbers))
            for row in drawn.reshape(rows, len(x)):
                mean, variance, _ = decoder.mean(np.bincount(row, minlength=rule.mechanism.symbols))
                error = mean - float(x.mean())
                held += error * error <= 1.959963984540054**2 * variance
                squares += error * error
                predicted += variance
    return held / (len(slots) * seeds), float(np.sqrt(predicted / squares))


def raw(readings: Integers, epsilon: str, bound: int, cycle: int, days: int, seeds: int) -> tuple[float, float, float]:
    """Return three figures of the raw mean's interval, which are fields of `Coverage`.

    They are its coverage on average (``held_raw``), its coverage in the worst slot of the cycle (``least_held_raw``),
    and the median of its relative width (``width_raw``).
    """
    first = ROUNDS * cycle
    held = np.zeros(cycle)
    widths = []
    devices = np.arange(len(readings))
    for seed in range(seeds):
        chosen = threshold(readings, epsilon, bound, cycle, seed)
        issued = campaign(chosen, epsilon, bound, cycle, first, first + days * cycle - 1)
        assert issued.report is not None
        partial = {}
        for slot in range(issued.first_slot, issued.last_slot + 1):
            x = np.minimum(readings[:, slot], chosen.theta)
            counts = histogram(issued.report.mechanism, x, chosen.theta, Seeded(seed).words(slot, devices))
            partial[Key(issued.name, issued.fingerprint, report.REPORT, "all", slot)] = counts
        estimator = Reconstruction(Timeline([Epoch(issued, 0, threshold_to_json(chosen))]))
        estimates = estimates_of(estimator, Partial(partial))
        for estimate in estimates:
            numbers = (estimate.low, estimate.high, estimate.standard_error, estimate.truncated_se)
            low, high, error, noise = (float("nan") if number is None else number for number in numbers)
            held[estimate.slot % cycle] += low <= readings[:, estimate.slot].mean() <= high
            widths.append(error / noise)
    held /= days * seeds
    return float(held.mean()), float(held.min()), float(np.median(widths))


def measure(
    readings: Integers,
    epsilon: str,
    *,
    bound: int,
    cycle: int = 48,
    seeds: int = 2000,
    days: int = 28,
    seeds_raw: int = 10,
) -> Coverage:
    """Measure the coverage of both intervals at one ε (event level).

    ``readings`` [devices, slots], at least 3 + days cycles.
    """
    chosen = threshold(readings, epsilon, bound, cycle, 0)
    issued = campaign(chosen, epsilon, bound, cycle, ROUNDS * cycle, (ROUNDS + 1) * cycle - 1)
    assert issued.report is not None
    slots = range(issued.first_slot, issued.last_slot + 1)
    held, ratio = truncated(readings, issued.report, slots, seeds)
    wide = raw(readings, epsilon, bound, cycle, days, seeds_raw)
    return Coverage(epsilon, chosen.theta, seeds, len(slots), held, ratio, seeds_raw, days, *wide)

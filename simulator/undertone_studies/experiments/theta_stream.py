"""Experiment: θ of a stream from one Square Wave report of each device, against the best θ in hindsight."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.stream.methods import Method, main_methods, select
from undertone_aggregator.settings.config import CampaignPlan, StreamPlan
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings import populations
from undertone_simulator.readings.bounds import public_bound
from undertone_simulator.readings.readings import Readings
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions

TITLE = "Streams: θ from a threshold round, against the best θ in hindsight"
PARAGRAPH = (
    "A stream campaign can begin with a threshold round (`round_slots`), in which each device sends one report by the "
    "Square Wave. The report costs a part of the campaign's ε (`round_epsilon`), and the stream has the rest. The "
    "server chooses θ from these reports. The study compares two errors of the stream: the error with the chosen θ, "
    "and the error with the θ that is best in hindsight, for the very readings that the stream then reports.\n\nThe "
    "error of a slot has three parts: noise, truncation at θ, and clipped steps. The error is computed from the "
    "readings and from the variance of the noise, so only the reports of the round are random. The reports of the "
    "round do not show how readings change from slot to slot, so the choice of θ uses a model of what clipped steps "
    "remove."
)

DEVICES, CYCLE, DELTA = 5000, 48, 1e-5
EPSILONS = ("2", "4", "8")
# The parts of ε that the report of the round costs.
PARTS = (Fraction(1, 10), Fraction(1, 4))
SLEW, CHAINS, SEEDS = Fraction(1, 20), 2, 10
# Ratio between neighbouring candidates for the best θ in hindsight.
APART = 1.02
_NEAR = 1e-9

Array = NDArray[np.float64]


def run(options: StudyOptions) -> Outcome:
    """Compare the chosen θ with the best one, for each ε and each share of ε that the threshold round may cost."""
    seeds = range(options.seed, options.seed + (options.repeats or SEEDS))
    devices = 200 if options.quick else DEVICES
    cells = list(product(EPSILONS[:1] if options.quick else EPSILONS, PARTS))
    results: dict[tuple[str, Fraction], list[list[float]]] = {cell: [] for cell in cells}
    for seed in seeds:
        # The round plays the first day, and the stream the second one.
        readings = populations.households(devices, 3, seed)
        for epsilon, part in cells:
            results[epsilon, part].append(_compared(readings, Fraction(epsilon), part, seed))
    rows: list[tuple[Cell, ...]] = []
    for (epsilon, part), each in results.items():
        theta, best, error, own, whole = np.array(each).T
        medians = (float(np.median(values)) for values in (theta, best, error))
        ratios = (cell for over in (own, whole) for cell in (*_mean(over), float(over.max())))
        rows.append((epsilon, float(part * Fraction(epsilon)), *medians, *ratios))
    return Outcome(
        TITLE,
        (
            *("ε", "for the round", "median θ, Wh", "best θ, Wh", "error, %"),
            *("over best", "± s.e.", "worst run"),
            *("over best with all of ε", "± s.e. with all of ε", "worst run with all of ε"),
        ),
        rows,
        (
            f"The study has {many(len(seeds), 'run')}, each with {devices} simulated households of its own. (ε, δ) "
            "with δ = "
            f"{DELTA:g} is for all that a device reports in the round and in the day after it (user level). The "
            "column `error, %` has the root mean square error of a half-hour's mean, without filter and model, in per "
            "cent of the mean (median of the runs). The column `over best` has this error, divided by the error with "
            "the best θ in hindsight at the same ε for the stream (mean of the runs). The last three columns divide "
            "by another error: that of a stream which gets the best θ for nothing, and so has all of ε. Steps of more "
            f"than {float(SLEW):g} of the range are clipped.",
            *notes_of(rows),
        ),
    )


def notes_of(rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    """Return sentences: for each share of ε that the threshold round may cost, the error that results."""
    notes = []
    for part in PARTS:
        of = [row for row in rows if abs(float(row[1]) / float(row[0]) - float(part)) < _NEAR]
        epsilons = _listed([f"{float(row[0]):g}" for row in of])
        own, whole = (_listed([f"{float(row[at]):.2f}" for row in of]) for at in (5, 8))
        notes.append(
            f"If the round has {100 * float(part):.0f} % of ε, `over best` is {own} at ε = {epsilons}. `over best "
            f"with all of ε` is {whole}."
        )
    return notes


def _listed(words: list[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), words[-1]])


def _mean(values: Array) -> tuple[float, float]:
    """Return the mean and its standard error; with a single value, an error of 0."""
    return float(values.mean()), float(values.std(ddof=1) / sqrt(len(values))) if len(values) > 1 else 0.0


def _compared(readings: Readings, epsilon: Fraction, share: Fraction, seed: int) -> list[float]:
    """Return θ, the best θ, the error in per cent, and two ratios of the error to that of the best θ.

    Both ratios have the error of the chosen θ at the ε that is left for the stream. The first one divides it by the
    error of the best θ at this ε, the second one by that of the best θ at the whole ε.
    """
    bound, _ = public_bound(readings, None)
    plan = CampaignPlan(
        name="stream", sensor="load", unit=readings.unit, bound=bound, slot_seconds=1800, cycle=CYCLE, epsilon=epsilon,
        collect="stream", report_slots=1,
    )  # fmt: skip
    part = epsilon * share
    stream = StreamPlan(delta=DELTA, slew=SLEW, reports=CYCLE, chains=CHAINS, round_slots=CYCLE, round_epsilon=part)
    simulated = Simulation(plan, readings, readings.households, seed, stream=stream).run()
    rule = simulated.rule
    assert rule is not None
    first, second = (epoch.campaign.first_slot for epoch in simulated.timeline.epochs)
    day = readings.values[:, second - first : second - first + CYCLE].astype(np.float64)
    candidates = np.unique(np.geomspace(20, bound, int(np.log(bound / 20) / np.log(APART))).astype(int))
    errors = []
    for budget in (epsilon - part, epsilon):
        methods = main_methods(SLEW, CYCLE, float(budget), DELTA, chains=CHAINS)
        method = select(methods, "closed-form")
        if budget == epsilon - part:
            error = error_at(method, day, rule.theta)
        errors.append([error_at(method, day, int(theta)) for theta in candidates])
    own, whole = map(min, errors)
    best = float(candidates[int(np.argmin(errors[0]))])
    return [float(rule.theta), best, 100 * error / float(day.mean()), error / own, error / whole]


def error_at(method: Method, day: Array, theta: int) -> float:
    """Return the root mean square error of a slot's raw mean.

    ``day`` [devices, slots]: the readings, which this function truncates at θ.
    """
    bias = theta * method.clipped(day / theta).mean(axis=0) - day.mean(axis=0)
    noise = theta**2 * np.diag(method.covariance) / len(day)
    return float(np.sqrt(np.mean(bias**2 + noise)))

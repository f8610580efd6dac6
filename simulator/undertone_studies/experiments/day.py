"""Experiment: errors of every way of collecting under one guarantee for any 24 hours, as planned and as simulated."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import hybrid, most_levels
from undertone_aggregator.design.levels import level_law, level_positions, weight_rows
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.planning.options import CAMPAIGNS
from undertone_simulator.planning.window_plan import Predicted, Way, plan_window, predict_day, with_filtered
from undertone_simulator.readings.day_slots import DaySlots
from undertone_simulator.readings.loaders import load
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import ReadingSource
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Any 24 hours: errors at one guarantee"
PARAGRAPH = (
    "The paper LDP-IDS compares two ways to protect a window of time when frequencies are estimated. One way divides "
    "the budget between the reports. The other divides the devices into groups, which report in turns. This study "
    "makes the same comparison for means of the readings of households. It adds longer slots, correlated noise and "
    "the filter.\n\nEach block of rows has one ε and one number of devices. In each block, all rows except the last "
    "have the same ε for any 24 hours (streams also have a δ). Errors are differences from the true mean of all "
    "devices. The column `predicted error, %` has the error that the planner predicts. The column `simulated error, %` "
    "checks this prediction for turns and for single readings. For this column the study simulates a simpler case: the "
    "readings of a slot have only 100 values (their quantiles), and the Hybrid has few levels. The column has the "
    "predicted error, multiplied by the ratio of the simulated error to the predicted error in the simpler case. "
    "Devices that report single readings use the Hybrid. The protection does not depend on a secret schedule: "
    "everybody may know in which slots a device reports."
)
EPSILONS = ("1", "2", "4")
FLEETS = (1_000, 10_000, 100_000)
SLOTS = 2_496
DAY = 86_400
_ATOMS = 100
_BOUND = 10_000


def run(options: StudyOptions) -> Outcome:
    """Plan for three ε and several fleets; simulate the errors of turns and of one report a slot."""
    source = _source(options)
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for epsilon in EPSILONS[: 1 if options.quick else None]:
        for devices in FLEETS[-1 if options.quick else 0 :]:
            plan = plan_window(source, _BOUND, devices, epsilon, DAY, make=_hybrid)
            fleet = _campaign(options, devices, epsilon)
            plan = with_filtered(plan, fleet, 1 if options.quick else CAMPAIGNS, options.workers or 1)
            for way in plan.ways:
                simulated = _simulated(source, way, devices, epsilon, options)
                predicted, filtered = round(100 * way.raw, 2), _percent(way.filtered)
                rows.append((epsilon, devices, way.name, way.theta, predicted, simulated, filtered))
                if epsilon == EPSILONS[0]:
                    x, y = curves.setdefault(_label(way.name), ([], []))
                    x.append(devices)
                    y.append(100 * way.raw)
    columns = ("ε", "devices", "way", "θ", "predicted error, %", "simulated error, %", "filtered, %")
    notes = [
        "The figures are the root mean square error of a slot's mean over a day, in % of the mean. They include the "
        "error from truncation. The filtered error is the error of the mean that people read: it is filtered, and a "
        "model adds what truncation removed. This error comes from simulated campaigns. It is missing for split "
        "budgets and streams, for which the study simulates no campaign.",
        "The row 'every slot, ε each' protects one reading. All other rows protect any 24 hours: streams with (ε, "
        "1e-5), and the rest with ε. If devices take turns, each device enforces this guarantee by itself, whatever "
        "the server does.",
    ]
    title = "Error of a slot, ε = 1 in any 24 hours"
    panel = Panel(title, "devices", "error, % of the mean", curves, logarithmic_x=True, better="lower")
    return Outcome(TITLE, columns, rows, notes, [panel])


def _label(way: str) -> str:
    """Return the label of a way of collecting, for the figure.

    The label of a stream leaves out its slew. The one way that protects only a reading, and not a day, says so.
    """
    return {"every slot, ε each": "every slot, ε of a reading"}.get(way, way.partition(", C =")[0])


def _source(options: StudyOptions) -> ReadingSource:
    if options.data is None:
        return population("households", options.seed)
    return load(options.data / EDRP_FILE, None)


def _campaign(options: StudyOptions, devices: int, epsilon: str) -> SimulateOptions:
    """Return the options of the campaigns that give the filtered errors."""
    data = None if options.data is None else options.data / EDRP_FILE
    return SimulateOptions(devices=devices, epsilon=epsilon, data=data, bound=_BOUND, mechanism="hybrid")


def _percent(share: float | None) -> Cell:
    return "" if share is None else round(100 * share, 2)


def _simulated(source: ReadingSource, way: Way, devices: int, epsilon: str, options: StudyOptions) -> Cell:
    """Return the simulated error (%) of turns and of single reports with ε each; "" for other ways of collecting."""
    span = way.slot_seconds * source.per_day // DAY
    stride = round(source.per_day // span / way.reports_per_day)
    if not (way.name.startswith("turns") or way.name.endswith("ε each")):
        return ""
    slots = atoms(DaySlots.of(source, _BOUND, span))
    predicted = predict_day(slots, devices, stride, Fraction(epsilon), coarse)
    count = SLOTS // 24 if options.quick else SLOTS
    error = simulate(slots, predicted, devices, stride, epsilon, count, options.seed)
    # Plan and simulation here use a population reduced to 100 quantiles per slot (`atoms`), which differs slightly from
    # the data. So only the ratio of simulated to planned error is used, as a factor on the error planned for the data.
    return round(100 * way.raw * error / predicted.error, 2)


def _hybrid(epsilon: Fraction, theta: int) -> Mechanism:
    """Return the mechanism of the plans: the Hybrid, and not a table designed for the readings.

    The simulation uses the Hybrid, too.
    """
    return hybrid(epsilon, most_levels(theta))


def coarse(epsilon: Fraction, theta: int) -> Mechanism:
    """Return the Hybrid with few symbols, so that many slots can be simulated.

    The prediction with which `_simulated` compares the simulation is for the same mechanism.
    """
    whole = hybrid(epsilon, most_levels(theta))
    levels, stride = 8, 4
    share = whole.piecewise.window / (whole.piecewise.stride * whole.piecewise.levels)
    window = max(round(share * levels * stride), 1)
    part = WindowMechanism(whole.piecewise.a, whole.piecewise.b, window, stride, levels, None, whole.rounding.symbols)
    return Hybrid(whole.coin, whole.rounding, part)


def atoms(slots: DaySlots) -> DaySlots:
    """Reduce the readings of each slot of the day to 100 values, their quantiles, which are equally likely."""
    pooled = slots.values.reshape(-1, slots.per_day, slots.values.shape[1])
    levels = (np.arange(_ATOMS) + 0.5) / _ATOMS
    values = np.stack([np.quantile(pooled[:, t], levels, method="nearest") for t in range(slots.per_day)])
    edges = np.append(np.unique(values), int(values.max()) + 1)
    cells = np.searchsorted(edges, values, side="right") - 1
    density = np.stack([np.bincount(row, minlength=len(edges) - 1) for row in cells]) / _ATOMS
    # Each value gets a cell of width 1, so that the density lies on the values alone.
    exact = np.unique(np.concatenate([edges, edges[:-1] + 1]))
    wide = np.zeros((slots.per_day, len(exact) - 1))
    wide[:, np.searchsorted(exact, edges[:-1])] = density
    whole = values.astype(np.int64)
    return DaySlots(
        slots.span,
        slots.bound,
        wide,
        tuple(exact.tolist()),
        values.mean(axis=1),
        whole,
        np.sort(whole, axis=1),
    )


def simulate(
    slots: DaySlots, predicted: Predicted, devices: int, stride: int, epsilon: str, count: int, seed: int
) -> float:
    """Return the root mean square error of a fleet of which a share of 1/``stride`` reports in each slot.

    It is over about ``count`` slots, equally many for each slot of the day. The readings have the distributions of
    ``slots``.
    """
    generator = np.random.default_rng(seed)
    theta = predicted.theta
    mechanism = coarse(Fraction(epsilon), theta)
    rows = weight_rows(mechanism) / mechanism.row_total()
    decoded = np.array([float(Fraction(*mechanism.decode(j, theta))) for j in range(mechanism.symbols)])
    positions = level_positions(mechanism, theta)
    reporting = max(devices // stride, 1)
    even = np.full(slots.values.shape[1], 1 / slots.values.shape[1])
    errors = []
    for readings in slots.values:
        laws = (rows.T @ _point_law(positions, theta, readings)).T
        for _ in range(count // slots.per_day):
            here = generator.multinomial(reporting, even)
            others = generator.multinomial(devices - reporting, even)
            histogram = generator.multinomial(here, laws).sum(axis=0)
            truth = float((here + others) @ readings) / devices
            errors.append(float(histogram @ decoded) / reporting - truth)
    return float(np.sqrt(np.mean(np.square(errors))))


def _point_law(positions: NDArray[np.float64], theta: int, readings: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return P(level | reading) for single readings; shape [K + 1, readings]."""
    columns = [level_law(positions, theta, (int(x), int(x) + 1))[:, 0] for x in readings]
    return np.maximum(np.stack(columns, axis=1), 0.0)

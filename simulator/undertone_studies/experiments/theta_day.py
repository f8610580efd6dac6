"""Experiment: θ by time of day against one θ, in campaigns on EDRP: errors, standard errors at night, coverage."""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.reach import REACH
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulated import Compared
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "θ by time of day against one θ on EDRP"
PARAGRAPH = (
    "The study runs each seed twice, with the same households, threshold rounds and random numbers. The first run has "
    "up to eight blocks of the day, each with its own θ. The second run has one θ for the whole day (`--blocks 1`). "
    "The error is the difference between the published truncated mean of a half-hour and the mean of the readings. So "
    "it includes the bias of truncation.\n\nThe table compares the two runs by their measured errors, and by their "
    "expected errors. An expected error is computed from the variance of the noise, and not from the noise that "
    "devices happened to draw. So the ratio of the expected errors depends less on chance than the ratio of the "
    "measured errors."
)
SEEDS = 20
# Seven days contain each kind of day; the rounds contain a Sunday, a Monday and a Tuesday.
DAYS = 7
FLEETS = (5_000, 100_000)
EPSILONS = ("1", "4")
MOST = 8
FILE = "edrp_scotland_622x4416_halfhour_wh.npz"
# Slots of the day from 01:00 to 05:00.
NIGHT = slice(2, 10)


@dataclass(frozen=True)
class Arm:
    """Result of one run.

    By slot of the day [slots of a day]: mean squares of the error, of the expected error, and of the standard error.
    Then the shares of the intervals that contain the truncated and the raw mean, the θ of the blocks, and the θ of each
    slot of the day (``spread``).
    """

    error: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    held: float
    held_raw: float
    thetas: tuple[int, ...]
    spread: tuple[int, ...]


Task = tuple[Path, int, str, int, int, int]


def run(options: StudyOptions) -> Outcome:
    """Simulate each size of fleet at each ε; every seed runs with one θ and with blocks. ``--repeats``: seeds."""
    if options.data is None:
        raise Invalid("this experiment needs the real data sets: name their folder with --data")
    fleets, epsilons = (FLEETS[:1], EPSILONS[:1]) if options.quick else (FLEETS, EPSILONS)
    seeds, days = (1, 1) if options.quick else (options.repeats or SEEDS, DAYS)
    cells = [(devices, epsilon) for devices in fleets for epsilon in epsilons]
    file = options.data / FILE
    tasks: list[Task] = [
        (file, devices, epsilon, 1000 * options.seed + seed, days, most)
        for devices, epsilon in cells
        for seed in range(seeds)
        for most in (1, MOST)
    ]
    arms = _played(tasks, 1 if options.quick else options.workers)
    rows, panels = [], []
    for number, (devices, epsilon) in enumerate(cells):
        of_source = arms[2 * seeds * number : 2 * seeds * (number + 1)]
        plain, blocks = of_source[::2], of_source[1::2]
        rows.append(_row(devices, epsilon, plain, blocks))
        panels.append(_panel(devices, epsilon, plain, blocks))
    return Outcome(
        f"{TITLE}, {many(seeds, 'seed')} × {many(days, 'day')}",
        (
            *("devices", "ε", "MSE / one θ's", "± s.e.", "expected MSE / one θ's", "± s.e. of expected"),
            *("night's s.e. / one θ's", "held", "held, one θ", "held, raw", "held, raw, one θ"),
            *("blocks", "median θ", "median one θ"),
        ),
        rows,
        (
            "MSE is the mean square error of the truncated mean of a half-hour, compared with the mean of the "
            "readings. The expected MSE is the stated variance plus the square of what truncation removed. Each "
            "column whose name ends in `/ one θ's` has a ratio: the figure of the runs with blocks, divided by the "
            "figure of the runs with one θ. The night is from 01:00 to 05:00.",
            "The columns `held` and `held, one θ` have the share of the 95 % intervals of the truncated mean that "
            "contain the mean of the truncated readings. The columns `held, raw` and `held, raw, one θ` have the "
            "share of the 95 % intervals of the estimate that contain the mean of the readings. The column `blocks` "
            "has the fewest and the most blocks of all seeds. The column `median θ` has the smallest and the largest "
            "θ of a run's blocks, each as the median of the runs.",
            "ε is for one reading (event level): 48 readings a day cost a household 48 ε.",
        ),
        panels,
    )


def _played(tasks: Sequence[Task], workers: int | None) -> list[Arm]:
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        return [_arm(task) for task in tasks]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(_arm, tasks))


def _arm(task: Task) -> Arm:
    file, devices, epsilon, seed, days, most = task
    simulated = simulate(
        SimulateOptions(
            data=file, devices=devices, epsilon=epsilon, seed=seed, slots=48 * days, blocks=most, reach=REACH
        )
    )
    compared = simulated.compared()
    cycle = simulated.plan.cycle
    ranges = simulated.timeline.epochs[-1].campaign.rule.ranges
    covers = np.array([each.covers() for each in compared], dtype=float)
    theta = [theta for first, _, theta in ranges]
    ends = [first for first, _, _ in ranges[1:]] + [cycle]
    spread = np.repeat(theta, np.diff([0, *ends]))
    return Arm(
        _by_slot(compared, cycle, [(each.estimate.truncated_mean - each.truth_raw) ** 2 for each in compared]),
        _by_slot(
            compared, cycle, [_variance(each) + (each.truth_truncated - each.truth_raw) ** 2 for each in compared]
        ),
        _by_slot(compared, cycle, [_variance(each) for each in compared]),
        float(covers[:, 1].mean()),
        float(covers[:, 0].mean()),
        tuple(theta),
        tuple(int(value) for value in spread),
    )


def _variance(each: Compared) -> float:
    return (each.estimate.truncated_se or 0.0) ** 2


def _by_slot(compared: Sequence[Compared], cycle: int, values: Sequence[float]) -> np.ndarray:
    """Average by slot of the cycle."""
    phases = np.array([each.estimate.slot % cycle for each in compared])
    return np.bincount(phases, values, cycle) / np.bincount(phases, minlength=cycle)


def _row(devices: int, epsilon: str, plain: Sequence[Arm], blocks: Sequence[Arm]) -> list[Cell]:
    measured = _ratio([arm.error.mean() for arm in blocks], [arm.error.mean() for arm in plain])
    expected = _ratio([arm.expected.mean() for arm in blocks], [arm.expected.mean() for arm in plain])
    night = _ratio([arm.variance[NIGHT].mean() for arm in blocks], [arm.variance[NIGHT].mean() for arm in plain])[0]
    held = [[float(np.mean([getattr(arm, name) for arm in arms])) for arms in (blocks, plain)]
            for name in ("held", "held_raw")]  # fmt: skip
    numbers = [len(arm.thetas) for arm in blocks]
    low, high = (int(np.median([end(arm.thetas) for arm in blocks])) for end in (min, max))
    return [
        *(devices, epsilon),
        *(*measured, *expected, float(np.sqrt(night)), *held[0], *held[1]),
        *(f"{min(numbers)} to {max(numbers)}", f"{low} to {high}"),
        int(np.median([arm.thetas[0] for arm in plain])),
    ]


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return the ratio of two means over the same seeds, and its standard error."""
    top, bottom = np.array(above), np.array(below)
    ratio = top.mean() / bottom.mean()
    return float(ratio), float(np.std(top - ratio * bottom) / (bottom.mean() * np.sqrt(len(top))))


def _panel(devices: int, epsilon: str, plain: Sequence[Arm], blocks: Sequence[Arm]) -> Panel:
    hours = [slot / 2 for slot in range(48)]
    curves = {
        name: (hours, [float(value) for value in np.sqrt(np.mean([arm.variance for arm in arms], axis=0))])
        for name, arms in (("one θ", plain), ("blocks of the day", blocks))
    }
    return Panel(
        f"{devices:,} devices, ε = {epsilon}", "hour of the day", "standard error, Wh", curves, logarithmic=False,
        baseline="one θ", better="lower",
    )  # fmt: skip

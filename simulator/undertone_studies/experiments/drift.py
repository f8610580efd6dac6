"""Experiment: do the intervals of the raw mean contain it when readings change after the threshold was chosen?"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from undertone_shared.errors import Invalid
from undertone_studies.cgm_populations import london
from undertone_studies.coverage import ROUNDS, Integers, raw
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.theta_populations import in_time_order

TITLE = "Intervals of the mean when readings move"
PARAGRAPH = (
    "In this study the server chooses θ after three threshold rounds. In most cases, the readings then change. A model "
    "estimates what truncation removes. From the change of the truncated means, the model finds the factor by which "
    "the readings have changed. The model allows for two explanations: all readings are larger or smaller, or more or "
    "fewer devices are active. The estimate averages over both explanations, and its standard error allows for "
    "both.\n\nThe interval of the mean of the readings becomes wider if the readings become much larger. In all cases "
    "but one, this interval contains the mean in about 95 % of slots, or in more. In the exception, θ is chosen at ε = "
    "1 in London's weeks of lowest readings, and kept for the weeks of highest readings. There the interval holds in "
    "79 % of slots."
)

EPSILONS = ("1", "4")
BOUND = 10_000
CYCLE = 48
# London's readings in units of 10 Wh.
LONDON_UNITS, LONDON_BOUND = 100.0, 20_000


def run(options: StudyOptions) -> Outcome:
    """Measure the coverage of the raw mean by case. Raises Invalid without the data."""
    if options.data is None:
        raise Invalid("drift needs EDRP and London: give --data the folder of the real data sets")
    days, seeds = (2, 1) if options.quick else (14, options.repeats or 3)
    rows: list[tuple[Cell, ...]] = []
    for name, readings, bound, cycle, cycles in _cases(options.data, days):
        for epsilon in EPSILONS:
            held, least, width = raw(readings, epsilon, bound, cycle, cycles, seeds)
            rows.append((name, epsilon, round(held, 3), round(least, 3), round(width, 2)))
    notes = [
        "The column `held` has the share of the 95 % intervals that contain the mean of the readings. The column "
        "`least` has the same share for the half-hour of the day at which it is lowest (in the cases `London`: for "
        "the day of the week). The column `width` has the median of a ratio: the width of these intervals, divided by "
        "the width of the interval of the truncated mean."
    ]
    return Outcome(TITLE, ("case", "epsilon", "held", "least", "width"), rows, notes)


def _cases(data: Path, days: int) -> Iterator[tuple[str, Integers, int, int, int]]:
    """Yield (name, readings [devices, slots], bound, cycle, cycles of the report phase)."""
    first = ROUNDS * CYCLE
    meters = in_time_order(data).T[:, : first + days * CYCLE]
    yield "EDRP as it is", meters, BOUND, CYCLE, days
    for factor in (2.0, 0.4):
        moved = meters.copy()
        moved[:, first:] = np.minimum(np.rint(moved[:, first:] * factor), BOUND)
        yield f"EDRP, readings × {factor:g}", moved, BOUND, CYCLE, days
    large = np.argsort(meters[:, :first].mean(axis=1))[len(meters) // 2 :]
    replaced = meters.copy()
    leavers = np.arange(0, len(meters), 2)
    replaced[leavers, first:] = meters[np.random.default_rng(1).choice(large, len(leavers)), first:]
    yield "EDRP, every other household replaced by one of the larger half", replaced, BOUND, CYCLE, days
    streams = london(data)
    daily = np.rint(streams.windows[0] * streams.range * LONDON_UNITS).astype(np.int64)
    month = np.convolve(daily.mean(axis=0), np.ones(28) / 28, mode="valid")
    summer, winter = int(np.argmin(month)), int(np.argmax(month))
    seasons = np.concatenate([daily[:, summer : summer + 21], daily[:, winter : winter + 28]], axis=1)
    # Each household is used five times, because 131 households are too few to choose a threshold.
    yield "London, θ of the lowest weeks in the highest", np.tile(seasons, (5, 1)), LONDON_BOUND, 7, 4

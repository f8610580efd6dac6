"""Experiment: the filter's gain on published series, on real data and on populations, for each way of collecting."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from undertone_aggregator.base.plural import many
from undertone_simulator.fast.parallel import Tick, workers
from undertone_studies.filtering import (
    DAYS,
    FLEETS,
    Case,
    Draw,
    Result,
    TrueSeries,
    Way,
    case,
    daily,
    draw,
    edrp,
    event,
    stream,
    summary,
    synthetic,
    turns,
)
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "The filter: error and coverage of filtered series"
PARAGRAPH = (
    "[The page on the filter](../filter.md) explains the model. Each row of the table (a *cell*) compares two filtered "
    "series with the raw series: `smoothed` uses all slots, and `causal` uses for each slot only this slot and earlier "
    "ones, with a model that is fitted again as data arrive. The table has the error of each series, divided by that "
    "of the raw series, and how often their 95 % intervals contain the mean of the truncated readings. If a fleet is "
    "larger than the data set, the mean of the data set counts as the true mean; it changes more from slot to slot "
    "than that of a real fleet would."
)

WAYS: dict[str, Way] = {
    "event ε = 1": event("1"),
    "turns ε = 1": turns("1"),
    "turns ε = 2": turns("2"),
    "turns ε = 4": turns("4"),
    "stream ε = 1": stream("1"),
}
# The noise is drawn `_AT_A_TIME` times, and then as often again, until the coverages have standard errors of at most
# `_KNOWN` or there are REPEATS draws.
_AT_A_TIME, REPEATS, _KNOWN = 6, 18, 0.01
# Fleet sizes that `docs/filter.md` mentions.
LARGER = {"edrp": (100_000,)}
QUICK_DAYS = 7
POPULATIONS = ("households", "phones", "time-in-state", "heavy-tail")


def run(options: StudyOptions) -> Outcome:
    """Run the real data sets that ``--data`` has, then the populations; ``--only`` selects by name."""
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {"smoothed": {}, "causal": {}}
    fleets = FLEETS[1:2] if options.quick else FLEETS
    cells: dict[tuple[str, str, int], Case] = {}
    for name, make in _sources(options).items():
        truth = make()
        for way, publish in WAYS.items():
            for devices in (*fleets, *(() if options.quick else LARGER.get(name, ()))):
                cells[name, way, devices] = case(truth, publish, devices)
    draws = _draws(list(cells.values()), options)
    for (key, cell), of_cell in zip(cells.items(), draws, strict=True):
        result = summary(cell, of_cell)
        rows.append((*key, *_cells(result), len(of_cell)))
        for which, panel in curves.items():
            x, y = panel.setdefault(key[1], ([], []))
            x.append(result.raw)
            y.append(getattr(result, which))
    columns = ["data", "way", "devices", "raw, %", "smoothed / raw", "held", "±", "causal / raw",
               "held, causal", "±, causal", "after half, %", "seconds", "draws"]  # fmt: skip
    notes = [
        "The column `raw, %` has the root mean square error of a slot in the raw series, in per cent of the mean. The "
        "columns with `/ raw` have the error of a filtered series, divided by the error of the raw series in the same "
        "slots. (The causal series counts from the third cycle on.) The columns `held` have the share of 95 % "
        "intervals that contain the truncated mean. For each cell, the study draws the noise several times. The share "
        "is the mean over all draws, and the columns `±` have the standard error of this mean. The study makes "
        f"{_AT_A_TIME} draws at a time, until both columns `±` are {_KNOWN} or less "
        f"({many(_most_draws(options), 'draw')} at most).",
        "The column `after half, %` has the error of the causal filter in per cent of the mean, without the first 14 "
        "cycles (in a series of fewer than 28 cycles: without the first half). The column `seconds` has the time of "
        "one fit with smoothing, on one thread.",
        "Where the column `way` says `event`, ε protects each single reading. Where it says `turns`, ε protects all "
        "readings of any 48 slots (24 hours if slots are half-hours). In turns, one device in 49 reports in each "
        "slot, and the noise includes the error that comes from the choice of these devices. In a stream, (ε, 1e-5) "
        "is for all readings of a cycle together. The noise is that of streams in which steps of more than 1/20 of "
        "the range are clipped; the study does not simulate the clipping.",
    ]
    panels = [
        Panel(f"{which} error over raw", "raw error of a slot, %", "ratio", panel, logarithmic=False, joined=False)
        for which, panel in curves.items()
    ]
    return Outcome(TITLE, columns, rows, notes, panels)


def _sources(options: StudyOptions) -> dict[str, Callable[[], TrueSeries]]:
    days, fleets = (QUICK_DAYS, FLEETS[1]) if options.quick else (DAYS, FLEETS[-1])
    sources: dict[str, Callable[[], TrueSeries]] = {}
    if options.data is not None:
        data: Path = options.data
        sources |= {"edrp": lambda: edrp(data, days), "london": lambda: daily(data)}
    for name in POPULATIONS:
        sources[name] = lambda name=name: synthetic(name, options.seed, days, fleets)  # type: ignore[misc]
    return {name: make for name, make in sources.items() if not options.only or name in options.only}


def _draws(cells: list[Case], options: StudyOptions) -> list[list[Draw]]:
    """Draw the noise of each cell until its coverages are known accurately enough, or `_most_draws` times."""
    most = _most_draws(options)
    draws: list[list[Draw]] = [[] for _ in cells]
    with workers(options.workers or 1) as hands:
        call = hands.bind(_draw, None)
        for first in range(0, most, _AT_A_TIME):
            seeds = range(options.seed + first, options.seed + min(first + _AT_A_TIME, most))
            open_ones = [i for i, cell in enumerate(cells) if not _known(cell, draws[i])]
            tasks = [(cells[i], seed) for i in open_ones for seed in seeds]
            places = [i for i in open_ones for _ in seeds]
            for i, draw in zip(places, call(tasks, lambda _: None), strict=True):
                draws[i].append(draw)
    return draws


def _most_draws(options: StudyOptions) -> int:
    return 1 if options.quick else options.repeats or REPEATS


def _known(cell: Case, draws: Sequence[Draw]) -> bool:
    if len(draws) < _AT_A_TIME:
        return False
    result = summary(cell, draws)
    return max(result.chance, result.causal_chance) <= _KNOWN


def _draw(world: None, task: tuple[Case, int], tick: Tick) -> Draw:
    return draw(*task)


def _cells(result: Result) -> list[Cell]:
    shown = (
        result.raw,
        result.smoothed,
        result.smoothed_held,
        result.chance,
        result.causal,
        result.causal_held,
        result.causal_chance,
        result.late,
        result.seconds,
    )
    return ["" if math.isnan(number) else round(float(number), 3) for number in shown]

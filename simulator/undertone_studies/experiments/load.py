"""Experiment: error of the published mean of the readings, and how often its interval contains that mean."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.reach import REACH
from undertone_aggregator.estimate.estimates import Estimates, Z
from undertone_central.feed import arrays_of
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulated import Compared, Simulated
from undertone_simulator.planning.headline import Headline
from undertone_simulator.planning.options import CAMPAIGNS
from undertone_studies.calibrated import calibrated
from undertone_studies.cgm_populations import EDRP_FILE, LONDON_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "The mean that people read: its error and its interval"
PARAGRAPH = (
    "The study simulates whole campaigns (with threshold rounds and the choice of θ, except for streams), and compares "
    "their published series with the mean of the readings. The *headline* is the filtered series of the estimates, "
    "which include what a model says that truncation or clipping removed. The headline's 95 % interval allows for the "
    "noise and for the error of this model.\n\nFor comparison the table also has the unfiltered estimate of each slot, "
    "and the filtered truncated mean, which leaves out what truncation removed."
)

# Number of days of a campaign, and of campaigns in a cell.
DAYS, REPEATS = 14, 3
# All fleets have the same reach, so that fleets of different sizes can be compared.
WAYS: dict[str, dict[str, Any]] = {
    "event": {"epsilon": "1", "reach": REACH},
    "event, ε = 4": {"epsilon": "4", "reach": REACH},
    "turns": {"epsilon": "1", "reach": REACH, "window": "24h"},
    "stream": {"epsilon": "8", "collect": "stream"},
}
DEVICES = (500, 5_000, 20_000)
POPULATIONS = ("households", "phones", "time-in-state", "heavy-tail", "temperature")
# Populations whose large readings come at certain times. Those in HELD_BACK were not used to develop the model.
TIMED = ("charging", "solar", "retail", "zeros", "star", "bimodal", "heat-wave", "offices")
HELD_BACK = ("night-heating", "holiday", "pareto")
# θ of streams, for populations whose public bound is far above their readings.
STREAM_THETAS = {"edrp": 2_000, "households": 2_000, "phones": 40, "heavy-tail": 1_000, "london": 50_000}
DNS_FILE = "dns_google_1k.npz"
# The most devices for data that are one stream of numbers, dealt to the devices: with 5,000 of them, each device's
# readings would repeat after 71 half-hours.
DEALT = {"dns": 500}
# The cells: population, way of collecting, devices. There is no stream of 20,000 devices, because it would take
# minutes.
CELLS = [
    (name, way, devices)
    for name in ("edrp", "london", "dns", *POPULATIONS)
    for way in WAYS
    for devices in (DEVICES[:2] if way == "stream" else DEVICES)
    if devices <= DEALT.get(name, devices)
] + [
    (name, way, devices)
    for name in (*TIMED, *HELD_BACK)
    for way, devices in (("event", 500), ("event", 5_000), ("turns", 20_000))
]
# Number of slots of a population with readings once a day.
_DAILY_SLOTS = 98
# The day of the London data from which more than nine tenths of the households have readings.
_JOINED = 210
# Length of the pictures: three days of half-hours.
_SHOWN = 144
# For the worst coverage by time of day, the day is divided into parts of this many hours.
_HOURS = 4
HEADLINE, RAW, TRUNCATED = "headline", "each slot by itself", "truncated, filtered"
ORACLE = "true excess, filtered"
# Goals for the shares of intervals that hold: the range for a cell, and the least share in the worst four hours.
BAND, LEAST = (0.93, 0.98), 0.85
# A campaign whose intervals hold less often than this should carry a warning.
WARNED = 0.9
CHANCES = (
    f"{BAND[0]:g} to {BAND[1]:g}",
    f"less than {BAND[0]:g}",
    f"less than {WARNED:g}",
    f"4 h less than {LEAST:g}",
)
_TINY = 1e-12

Array = NDArray[np.float64]


class ShownSeries(NamedTuple):
    """A published series: means and standard errors [slots] beside the mean of the readings.

    ``hour`` [slots]: the hour of the day at which each slot begins.
    """

    mean: Array
    error: Array
    truth: Array
    hour: Array


Published = Mapping[str, ShownSeries]


@dataclass(frozen=True)
class Accuracy:
    """Root mean square error: ``rmse`` in the reading's unit, ``share`` as a share of the mean.

    ``held``: share of 95 % intervals that contain the mean of the readings; ``least``: the same at the worst four hours
    of the day. ``width``: half-width of the intervals, divided by 1.96 times the error, which is the right half-width
    for a normal error. ``chance``: standard error of ``held`` between campaigns, NaN for one campaign.
    """

    rmse: float
    share: float
    held: float
    least: float
    width: float
    chance: float = math.nan


# A campaign to simulate: (population, way of collecting, devices, seed, days).
Task = tuple[str, str, int, int, int]
# The option that selects a population.
Source = Mapping[str, Any]


def run(options: StudyOptions) -> Outcome:
    """Simulate campaigns on each population, real ones if ``--data`` has them; ``--only`` selects by name."""
    with tempfile.TemporaryDirectory() as folder:
        return _run(options, _sources(options, Path(folder)))


def _run(options: StudyOptions, sources: Mapping[str, Source]) -> Outcome:
    days = 2 if options.quick else DAYS
    cells = [cell for name in sources for cell in CELLS if cell[0] == name]
    cells = [cell for cell in cells if cell[1:] == CELLS[0][1:]] if options.quick else cells
    seeds = [range(options.seed, options.seed + _repeats(options)) for cell in cells]
    tasks: list[Task] = [(*cell, seed, days) for cell, some in zip(cells, seeds, strict=True) for seed in some]
    with workers(options.workers or 1) as hands:
        done = iter(list(hands.bind(_published, sources)(tasks, lambda _: None)))
        plans = list(hands.bind(_planned, sources)(cells, lambda _: None))
    rows: list[tuple[Cell, ...]] = []
    panels: list[Panel] = []
    for number, ((name, way, devices), some) in enumerate(zip(cells, seeds, strict=True)):
        every = [next(done) for _ in some]
        warned = sum(bool(warnings) for _, _, warnings in every) / len(every)
        rows += table(name, way, devices, [series for _, series, _ in every], plans[number], warned, number)
        panels.append(picture(f"{name}, {way}, {devices} devices", *every[0][:2]))
    columns = ["data", "way", "devices", "series", "rmse", "rmse, %", "held", "±", "4 h", "width"]
    columns += ["planned / rmse", "warned", "slots", *(f"chance of {what}" for what in CHANCES)]
    notes = [
        "The columns `rmse` and `rmse, %` have the root mean square difference between the published series and the "
        "mean of the readings, in the unit of the readings and in per cent of their mean. The column `held` is the "
        "share of 95 % intervals that contain the mean of the readings, and ± is the standard error of `held`, from "
        "the differences between campaigns. The column `width` is the mean half-width of the intervals, divided by "
        "1.96 `rmse`. A `width` of 1 is right for normal errors.",
        f"The series cover {days} days, or {_DAILY_SLOTS} days if the readings are daily (`london`). The threshold "
        f"rounds come before, if there are any. A row is from {many(_repeats(options), 'campaign')}, each with "
        "noise of its "
        "own. If a real data set has fewer households than the fleet has devices, the study uses the households "
        "several times, each time with readings that begin a week later. `dns` is a single stream of numbers that are "
        f"dealt to the devices, so it has cells of {DEALT['dns']} devices only: with more devices, the readings of "
        "each device would soon repeat.",
        "Where the column `way` says `event`, ε = 1 (or 4) protects each single reading. Where it says `turns`, ε = 1 "
        "protects all readings of any 24 hours, or of any 7 days if the readings are daily (`london`). Where it says "
        "`stream`, (8, 1e-5) protects all readings together. In a stream, the estimate adds an assumed amount for "
        "what clipping removes; if the noise is large, the estimate adds less of this amount, or nothing. The "
        "interval of the estimate allows for two errors of the assumed amount: an error as large as the amount "
        "itself, which is the same in all slots, and an error twice as large, which differs by time of day.",
        "The column `4 h` is the share of intervals that hold in the worst of the day's six parts of four hours. For "
        f"the series `{ORACLE}`, the filter gets the true excess of each slot (what truncation removes from the "
        f"mean). The populations {', '.join(HELD_BACK)} were not used for choosing the model.",
        "The column `planned / rmse` is the error that `undertone plan` predicts for the headline, from other "
        "simulated campaigns, divided by `rmse`. This column is empty where no plan predicts a whole campaign: for "
        "streams, and for daily readings in turns. Series other than the headline have nothing in this column and in "
        "the columns after it.",
        "The column `warned` is the share of campaigns for which the server shows a warning at the end.",
        "The last five columns show what chance alone does. They are for imagined intervals that have exactly the "
        "right width, with errors that are correlated like those of the row. `slots` is the number of independent "
        "slots that would show the same variation of `held`. The other four columns are the probabilities that the "
        f"campaigns of a row show, by chance, a `held` from {BAND[0]:g} to {BAND[1]:g}, a `held` below {BAND[0]:g}, "
        f"a `held` below {WARNED:g}, and a `4 h` below {LEAST:g}.",
    ]
    return Outcome(TITLE, columns, rows, notes, panels[:3])


def table(
    name: str, way: str, devices: int, every: Sequence[Published], planned: float | None, warned: float, seed: int
) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each published series of a cell's campaigns.

    ``planned``: the error that a plan predicts; ``warned``: the share of campaigns with a warning.
    """
    for series in every[0]:
        of = measure([each[series] for each in every])
        chance = "" if math.isnan(of.chance) else round(of.chance, 3)
        shares = (round(of.held, 3), chance, round(of.least, 3))
        numbers = (round(of.rmse, 2), round(100 * of.share, 2), *shares, round(of.width, 2))
        more: tuple[Cell, ...] = ("",) * (3 + len(CHANCES))
        if series == HEADLINE:
            ratio = "" if planned is None else round(planned / of.rmse, 2)
            more = (ratio, round(warned, 2), *by_chance([each[series] for each in every], seed))
        yield (name, way, devices, series, *numbers, *more)


def by_chance(every: Sequence[ShownSeries], seed: int) -> tuple[Cell, ...]:
    """Return what the campaigns would show by chance if their intervals had the right width; see `calibrated`.

    These are the number of independent slots, and the probabilities that ``held`` is within `BAND`, that ``held`` is
    below `BAND`, that it is below `WARNED`, and that ``least`` is below `LEAST`.
    """
    errors = [(series.mean - series.truth) / np.maximum(series.error, _TINY) for series in every]
    drawn = calibrated(errors, every[0].hour // _HOURS, seed, len(errors))
    low, high = BAND
    within = (drawn.held >= low) & (drawn.held <= high)
    shares = (within, drawn.held < low, drawn.held < WARNED, drawn.least < LEAST)
    return (round(drawn.independent), *(round(float(np.mean(share)), 3) for share in shares))


def _planned(sources: Mapping[str, Source], cell: tuple[str, str, int], tick: Tick) -> float | None:
    """Return the error that `undertone plan` predicts for a cell's headline, in the unit.

    None for streams, because a plan predicts no stream over a whole campaign, and for daily readings in turns.
    """
    name, way, devices = cell
    fields = way_of(name, way) | dict(sources[name])
    if "collect" in fields or (name == "london" and "window" in fields):
        return None
    window = fields.pop("window", None)
    (error,) = Headline(SimulateOptions(devices=devices, **fields), CAMPAIGNS).errors(days=DAYS, window=window)
    return error


def way_of(name: str, way: str) -> dict[str, Any]:
    """Return the options of a way of collecting; homes with daily readings take turns within a week."""
    return WAYS[way] | ({"window": "7d"} if name == "london" and way == "turns" else {})


def published(campaign: Simulated) -> Published:
    """Return the published series of a campaign by name."""
    raw, filtered = campaign.compared(), campaign.compared(filtered=True)
    truncated = [(of.estimate.truncated_mean, of.estimate.truncated_se or 0.0) for of in filtered]
    shown = {HEADLINE: _series(filtered), RAW: _series(raw), TRUNCATED: _series(filtered, truncated)}
    return shown | {ORACLE: _series(_with_true_excess(campaign, raw))}


def _with_true_excess(campaign: Simulated, raw: Sequence[Compared]) -> list[Compared]:
    """Return the filtered series that results if the true excess is added to the truncated means of the slots.

    The excess is what truncation removes from the mean; nobody knows the true one.
    """
    table, known = (
        Estimates.of([of.estimate for of in raw]),
        np.array([of.truth_raw - of.truth_truncated for of in raw]),
    )
    oracle = campaign.filter.smoothed(table.with_load(table.truncated_mean, table.truncated_se, known, 0.0 * known))
    return [replace(of, estimate=estimate) for of, estimate in zip(raw, oracle, strict=True)]


def measure(every: Sequence[ShownSeries]) -> Accuracy:
    """Return error, coverage and width over some campaigns together."""
    away = np.concatenate([series.mean - series.truth for series in every])
    half = Z * np.concatenate([series.error for series in every])
    rmse = float(np.sqrt(np.mean(np.square(away))))
    level = float(np.mean(np.concatenate([series.truth for series in every])))
    of_each = [float(np.mean(np.abs(series.mean - series.truth) <= Z * series.error)) for series in every]
    chance = float(np.std(of_each, ddof=1)) / math.sqrt(len(every)) if len(every) > 1 else math.nan
    inside = np.abs(away) <= half
    parts = np.concatenate([series.hour for series in every]) // _HOURS
    least = min(float(inside[parts == part].mean()) for part in np.unique(parts))
    return Accuracy(rmse, rmse / level, float(inside.mean()), least, float(np.mean(half)) / (Z * rmse), chance)


def picture(title: str, unit: str, series: Published) -> Panel:
    """Return a panel of the published mean (`HEADLINE`), the truncated mean and the truth, for the first slots."""
    shown = slice(0, _SHOWN)
    days = list(range(len(series[HEADLINE].truth)))[shown]
    curves = {
        "mean of the readings": (days, series[HEADLINE].truth[shown].tolist()),
        HEADLINE: (days, series[HEADLINE].mean[shown].tolist()),
        TRUNCATED: (days, series[TRUNCATED].mean[shown].tolist()),
    }
    return Panel(title, "slot", f"mean, {unit}", curves, logarithmic=False, baseline="mean of the readings")


def _repeats(options: StudyOptions) -> int:
    """Return how many campaigns each cell of a population has."""
    return 1 if options.quick else options.repeats or REPEATS


def _published(sources: Mapping[str, Source], task: Task, tick: Tick) -> tuple[str, Published, list[str]]:
    """Return (unit, published series, warnings) of one campaign."""
    name, way, devices, seed, days = task
    campaign = simulate(campaign_options(sources[name], name, way, devices, seed, days))
    return campaign.plan.unit, published(campaign), campaign.warnings()


def campaign_options(source: Source, name: str, way: str, devices: int, seed: int, days: int) -> SimulateOptions:
    """Return the options of one campaign of the study."""
    fields = way_of(name, way) | dict(source)
    if way == "stream" and name in STREAM_THETAS:
        fields |= {"theta": STREAM_THETAS[name]}
    slots = _DAILY_SLOTS if name == "london" else (24 if name == "phones" else 48) * days
    return SimulateOptions(devices=devices, slots=slots, seed=seed, **fields)


def _sources(options: StudyOptions, folder: Path) -> dict[str, Source]:
    """Return the populations of the study. ``folder``: where the readings of London are written."""
    sources: dict[str, Source] = {}
    if options.data is not None:
        sources["edrp"] = {"data": options.data / EDRP_FILE}
        sources["london"] = {"data": _london(options.data / LONDON_FILE, folder / LONDON_FILE)}
        sources["dns"] = {"data": options.data / DNS_FILE}
    sources |= {name: {"population": name} for name in (*POPULATIONS, *TIMED, *HELD_BACK)}
    return {name: source for name, source in sources.items() if not options.only or name in options.only}


def _london(file: Path, path: Path) -> Path:
    """Write the daily readings from the day on which nearly all households have joined the trial; return ``path``."""
    arrays = arrays_of(file)
    np.savez(path, kwh=arrays["kwh"][:, _JOINED:], t0=arrays["days"][_JOINED], step_min=1440)
    return path


def _series(compared: Sequence[Compared], numbers: Sequence[tuple[float, float]] | None = None) -> ShownSeries:
    numbers = numbers or [(of.estimate.estimate, of.estimate.standard_error or 0.0) for of in compared]
    mean, error = np.array(numbers).T
    hour = np.array([of.estimate.start // 3600 % 24 for of in compared])
    return ShownSeries(mean, error, np.array([of.truth_raw for of in compared]), hour)

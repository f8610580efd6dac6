"""Experiment: error of the published mean of the readings, and how often its interval contains that mean."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.estimates import Z
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulated import Compared, Simulated
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import Options

TITLE = "The mean that people read: its error and its interval"
PARAGRAPH = (
    "Whole campaigns, threshold rounds and θ included, against the mean of the readings themselves. The headline is the"
    " filtered series: it adds what truncation removed, and its 95 % interval holds the errors of noise and of that"
    " model. Beside it each slot by itself, and the filtered mean of readings truncated at θ, which is no answer to"
    " what people ask: truncation takes from it what no interval of its own counts."
)

CYCLE, DAYS, REPEATS = 48, 14, 3
WAYS: dict[str, dict[str, Any]] = {"event": {"epsilon": "1"}, "turns": {"epsilon": "1", "window": "24h"}}
# Ways of collecting and numbers of devices that are simulated for each population.
CELLS = (("event", 500), ("event", 5_000), ("turns", 20_000))
POPULATIONS = ("households", "phones", "time-in-state", "heavy-tail")
HEADLINE, RAW, TRUNCATED = "headline", "each slot by itself", "truncated, filtered"

Array = NDArray[np.float64]


class ShownSeries(NamedTuple):
    """A published series: means and standard errors [slots] beside the mean of the readings."""

    mean: Array
    error: Array
    truth: Array


Published = Mapping[str, ShownSeries]


@dataclass(frozen=True)
class Accuracy:
    """Root mean square error: ``rmse`` in the reading's unit, ``share`` as a share of the mean.

    ``held``: share of 95 % intervals that contain the mean of the readings. ``width``: half-width of the intervals,
    divided by 1.96 times the error, which would be the half-width if the error were known exactly.
    """

    rmse: float
    share: float
    held: float
    width: float


def run(options: Options) -> Outcome:
    """Simulate campaigns on EDRP, if ``--data`` has it, and on synthetic populations; ``--only`` selects by name."""
    days, repeats = (2, 1) if options.quick else (DAYS, options.repeats or REPEATS)
    rows: list[tuple[Cell, ...]] = []
    panels: list[Panel] = []
    for name, source in _sources(options):
        for way, devices in CELLS[:1] if options.quick else CELLS:
            campaigns = [
                simulate(SimulateOptions(devices=devices, slots=CYCLE * days, seed=seed, **source, **WAYS[way]))
                for seed in range(options.seed, options.seed + repeats)
            ]
            every = [published(campaign) for campaign in campaigns]
            rows += table(name, way, devices, every)
            panels.append(picture(f"{name}, {way}, {devices} devices", campaigns[0].plan.unit, every[0]))
    columns = ["data", "way", "devices", "series", "rmse", "rmse, %", "held", "width"]
    notes = [
        "rmse: root mean square difference from the mean of the readings, in their unit and in per cent of their mean;"
        " held: share of 95 % intervals that hold the mean of the readings; width: their half-width over 1.96 rmse,"
        f" which is 1 where intervals are as wide as errors are. {days} days of half-hours after the threshold rounds,"
        f" {repeats} campaigns a cell, each with noise of its own.",
        "event: ε = 1 for each reading. turns: ε = 1 for all readings of any 24 hours.",
    ]
    return Outcome(TITLE, columns, rows, notes, panels[:3])


def table(name: str, way: str, devices: int, every: Sequence[Published]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each published series of a cell's campaigns."""
    for series in every[0]:
        of = measure([each[series] for each in every])
        numbers = (round(of.rmse, 2), round(100 * of.share, 2), round(of.held, 3), round(of.width, 2))
        yield (name, way, devices, series, *numbers)


def published(campaign: Simulated) -> Published:
    """Return the published series of a campaign by name."""
    raw, filtered = campaign.compared(), campaign.compared(filtered=True)
    truncated = [(of.estimate.truncated_mean, of.estimate.truncated_se or 0.0) for of in filtered]
    return {HEADLINE: _series(filtered), RAW: _series(raw), TRUNCATED: _series(filtered, truncated)}


def measure(every: Sequence[ShownSeries]) -> Accuracy:
    """Return error, coverage and width over some campaigns together."""
    away = np.concatenate([series.mean - series.truth for series in every])
    half = Z * np.concatenate([series.error for series in every])
    rmse = float(np.sqrt(np.mean(np.square(away))))
    level = float(np.mean(np.concatenate([series.truth for series in every])))
    return Accuracy(rmse, rmse / level, float(np.mean(np.abs(away) <= half)), float(np.mean(half)) / (Z * rmse))


def picture(title: str, unit: str, series: Published) -> Panel:
    """Return a panel of the published mean (`HEADLINE`), the truncated mean and the truth, for the first three days."""
    shown = slice(0, 3 * CYCLE)
    days = (np.arange(len(series[HEADLINE].truth)) / CYCLE)[shown].tolist()
    curves = {
        "mean of the readings": (days, series[HEADLINE].truth[shown].tolist()),
        HEADLINE: (days, series[HEADLINE].mean[shown].tolist()),
        TRUNCATED: (days, series[TRUNCATED].mean[shown].tolist()),
    }
    return Panel(title, "day", f"mean, {unit}", curves, logarithmic=False, baseline="mean of the readings")


def _sources(options: Options) -> list[tuple[str, Mapping[str, Any]]]:
    sources: list[tuple[str, Mapping[str, Any]]] = []
    if options.data is not None:
        sources.append(("edrp", {"data": options.data / EDRP_FILE}))
    sources += [(name, {"population": name}) for name in POPULATIONS]
    return [(name, source) for name, source in sources if not options.only or name in options.only]


def _series(compared: Sequence[Compared], numbers: Sequence[tuple[float, float]] | None = None) -> ShownSeries:
    numbers = numbers or [(of.estimate.estimate, of.estimate.standard_error or 0.0) for of in compared]
    mean, error = np.array(numbers).T
    return ShownSeries(mean, error, np.array([of.truth_raw for of in compared]))

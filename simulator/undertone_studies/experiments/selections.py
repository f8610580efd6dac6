"""Experiment: how often the interval of a selection, such as yesterday evening, contains the mean of its readings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.design.reach import REACH
from undertone_aggregator.estimate.estimates import Z
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.fast.simulate import simulate_readings
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.readings.chosen import ChosenReadings, open_source
from undertone_simulator.readings.readings import Readings
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Means of selections: their intervals"
PARAGRAPH = (
    "`query --between` and the server's page give the mean over a selection of slots, such as yesterday evening, the "
    "evenings of a week, a night, a day or a week. The interval of this mean allows for the noise of the reports, and "
    "for the error of the model that estimates what truncation or clipping removed. One part of the model's error is "
    "the same in all slots, one depends on the time of day, one is shared by the slots of about a day, and one is "
    "different in every slot. Each campaign of the study has a fleet of its own: the same households in a random "
    "order, with readings that begin on a random day.\n\nThe part of the error that depends on the time of day is the "
    "same every day. Outside of streams, this part is larger than the model expects at some hours (`an early morning`, "
    "when readings rise), so fewer than 95 % of the intervals hold. At other hours this part is smaller (`an "
    "evening`). All campaigns have the same households, so more campaigns do not change which hours these are. The "
    "rows `any four hours` are for all parts of the day together.\n\nThe interval also allows for a heavier tail than "
    "the fitted one, as long as the reports do not rule it out."
)

CYCLE, DAYS, REPEATS = 48, 14, 40
# All fleets have the same reach, so that fleets of different sizes can be compared.
WAYS: dict[str, dict[str, Any]] = {
    "events": {"epsilon": "1", "reach": REACH},
    "turns": {"epsilon": "1", "reach": REACH, "window": "24h"},
    "streams": {"epsilon": "8", "collect": "stream", "theta": 1_000},
}
CELLS = (("events", 500), ("events", 5_000), ("turns", 5_000), ("streams", 1_000))
EVENING, NIGHT, MORNING, WHOLE = range(36, 46), range(2, 10), range(8, 16), range(CYCLE)
FOUR_HOURS = [range(first, first + 8) for first in range(0, CYCLE, 8)]
# Selection -> (parts of the day as ranges of half-hours, number of days). Each part is a selection of its own.
SELECTIONS = {
    "any four hours": (FOUR_HOURS, 1),
    "an early morning": ([MORNING], 1),
    "an evening": ([EVENING], 1),
    "a night": ([NIGHT], 1),
    "a day": ([WHOLE], 1),
    "a week's evenings": ([EVENING], 7),
    "a week's nights": ([NIGHT], 7),
    "a week": ([WHOLE], 7),
}


class MeanError(NamedTuple):
    """The error of a selection's estimated mean of the readings, and its stated standard error, in the readings' unit.

    ``noise`` and ``noise_se``: the same for the mean of the truncated (clipped) readings.
    """

    away: float
    standard_error: float
    noise: float
    noise_se: float


# Errors of a campaign's selections, by the selection's name.
Errors = dict[str, list[MeanError]]
# A campaign to simulate: (way of collecting, devices, seed, days).
Task = tuple[str, int, int, int]


def run(options: StudyOptions) -> Outcome:
    """Simulate campaigns on EDRP and compare each selection's mean with the truth. Raises Invalid without the data."""
    if options.data is None:
        raise Invalid("selections needs EDRP: give --data the folder of the real data sets")
    days, repeats = (8, 1) if options.quick else (DAYS, options.repeats or REPEATS)
    cells = CELLS[:1] if options.quick else CELLS
    seeds = range(options.seed, options.seed + repeats)
    tasks: list[Task] = [(*cell, seed, days) for cell in cells for seed in seeds]
    with workers(options.workers or 1) as pool:
        done = iter(list(pool.bind(_errors, options.data / EDRP_FILE)(tasks, lambda _: None)))
    rows: list[tuple[Cell, ...]] = []
    for way, devices in cells:
        campaigns = [next(done) for _ in seeds]
        for name in SELECTIONS:
            some = [errors[name] for errors in campaigns if errors[name]]
            if some:
                rows.append((way, devices, name, *measure(some)))
    columns = ["way", "devices", "selection", "intervals", "rmse", "held", "±", "width", "noise", "± "]
    notes = [
        "The column `rmse` is the root mean square difference between the published means and the means of the "
        "readings, in Wh. The column `held` is the share of 95 % intervals that contain the mean of the readings. The "
        "column `noise` is the share of the truncated mean's 95 % intervals that contain the mean of the truncated "
        "readings (in streams: clipped instead of truncated). Each `±` is the standard error of the share before it. "
        "It is computed from how much the campaigns differ, because all selections of one campaign share the error of "
        "its threshold rounds. The column `width` is the mean half-width of the intervals, divided by 1.96 `rmse`.",
        f"Each row is from {many(repeats, 'campaign')}. In each campaign, the devices report every half-hour or in "
        "turns for "
        f"{days} days. The threshold rounds come before, if there are any. The study uses whole days only. The "
        "selections that one row takes from a campaign do not overlap in time.",
        "Where the column `way` says `events`, ε = 1 protects each single reading. Where it says `turns`, ε = 1 "
        "protects all readings of any 24 hours. Where it says `streams`, (8, 1e-5) protects all readings together.",
    ]
    places = [float(place) for place in range(len(SELECTIONS))]
    panels = [
        Panel(title, "selection", "share of intervals", _curves(rows, column, places), logarithmic=False, joined=False)
        for title, column in (("Intervals that hold", 5), ("Intervals of the truncated mean that hold", 8))
    ]
    return Outcome(TITLE, columns, rows, notes, panels)


def _curves(
    rows: Sequence[tuple[Cell, ...]], column: int, places: list[float]
) -> dict[str, tuple[list[float], list[float]]]:
    """Return a curve for each way of collecting and fleet, with the values of one column."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        curves.setdefault(f"{row[0]}, {row[1]} devices", (places, []))[1].append(float(row[column]))
    return curves


def _errors(file: Path, task: Task, tick: Tick) -> Errors:
    """Simulate a campaign and return the errors of its selections."""
    way, devices, seed, days = task
    options = SimulateOptions(devices=devices, slots=CYCLE * days, seed=seed, data=file, **WAYS[way])
    campaign = simulate_readings(options, fleet_of(open_source(options, devices, seed), seed))
    return {
        name: [error for hours in parts for error in compared(campaign, hours, span)]
        for name, (parts, span) in SELECTIONS.items()
    }


def fleet_of(chosen: ChosenReadings, seed: int) -> ChosenReadings:
    """Return a file's readings from a random day on, with its households in random order.

    After the last day of the file, the readings go on with the first.
    """
    readings = chosen.source
    assert isinstance(readings, Readings)
    generator = np.random.default_rng(seed)
    day = int(generator.integers(readings.slots // readings.per_day))
    order = generator.permutation(readings.households)
    first = datetime.fromisoformat(readings.start) + timedelta(days=day)
    columns = (np.arange(readings.slots) + day * readings.per_day) % readings.slots
    values, present = readings.values[order][:, columns], readings.present[order][:, columns]
    return chosen._replace(source=replace(readings, values=values, present=present, start=first.isoformat()))


def compared(campaign: Simulated, hours: range, days: int) -> Iterator[MeanError]:
    """Yield the error of each selection of these half-hours on ``days`` days, one after the other."""
    estimator = estimator_of(campaign.timeline, {})
    reports = [epoch.campaign for epoch in campaign.timeline.epochs if epoch.campaign.theta is not None]
    first = -(-min(each.first_slot for each in reports) // CYCLE)
    last = (max(key.slot for key in campaign.partial) + 1) // CYCLE
    for day in range(first, last - days + 1, days):
        slots = {CYCLE * each + half_hour for each in range(day, day + days) for half_hour in hours}
        # Also included are the reports of earlier slots that the selection's mean needs, as in `Results.selection`.
        low, high = min(slots) - estimator.memory, max(slots)
        partial = Partial({key: counts for key, counts in campaign.partial.items() if low <= key.slot <= high})
        truncated, readings = np.mean([campaign.truth(slot) for slot in sorted(slots)], axis=0).tolist()
        for mean in estimator.means(Histograms.of(partial).sums().everybody(), EVERYBODY, slots):
            noise = mean.truncated_mean - truncated
            yield MeanError(mean.estimate - readings, mean.standard_error, noise, mean.truncated_se or 0.0)


def measure(
    campaigns: Sequence[Sequence[MeanError]],
) -> tuple[int, float, float, float | str, float, float, float | str]:
    """Return seven figures of the errors of each campaign's selections.

    1. the number of intervals;
    2. the root mean square error (rmse);
    3. the share of intervals that contain the truth, and
    4. the standard error of this share;
    5. the intervals' mean half-width, divided by 1.96 rmse;
    6. the share of the truncated mean's intervals that contain its truth, and
    7. the standard error of this share.

    Standard errors are between campaigns, because the selections of one campaign are not independent. With a single
    campaign, they are "".
    """
    every = [each for errors in campaigns for each in errors]
    rmse = float(np.sqrt(np.mean([each.away**2 for each in every])))
    width = float(np.mean([each.standard_error for each in every])) / rmse
    return len(every), round(rmse, 3), *_held(campaigns, 0), round(width, 3), *_held(campaigns, 2)


def _held(campaigns: Sequence[Sequence[MeanError]], column: int) -> tuple[float, float | str]:
    """Return (share of the intervals that contain the truth, its standard error between campaigns or "")."""
    held = [[abs(each[column]) <= Z * each[column + 1] for each in errors] for errors in campaigns]
    shares = [float(np.mean(of_campaign)) for of_campaign in held]
    chance = round(float(np.std(shares, ddof=1)) / len(shares) ** 0.5, 3) if len(shares) > 1 else ""
    return round(float(np.mean(np.concatenate(held))), 3), chance

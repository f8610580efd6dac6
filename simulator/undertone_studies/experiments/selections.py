"""Experiment: how often the interval of a selection, such as yesterday evening, contains the mean of its readings."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.estimate.estimates import RangeEstimate
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulated import Simulated
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Means of selections: their intervals"
PARAGRAPH = (
    "What `query --between` and the page's panel answer: the mean over yesterday evening, a week's evenings, a night, a"
    " day, a week. Its interval holds the noise of the reports, correlated where the noise of slots is, and the error"
    " of what truncation removed: one part of that is the same in all slots, one belongs to the shape of the day, one"
    " to the slot alone. For streams the mean is of clipped readings."
)

_NORMAL_95 = 1.959963984540054
CYCLE, DAYS, REPEATS = 48, 14, 4
WAYS: dict[str, dict[str, Any]] = {
    "events": {"epsilon": "1"},
    "turns": {"epsilon": "1", "window": "24h"},
    "streams": {"epsilon": "4", "collect": "stream", "theta": 1_000},
}
CELLS = (("events", 500), ("events", 5_000), ("turns", 5_000), ("turns", 20_000), ("streams", 5_000))
EVENING, NIGHT, WHOLE = range(36, 46), range(2, 10), range(CYCLE)
# Selection -> (half-hours of the day, number of days).
SELECTIONS = {
    "an evening": (EVENING, 1),
    "a night": (NIGHT, 1),
    "a day": (WHOLE, 1),
    "a week's evenings": (EVENING, 7),
    "a week's nights": (NIGHT, 7),
    "a week": (WHOLE, 7),
}


def run(options: StudyOptions) -> Outcome:
    """Simulate campaigns on EDRP and compare each selection's mean with the truth. Raises Invalid without the data."""
    if options.data is None:
        raise Invalid("selections needs EDRP: give --data the folder of the real data sets")
    days, repeats = (8, 1) if options.quick else (DAYS, options.repeats or REPEATS)
    file = options.data / EDRP_FILE
    rows: list[tuple[Cell, ...]] = []
    for way, devices in CELLS[:1] if options.quick else CELLS:
        found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in SELECTIONS}
        for seed in range(options.seed, options.seed + repeats):
            campaign = simulate(SimulateOptions(devices=devices, slots=CYCLE * days, seed=seed, data=file, **WAYS[way]))
            for name, campaigns in found.items():
                campaigns.append(list(compared(campaign, *SELECTIONS[name])))
        rows += [(way, devices, name, *measure(campaigns)) for name, campaigns in found.items() if any(campaigns)]
    columns = ["way", "devices", "selection", "intervals", "rmse", "held", "width", "held_se"]
    notes = [
        "rmse: root mean square difference from the mean of the readings, Wh; held: share of 95 % intervals that hold"
        " it; width: half-width over 1.96 rmse; held_se: standard error of held between campaigns, since the"
        " selections of one campaign share the error of its threshold rounds.",
        f"{repeats} campaigns a cell, {days} days of half-hours after the threshold rounds; selections of one cell"
        " overlap in kind and not in time.",
        "events: ε = 1 for each reading. turns: ε = 1 for all readings of any 24 hours. streams: ε = 4 for them all.",
    ]
    places = [float(place) for place in range(len(SELECTIONS))]
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        curves.setdefault(f"{row[0]}, {row[1]} devices", (places, []))[1].append(float(row[5]))
    panel = Panel("Intervals that hold", "selection", "share of intervals", curves, logarithmic=False, joined=False)
    return Outcome(TITLE, columns, rows, notes, [panel])


def compared(campaign: Simulated, hours: range, days: int) -> Iterator[tuple[float, float]]:
    """Yield (error, standard error) of each selection of these half-hours on ``days`` days, one after the other."""
    estimator = estimator_of(campaign.timeline, {})
    reports = [epoch.campaign for epoch in campaign.timeline.epochs if epoch.campaign.theta is not None]
    first = -(-min(each.first_slot for each in reports) // CYCLE)
    last = (max(key.slot for key in campaign.partial) + 1) // CYCLE
    for day in range(first, last - days + 1, days):
        slots = {CYCLE * each + half_hour for each in range(day, day + days) for half_hour in hours}
        # As `Results.selection` does: with the cycle before, which shows the level of the readings.
        low, high = min(slots) - estimator.memory, max(slots)
        partial = Partial({key: counts for key, counts in campaign.partial.items() if low <= key.slot <= high})
        for mean in estimator.means(partial, slots, ["all"]):
            yield mean.estimate - truth(campaign, mean, slots), mean.standard_error


def truth(campaign: Simulated, mean: RangeEstimate, slots: set[int]) -> float:
    """Return the mean of the readings over the slots; of the clipped readings where clipping is not modelled."""
    return float(np.mean([campaign.truth(slot)[mean.bias is not None] for slot in sorted(slots)]))


def measure(campaigns: Sequence[Sequence[tuple[float, float]]]) -> tuple[int, float, float, float, float | str]:
    """Return five figures of the (error, standard error) of the selections of each campaign.

    They are the number of intervals, the root mean square error (rmse), the share of intervals that contain the truth,
    the intervals' mean half-width divided by 1.96 rmse, and the standard error of that share between campaigns, ""
    for one campaign. The last uses that the selections of one campaign are not independent.
    """
    away, error = np.array([pair for pairs in campaigns for pair in pairs]).T
    rmse = float(np.sqrt(np.mean(np.square(away))))
    each = [np.mean([abs(off) <= _NORMAL_95 * se for off, se in pairs]) for pairs in campaigns if pairs]
    held = float(np.mean(np.abs(away) <= _NORMAL_95 * error))
    between = round(float(np.std(each, ddof=1)) / len(each) ** 0.5, 3) if len(each) > 1 else ""
    return len(away), round(rmse, 3), round(held, 3), round(float(np.mean(error)) / rmse, 3), between

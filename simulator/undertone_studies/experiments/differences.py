"""Experiment: how often the interval of a difference of two published means contains the true difference."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.difference import Side
from undertone_aggregator.estimate.estimator import Estimator
from undertone_operate.fleet.device_names import device_names
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.fast.simulate import simulate_readings
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.readings.chosen import ChosenReadings, open_source
from undertone_simulator.readings.readings import Readings
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.experiments.selections import CYCLE, EVENING, NIGHT, WAYS, WHOLE, MeanError, fleet_of, measure
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Differences of means: their intervals"
PARAGRAPH = (
    "`query --against` and the server's page say how much two means differ. The two means are those of two groups, of "
    "two times, or of a group and of all devices. The interval of a difference allows for two errors: the noise of the "
    "reports, and the error of the model that estimates what truncation or clipping removed. The part of an error that "
    "both means share cancels in the difference.\n\nEach campaign of the study has a fleet of its own, as in the study "
    "`selections`. The fleet has three groups: the homes that use more than the median, and two halves of the other "
    "homes."
)

# Days of a campaign after its threshold rounds, which are enough for two whole weeks; number of campaigns.
DAYS, REPEATS = 16, 10
CELLS = (("events", 500), ("turns", 5_000), ("streams", 1_000))
LARGE, SMALL, OTHERS = "large", "small", "other small"
WEEK = 7


class Pairing(NamedTuple):
    """The two sides of a difference.

    The first side has the ``hours`` of ``days`` days of ``group``. The other side has the ``against_hours`` of as many
    days of the group ``against``; these days are ``earlier`` days before those of the first side.
    """

    group: str
    hours: range
    days: int
    against: str
    against_hours: range
    earlier: int


PAIRINGS = {
    "a day with the day before": Pairing(EVERYBODY, WHOLE, 1, EVERYBODY, WHOLE, 1),
    "a day with the same day of last week": Pairing(EVERYBODY, WHOLE, 1, EVERYBODY, WHOLE, WEEK),
    "an evening with last week's": Pairing(EVERYBODY, EVENING, 1, EVERYBODY, EVENING, WEEK),
    "a half-hour with last week's": Pairing(EVERYBODY, range(38, 39), 1, EVERYBODY, range(38, 39), WEEK),
    "a week with the last": Pairing(EVERYBODY, WHOLE, WEEK, EVERYBODY, WHOLE, WEEK),
    "an evening with the night before": Pairing(EVERYBODY, EVENING, 1, EVERYBODY, NIGHT, 0),
    "a day of small homes with other small homes": Pairing(SMALL, WHOLE, 1, OTHERS, WHOLE, 0),
    "a day of small homes with large ones": Pairing(SMALL, WHOLE, 1, LARGE, WHOLE, 0),
    "an evening of small homes with large ones": Pairing(SMALL, EVENING, 1, LARGE, EVENING, 0),
    "a day of small homes with all": Pairing(SMALL, WHOLE, 1, EVERYBODY, WHOLE, 0),
    "an evening of large homes with all": Pairing(LARGE, EVENING, 1, EVERYBODY, EVENING, 0),
}


class Collected(NamedTuple):
    """A campaign with its estimator and the reports of each group."""

    campaign: Simulated
    estimator: Estimator
    reports: dict[str, Tables]

    @classmethod
    def of(cls, campaign: Simulated) -> "Collected":
        reports = dict(Histograms.of(campaign.partial).each_group())
        return cls(campaign, estimator_of(campaign.timeline, {}), reports)

    def side(self, group: str, slots: list[int]) -> Side:
        """Return a side of a difference, as `Results.difference` does.

        It includes the reports of the ``estimator.memory`` slots before its first slot.
        """
        low, high = min(slots) - self.estimator.memory, max(slots)
        of = self.reports[group].items()
        some = {origin: (there, (low <= there) & (there <= high), counts) for origin, (there, counts) in of}
        return Side({o: (there[kept], counts[kept]) for o, (there, kept, counts) in some.items()}, group, slots)


# Errors of a campaign's differences, by the pairing's name.
Errors = dict[str, list[MeanError]]
# A campaign to simulate: (way of collecting, devices, seed, days).
Task = tuple[str, int, int, int]


def run(options: StudyOptions) -> Outcome:
    """Simulate campaigns on EDRP and compare differences with the truth. Raises Invalid without the data."""
    if options.data is None:
        raise Invalid("differences needs EDRP: give --data the folder of the real data sets")
    repeats = 1 if options.quick else options.repeats or REPEATS
    cells = CELLS[:1] if options.quick else CELLS
    seeds = range(options.seed, options.seed + repeats)
    tasks: list[Task] = [(*cell, seed, DAYS) for cell in cells for seed in seeds]
    with workers(options.workers or 1) as pool:
        done = iter(list(pool.bind(_errors, options.data / EDRP_FILE)(tasks, lambda _: None)))
    rows: list[tuple[Cell, ...]] = []
    for way, devices in cells:
        campaigns = [next(done) for _ in seeds]
        rows += [(way, devices, name, *measure([errors[name] for errors in campaigns])) for name in PAIRINGS]
    columns = ["way", "devices", "comparison", "intervals", "rmse", "held", "±", "width", "noise", "± "]
    notes = [
        "The column `rmse` is the root mean square error of the estimated differences, in Wh. The column `held` is "
        "the share of 95 % intervals that contain the true difference. The column `noise` is the same share for "
        "differences of truncated means (in streams: of clipped means). Each `±` is the standard error of the share "
        "before it. It is computed from how much the campaigns differ. The column `width` is the mean half-width of "
        "the intervals, divided by 1.96 `rmse`.",
        f"Each row is from {many(repeats, 'campaign')}. A campaign has {DAYS} days of reports. If its way of "
        "collecting has threshold rounds, they come before these days. The ways of collecting are those of the study "
        "`selections`.",
    ]
    places = [float(place) for place in range(len(PAIRINGS))]
    curves = {
        f"{way}, {devices} devices": (places, [float(row[5]) for row in rows if row[:2] == (way, devices)])
        for way, devices in cells
    }
    panel = Panel("Intervals that hold", "comparison", "share of intervals", curves, logarithmic=False, joined=False)
    return Outcome(TITLE, columns, rows, notes, [panel])


def _errors(file: Path, task: Task, tick: Tick) -> Errors:
    """Simulate a campaign and return the errors of its differences."""
    way, devices, seed, days = task
    options = SimulateOptions(devices=devices, slots=CYCLE * days, seed=seed, data=file, **WAYS[way])
    chosen = fleet_of(open_source(options, devices, seed), seed)
    campaign = simulate_readings(options, chosen, groups=groups_of(chosen, devices))
    collected = Collected.of(campaign)
    return {name: list(compared(collected, pairing)) for name, pairing in PAIRINGS.items()}


def groups_of(chosen: ChosenReadings, devices: int) -> dict[str, str]:
    """Return the group of each device: homes above the median mean are large, the others are dealt to two groups."""
    readings = chosen.source
    assert isinstance(readings, Readings)
    measured = np.maximum(readings.present.sum(axis=1), 1)
    usual = np.where(readings.present, readings.values, 0).sum(axis=1) / measured
    large = usual > np.median(usual)
    names = enumerate(device_names("load", devices))
    return {name: LARGE if large[i % readings.households] else (SMALL, OTHERS)[i % 2] for i, name in names}


def compared(collected: Collected, pairing: Pairing) -> Iterator[MeanError]:
    """Yield the error of each difference of a pairing, day by day; weeks do not overlap."""
    campaign, estimator, _ = collected
    reports = [epoch.campaign for epoch in campaign.timeline.epochs if epoch.campaign.theta is not None]
    first = -(-min(each.first_slot for each in reports) // CYCLE)
    last = (max(key.slot for key in campaign.partial) + 1) // CYCLE
    step = 1 if pairing.days == 1 else pairing.days + pairing.earlier
    for day in range(first + pairing.earlier, last - pairing.days + 1, step):
        sides, truths = [], []
        for group, hours, begins in (
            (pairing.group, pairing.hours, day),
            (pairing.against, pairing.against_hours, day - pairing.earlier),
        ):
            days = range(begins, begins + pairing.days)
            slots = [CYCLE * each + half_hour for each in days for half_hour in hours]
            sides.append(collected.side(group, slots))
            truths.append(np.mean([campaign.truth(slot, group) for slot in slots], axis=0))
        truncated, readings = (truths[0] - truths[1]).tolist()
        for row in estimator.differences(*sides):
            noise = row.truncated_mean - truncated
            yield MeanError(row.estimate - readings, row.standard_error, noise, row.truncated_se or 0.0)

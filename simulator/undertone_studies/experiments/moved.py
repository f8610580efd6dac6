"""Experiment: campaigns whose readings change after θ was chosen.

Does the interval of the published mean still contain the mean of the readings, and does θ follow the change?
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.design.reach import REACH
from undertone_aggregator.estimate.estimates import Z
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.fast.simulate import simulate_readings
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.readings.chosen import open_source
from undertone_simulator.readings.readings import Integers, ReadingSource
from undertone_studies.cgm_populations import EDRP_FILE
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions

TITLE = "Campaigns whose readings move"
PARAGRAPH = (
    "The study simulates campaigns of some weeks, in which the server chooses θ again once a week. The readings begin "
    "to change on the third day after the threshold rounds. Until the next choice, θ is that of the earlier readings. "
    "Even so, the intervals of the headline contain the mean of the readings in more than 95 % of all slots since the "
    "change. On the worst day, the intervals contain this mean in 88 to 96 % of slots. Right after a sudden fall of "
    "temperatures, most of the intervals that are published first do not contain this mean (the last two columns)."
)

CYCLE, DAYS, REPEATS = 48, 21, 3
# Columns of the readings before the change: three threshold rounds of a day, and two days of reports.
_BEFORE = 5 * CYCLE
_WEEK = 7 * CYCLE
# The intervals of this many slots (two hours) after a sudden change are checked as published when the slot has just
# ended.
_FIRST = 4

Array = NDArray[np.float64]
# A change of readings: columns [n] since the change (negative before it) -> (factor [n], amount [n]).
Change = Callable[[Array], tuple[Array, Array]]


def times(factor: float) -> Change:
    """Return the change of all readings by a factor, at once."""
    return lambda since: (np.where(since >= 0, factor, 1.0), np.zeros(len(since)))


def growing(factor: float, columns: int) -> Change:
    """Return the change of all readings from factor 1 to ``factor``, evenly within ``columns`` slots."""
    return lambda since: (
        1.0 + (factor - 1.0) * np.clip((since + 1.0) / columns, 0.0, 1.0),
        np.zeros(len(since)),
    )


def shifted(amount: float, columns: int = 1) -> Change:
    """Return the change of all readings by an amount, within ``columns`` slots."""
    return lambda since: (np.ones(len(since)), amount * np.clip((since + 1.0) / columns, 0.0, 1.0))


@dataclass(frozen=True)
class MovingCase:
    """A case: its population, its number of devices, the change of the readings, and the days of the campaign.

    ``at_once``: True if the change is a step, so that its first slots are of interest.
    """

    name: str
    population: str
    devices: int
    change: Change
    days: int = DAYS
    at_once: bool = False


CASES = (
    MovingCase("EDRP × 2", "edrp", 5_000, times(2.0), at_once=True),
    MovingCase("EDRP × 0.4", "edrp", 5_000, times(0.4), at_once=True),
    MovingCase("temperature falls by 12 °C at once", "temperature", 3_000, shifted(-120.0), at_once=True),
    MovingCase("temperature falls by 12 °C over three weeks", "temperature", 3_000, shifted(-120.0, _WEEK * 3)),
    MovingCase("temperature rises by 12 °C over three weeks", "temperature", 3_000, shifted(120.0, _WEEK * 3)),
    MovingCase("EDRP rises by 120 % over 60 days", "edrp", 2_000, growing(2.2, 60 * CYCLE), days=65),
)


@dataclass(frozen=True)
class MovedReadings:
    """A source whose readings change at column ``begins``; readings stay within [0, ``bound``]."""

    source: ReadingSource
    bound: int
    change: Change
    begins: int

    @property
    def unit(self) -> str:
        """The unit of the readings."""
        return self.source.unit

    @property
    def per_day(self) -> int:
        """Number of columns of one day."""
        return self.source.per_day

    @property
    def start(self) -> str:
        """The local time of column 0."""
        return self.source.start

    def part(self, first: int, stop: int, columns: Sequence[int]) -> tuple[Integers, NDArray[np.bool_] | None]:
        """See `ReadingSource.part`."""
        values, present = self.source.part(first, stop, columns)
        factor, amount = self.change(np.asarray(columns, dtype=np.float64) - self.begins)
        changed = np.rint(values * factor[:, None] + amount[:, None])
        return np.clip(changed, 0, self.bound).astype(np.int64), present


@dataclass(frozen=True)
class MovedResult:
    """Result of a campaign, counted from the change on.

    ``held``: share of slots whose 95 % interval holds the mean of the readings; ``least``: that of the worst day;
    ``half``: median of half-width divided by mean, from the third day after the change on; ``second``: mean square
    error in the second week of the report phase. ``live``: for each of the first slots, whether the interval that is
    published at the slot's end holds; empty unless asked for.
    """

    held: float
    least: float
    half: float
    second: float
    live: tuple[bool, ...] = ()


def run(options: StudyOptions) -> Outcome:
    """Simulate each case, and for comparison the same fleet with the changed readings from its first slot on."""
    repeats = 1 if options.quick else options.repeats or REPEATS
    cases = [number for number, case in enumerate(CASES) if case.population != "edrp" or options.data is not None]
    cases = [number for number in cases if not options.only or CASES[number].population in options.only]
    days = [7 if options.quick else case.days for case in CASES]
    tasks = [(number, options.seed + seed, days[number]) for number in cases for seed in range(repeats)]
    with workers(options.workers or 1) as hands:
        done = list(hands.bind(_results, options)(tasks, lambda _: None))
    rows: list[tuple[Cell, ...]] = []
    for place, number in enumerate(cases):
        every = done[place * repeats : (place + 1) * repeats]
        moved = [of for of, _ in every]
        ratio = np.mean([of.second for of in moved]) / np.mean([best.second for _, best in every])
        held, least, half = (np.mean([getattr(of, name) for of in moved]) for name in ("held", "least", "half"))
        numbers = [round(float(held), 3), round(float(least), 3), round(100 * float(half), 1), round(float(ratio), 2)]
        live = [f"{sum(of.live[0] for of in moved)} of {repeats}"] if CASES[number].at_once else [""]
        live += [f"{sum(sum(of.live) for of in moved)} of {repeats * _FIRST}"] if CASES[number].at_once else [""]
        rows.append((CASES[number].name, CASES[number].devices, days[number], *numbers, *live))
    columns = ["case", "devices", "days", "held", "worst day", "± %", "MSE over best"]
    columns += ["first half-hour", "first two hours"]
    notes = [
        "The headline is the published filtered series. The column `held` has the share of the headline's 95 % "
        "intervals, in all slots since the change, that contain the mean of the readings. The column `worst day` has "
        "this share on the worst day of a campaign. The column `± %` has the median half-width of the intervals in "
        "per cent of the mean, without the first two days after the change. The column `MSE over best` has the mean "
        "square error in the second week after the threshold rounds, divided by that of the best case: a campaign "
        f"whose readings have changed before its threshold rounds. ε = 1 is for each reading. Each case has "
        f"{many(repeats, 'campaign')}.",
        "The columns `first half-hour` and `first two hours` are about the first slots after a sudden change, as the "
        "server publishes them when each slot is over. They have the number of intervals, in all campaigns together, "
        "that contain the mean of the readings.",
    ]
    return Outcome(TITLE, columns, rows, notes)


def _results(options: StudyOptions, task: tuple[int, int, int], tick: Tick) -> tuple[MovedResult, MovedResult]:
    """Return the results of a case and of its best possible campaign."""
    number, seed, days = task
    case = CASES[number]
    moved = simulated(case, options, seed, days)
    best = measure(simulated(case, options, seed, days, best=True))
    return replace(measure(moved), live=live(moved) if case.at_once else ()), best


def simulated(case: MovingCase, options: StudyOptions, seed: int, days: int, *, best: bool = False) -> Simulated:
    """Simulate a campaign of a case; ``best``: its readings change before the first threshold round."""
    source: dict[str, Any] = {"population": case.population}
    if case.population == "edrp":
        assert options.data is not None
        source = {"data": options.data / EDRP_FILE}
    chosen = SimulateOptions(devices=case.devices, slots=days * CYCLE, seed=seed, epsilon="1", reach=REACH, **source)
    readings = open_source(chosen, case.devices, seed)
    moved = MovedReadings(readings.source, readings.bound, case.change, -(1 << 30) if best else _BEFORE)
    return simulate_readings(chosen, readings._replace(source=moved))


def live(campaign: Simulated) -> tuple[bool, ...]:
    """Return for each of the first slots since the change whether the interval published at the slot's end holds."""
    first = campaign.timeline.epochs[0].campaign.first_slot + _BEFORE
    held = []
    for slot in range(first, first + _FIRST):
        begun = Timeline([epoch for epoch in campaign.timeline.epochs if epoch.campaign.first_slot <= slot])
        known = Partial({key: counts for key, counts in campaign.partial.items() if key.slot <= slot})
        newest = replace(campaign, timeline=begun, partial=known).compared(filtered=True)[-1]
        assert newest.estimate.slot == slot
        held.append(newest.covers()[0])
    return tuple(held)


def measure(campaign: Simulated) -> MovedResult:
    """Return the result of one campaign."""
    compared = campaign.compared(filtered=True)
    first = campaign.timeline.epochs[0].campaign.first_slot
    slots = np.array([of.estimate.slot for of in compared]) - first - _BEFORE
    away = np.array([of.estimate.estimate - of.truth_raw for of in compared])
    half = Z * np.array([of.estimate.standard_error or 0.0 for of in compared])
    truth = np.array([of.truth_raw for of in compared])
    held = np.abs(away) <= half
    after = slots >= 0
    days = [float(held[slots // CYCLE == day].mean()) for day in np.unique(slots[after] // CYCLE)]
    settled = slots >= 2 * CYCLE
    second = (slots >= _WEEK - 2 * CYCLE) & (slots < 2 * _WEEK - 2 * CYCLE)
    return MovedResult(
        float(held[after].mean()),
        min(days),
        float(np.median(half[settled] / truth[settled])),
        float(np.mean(np.square(away[second]))) if second.any() else float("nan"),
    )

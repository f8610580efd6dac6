"""Experiment: this project's mechanisms beside published rivals, at equal privacy, in one run."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from math import sqrt

import numpy as np

from undertone_aggregator.design.continuous import worst_hybrid_variance
from undertone_aggregator.design.fitted import Promise, population_table
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.reach import LARGEST_REACH
from undertone_aggregator.design.stream.calibration import mu
from undertone_aggregator.design.stream.methods import Method, all_methods, main_methods, select
from undertone_aggregator.threshold import constant_variance
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.readings.loaders import load
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import ReadingSource
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.rivals import (
    ONE_READING,
    Array,
    CopiedFleet,
    Dissimilarity,
    Fast,
    adaptive,
    best_of,
    by_budget,
    by_population,
    fast,
    filtered_stream,
    grid,
    hindsight,
    perturbed_input,
    square_root_slot_variance,
)

TITLE = "Rivals at equal privacy: one reading, any 24 hours, streams"
PARAGRAPH = (
    "The table has four parts. Its column `source` names the papers.\n\n*One reading*: the figure is the mean variance "
    "of a report over the readings, divided by the largest variance of the Hybrid at the same θ and ε. All these "
    "mechanisms are unbiased. The linear programme, for 13 levels and a "
    "[reach](../tables.md#how-much-one-false-report-counts) of 2, shows about how much a table can gain. A designed "
    "table is made of integers, has 25 levels, and here a reach of 1.1.\n\n*Any 24 hours*: the figure is the root mean "
    "square error of a half-hour's mean, in per cent of the mean. Each method gets the θ that is best for it in "
    "hindsight, except IPP and CAPP, which get the θ of turns. (For IPP and CAPP, the best θ in hindsight would be "
    "about twice the mean. With this θ their reports hardly depend on the readings, and the estimate is a constant.) "
    "CAPP clips its inputs to the best of three limits, in hindsight. LPD and LPA publish if a noisy estimate of the "
    "change exceeds the error of a new publication. The paper LDP-IDS subtracts the variance of the noisy estimate; in "
    "the rows `variance kept` nothing is subtracted. The rows `change known` use the true change instead of the "
    "estimate.\n\n*A stream, the noise*: the figure is the root mean square of the noise of one device in one slot, in "
    "units of the range, where one (ε, δ) protects all 48 reports of a day together.\n\n*A stream, a slot's mean*: the "
    "figure is the root mean square error of a half-hour's mean, in per cent of the mean, where one (ε, δ) protects "
    "all 48 reports of a day together. FAST samples the slots that a PID controller chooses; a Kalman filter corrects "
    "the estimate in these slots, and predicts the other slots. `Kalman, every slot` is FAST with as many samples as "
    "slots. `CGM, what ships, Kalman` has a Kalman filter that knows how the noise is correlated. The other rows of "
    "this part are not filtered. In `every fourth slot, held`, a slot without a report has the value of the last "
    "report. In this part every method gets, in hindsight, the best of a few values of its parameters: for CGM the "
    "largest step C; for FAST the number of samples, the set point and the change of the interval; for every filter "
    "the variance of the process."
)
COLUMNS = ("part", "readings", "ε", "devices", "method", "figure", "± s.e.", "source")
ONE, WINDOW, STREAM, MEANS = "one reading", "any 24 hours", "stream", "stream, a slot's mean"
TURNS = "turns, designed table"
CHANGED = "Ren et al. 2022, changed"
EPSILONS = ("0.5", "1", "2", "4")
POPULATIONS = ("households", "phones", "time-in-state", "heavy-tail", "temperature")
FLEETS = (5_000, 100_000)
DAYS, DAY, RUNS = 7, 48, 8
# IPP and CAPP are drawn device by device, so they have fewer runs.
DRAWN_RUNS = 2
DELTA, SLEW = 1e-5, Fraction(1, 20)
MARGINS = (0.0, 0.5, 2.0)
# FAST is run with each combination of these parameters, and the best result is shown: M, ξ, its own θ, and Q divided by
# the mean square of the step from one slot's mean to the next.
SAMPLES, SET_POINTS, MAGNITUDES, PROCESSES = (12, 24, 48), (0.1, 0.3, 1.0), (1.0, 5.0), (1.0, 4.0)
FAST, KALMAN, EVERY_FOURTH = "FAST", "Kalman, every slot", "every fourth slot, held"
SHIPS, SMOOTHED = "CGM, what ships", "CGM, what ships, Kalman"
SLEWS = tuple(Fraction(each) for each in ("0.025", "0.05", "0.1", "0.25", "0.4"))
# The last part has more parameters to choose, so only every third candidate for the threshold is tried.
COARSE = 3
_BOUND = 10_000


def run(options: StudyOptions) -> Outcome:
    """Compare the mechanisms and methods on EDRP, if the data are there, and on the simulator's populations."""
    sources: dict[str, tuple[ReadingSource, int]] = {}
    if options.data is not None:
        sources["EDRP"] = load(options.data / "edrp_scotland_622x4416_halfhour_wh.npz", None), _BOUND
    for name in POPULATIONS[: 1 if options.quick else None]:
        synthetic = population(name, options.seed)
        sources[name] = synthetic, synthetic.bound
    rows: list[tuple[Cell, ...]] = []
    for name, (source, bound) in sources.items():
        wanted = EPSILONS if name == "EDRP" else EPSILONS[1::2]
        rows += one_reading(name, source, bound, EPSILONS[1:2] if options.quick else wanted)
    for name in [name for name in ("EDRP", "households") if name in sources]:
        for devices in FLEETS[: 1 if options.quick else None]:
            rows += any_day(name, sources[name][0], devices, options)
    rows += streams()
    for name in [name for name in ("EDRP", "households") if name in sources]:
        for devices in FLEETS[: 1 if options.quick else None]:
            rows += slots_means(name, sources[name][0], devices, options)
    notes = [
        "ε is for one reading in the first part, and for any 24 hours (w = 48 slots) in the second part. In the "
        f"other two parts, (ε, δ = {DELTA:g}) is for all reports of a day together. Figures without a standard error "
        "are computed, and not simulated.",
        f"The second part has {max(options.repeats or RUNS, 2)} runs of {DAYS} days ({DRAWN_RUNS} for IPP and CAPP); "
        "the fleet consists of copies of the homes in the data. The rows `best affine map` are the errors of IPP and "
        "CAPP after the affine map of the estimates that is best in hindsight. The row `a constant` is the error if "
        "every slot is estimated by the mean of all slots.",
        *notes_of(rows),
    ]
    return Outcome(TITLE, COLUMNS, rows, notes)


def one_reading(
    name: str, source: ReadingSource, largest: int, epsilons: tuple[str, ...]
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of the first part for one population."""
    known = KnownPopulation.of(source, largest, _homes(name))
    for epsilon in epsilons:
        e = float(epsilon)
        chosen = known.best(FLEETS[0], constant_variance(e), two_sided=False)
        theta, readings, worst = chosen.theta, Population(chosen.density, chosen.edges), worst_hybrid_variance(e)
        law = readings.levels(np.linspace(0.0, theta, 201), theta)
        for method, (variance, origin) in ONE_READING.items():
            mean = sum(p * variance(e, x) for p, x in zip(law, np.linspace(-1, 1, 201), strict=True))
            yield (ONE, name, e, "", method, float(mean) / worst, "", origin)
        bound = Promise(epsilon, readings).variance(theta, LARGEST_REACH)
        yield (ONE, name, e, "", "linear programme", bound / worst, "", "this project")
        table = readings.mean_variance(population_table(epsilon, theta, readings), theta)
        yield (ONE, name, e, "", "designed table", table / worst, "", "this project")


def any_day(name: str, source: ReadingSource, devices: int, options: StudyOptions) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of the second part for one population and one number of devices, at ε = 1."""
    fleet = _fleet(name, source, devices, options)
    counts = np.bincount(fleet.readings.astype(np.int64).ravel())
    promise = Promise("1", Population(counts / counts.sum(), range(len(counts) + 1)))
    runs = max(options.repeats or RUNS, 2)
    thetas = _grid(fleet, options)
    worst = worst_hybrid_variance(1.0)

    def turns(theta: float, generator: np.random.Generator) -> Array:
        return by_population(fleet, theta, min(promise.variance(int(theta)), worst), DAY + 1, generator)

    def published(absorbs: bool, dissimilarity: Dissimilarity) -> Callable[[float, np.random.Generator], Array]:
        return lambda t, g: adaptive(fleet, t, 1.0, g, absorbs=absorbs, dissimilarity=dissimilarity)

    methods: dict[str, tuple[Callable[[float, np.random.Generator], Array], str]] = {
        "LBU": (lambda t, g: by_budget(fleet, t, 1.0, g), "Ren et al. 2022"),
        "LPU": (lambda t, g: by_population(fleet, t, worst, DAY, g), "Ren et al. 2022"),
        "LPD": (published(absorbs=False, dissimilarity="unbiased"), "Ren et al. 2022"),
        "LPA": (published(absorbs=True, dissimilarity="unbiased"), "Ren et al. 2022"),
        "LPD, variance kept": (published(absorbs=False, dissimilarity="square"), CHANGED),
        "LPA, variance kept": (published(absorbs=True, dissimilarity="square"), CHANGED),
        "LPD, change known": (published(absorbs=False, dissimilarity="known"), CHANGED),
        "LPA, change known": (published(absorbs=True, dissimilarity="known"), CHANGED),
        TURNS: (turns, "this project"),
    }
    theta = 0.0
    for method, (make, origin) in methods.items():
        theta = best_of(thetas, partial(_error, fleet, make, options))
        errors = [fleet.error(make(theta, _seeded(options, 100 + i))) for i in range(runs)]
        yield (WINDOW, name, 1.0, devices, method, *_percent(errors), origin)
    yield from _by_input(name, fleet, theta, options)
    constant = fleet.error(np.full(len(fleet.truth), fleet.truth.mean()))
    yield (WINDOW, name, 1.0, devices, "a constant", 100 * constant, "", "")


def _error(
    fleet: CopiedFleet, make: Callable[[float, np.random.Generator], Array], options: StudyOptions, theta: float
) -> float:
    """Return the mean error of a method over four runs. These runs only choose its θ; they are not in the table."""
    return _mean([fleet.error(make(theta, _seeded(options, number))) for number in range(4)])


def _by_input(name: str, fleet: CopiedFleet, theta: float, options: StudyOptions) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of IPP and CAPP, with the θ of turns. CAPP's limits are chosen in hindsight, on fewer devices."""
    few = CopiedFleet(fleet.readings[: 2 * DAY], min(fleet.devices, 2_000), DAY)
    runs = 2 if options.quick else DRAWN_RUNS
    for method, margins in (("IPP", (None,)), ("CAPP", MARGINS)):
        margin = min(margins, key=partial(_error_of_margin, few, theta, options))
        estimates = [perturbed_input(fleet, theta, 1.0, _seeded(options, 100 + i), margin=margin) for i in range(runs)]
        errors = [fleet.error(each) for each in estimates]
        mapped = [hindsight(fleet, each) for each in estimates]
        yield (WINDOW, name, 1.0, fleet.devices, method, *_percent(errors), "Du et al. 2025")
        yield (WINDOW, name, 1.0, fleet.devices, f"{method}, best affine map", *_percent(mapped), "Du et al. 2025")


def _error_of_margin(fleet: CopiedFleet, theta: float, options: StudyOptions, margin: float | None) -> float:
    return fleet.error(perturbed_input(fleet, theta, 1.0, _seeded(options, 0), margin=margin))


def streams() -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of the third part: noise of one device in one slot, 48 reports under one (ε, δ)."""
    for epsilon in (1.0, 4.0):
        direct, three, ships = main_methods(SLEW, DAY, epsilon, DELTA)
        named = {"independent noise": direct, "CGM, Algorithm 3": three, SHIPS: ships}
        for method, each in named.items():
            noise = sqrt(float(np.mean(np.diag(each.covariance))))
            source = "Bao et al. 2021" if each is not ships else "this project"
            yield (STREAM, f"steps up to {float(SLEW):g} of the range", epsilon, "", method, noise, "", source)
        noise = sqrt(square_root_slot_variance(DAY, mu(epsilon, DELTA) ** 2))
        origin = "Fichtenberger et al. 2023"
        yield (STREAM, "any", epsilon, "", "square-root factorisation", noise, "", origin)


def slots_means(name: str, source: ReadingSource, devices: int, options: StudyOptions) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of the last part for one population and one number of devices."""
    fleet = _fleet(name, source, devices, options)
    thetas = _grid(fleet, options)[::COARSE]
    slews = SLEWS[:1] if options.quick else SLEWS
    for epsilon in (1.0, 4.0):
        direct = main_methods(SLEW, DAY, epsilon, DELTA)[0]
        fourth = select(all_methods(SLEW, DAY, epsilon, DELTA), "sampled")
        released = {
            method: [Released(fleet, each, theta) for each in methods for theta in thetas]
            for method, methods in (
                ("independent noise", [direct]),
                (EVERY_FOURTH, [fourth]),
                ("CGM, Algorithm 3", [main_methods(slew, DAY, epsilon, DELTA)[1] for slew in slews]),
                (SHIPS, [main_methods(slew, DAY, epsilon, DELTA)[2] for slew in slews]),
            )
        }
        origins = ("Bao et al. 2021", "", "Bao et al. 2021", "this project")
        for (method, candidates), origin in zip(released.items(), origins, strict=True):
            error = min(candidate.error for candidate in candidates)
            yield (MEANS, name, epsilon, devices, method, 100 * error, "", origin)
        yield from _filtered(name, fleet, released[SHIPS], thetas, epsilon, options)


def _filtered(
    name: str, fleet: CopiedFleet, ours: "list[Released]", thetas: list[float], epsilon: float, options: StudyOptions
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of FAST, of FAST's filter on every slot, and of that filter on this project's stream method."""
    squared = mu(epsilon, DELTA) ** 2
    step = float(np.mean(np.square(np.diff(fleet.truth))))
    processes = [share * step for share in PROCESSES]
    adapting = [Fast(*each) for each in product(SAMPLES, SET_POINTS, MAGNITUDES, processes)]
    every = [Fast(fleet.window, 0.1, 0.0, process) for process in processes]

    def sampled(theta: float, parameters: Fast) -> Callable[[int], Array]:
        return lambda number: fast(fleet, theta, squared, parameters, _seeded(options, number))[0]

    def smoothed(released: Released, process: float) -> Callable[[int], Array]:
        return lambda number: filtered_stream(
            released.drawn(_seeded(options, number)), released.share, released.noise[0], process, DAY
        )

    methods = {
        FAST: ([sampled(*each) for each in product(thetas, adapting)], "Fan, Xiong 2014"),
        KALMAN: ([sampled(*each) for each in product(thetas, every)], "Fan, Xiong 2014"),
        SMOOTHED: ([smoothed(*each) for each in product(ours, processes)], "this project"),
    }
    for method, (candidates, origin) in methods.items():
        best = min(candidates, key=lambda make: _mean([fleet.error(make(number)) for number in range(2)]))
        errors = [fleet.error(best(100 + number)) for number in range(max(options.repeats or RUNS, 2))]
        yield (MEANS, name, epsilon, fleet.devices, method, *_percent(errors), origin)


class Released:
    """The means of a stream method at one θ: expected values [slots], and variances of the noise [slots of a day].

    A slot without a report has the value of the last report.
    """

    def __init__(self, fleet: CopiedFleet, method: Method, theta: float) -> None:
        at = np.searchsorted(method.seen, np.arange(DAY), side="right") - 1
        days = fleet.readings.reshape(-1, DAY, fleet.readings.shape[1])
        self.means = np.concatenate([theta * method.clipped(day.T / theta).mean(axis=0)[at] for day in days])
        self._covariance = theta**2 * method.covariance[np.ix_(at, at)] / fleet.devices
        self.noise = np.diag(self._covariance)
        self.share = float(method.covariance[0, 1] / method.covariance[0, 0])
        squares = (self.means - fleet.truth) ** 2
        self.error = sqrt(float(np.mean(squares) + np.mean(self.noise))) / float(fleet.truth.mean())

    def drawn(self, generator: np.random.Generator) -> Array:
        """Return the means with noise, which begins anew with each day."""
        days = len(self.means) // DAY
        noise = generator.standard_normal((days, DAY)) @ np.linalg.cholesky(self._covariance).T
        return np.asarray(self.means + noise.ravel())


def notes_of(rows: list[tuple[Cell, ...]]) -> list[str]:
    """Return a comparison of this project's methods with the best rival in the rows, as Markdown tables."""
    ratios = []
    for name, epsilon in dict.fromkeys((row[1], row[2]) for row in rows if row[0] == ONE):
        of = {str(row[4]): float(row[5]) for row in rows if row[:3] == (ONE, name, epsilon)}
        best = min((value, key) for key, value in of.items() if key in ONE_READING)
        ours = f"{of['designed table']:.3f} | {of['linear programme']:.3f} | {best[0]:.3f} ({best[1]})"
        ratios.append(f"| {name} | {epsilon:g} | {ours} |")
    windows = []
    for name, devices in dict.fromkeys((row[1], row[3]) for row in rows if row[0] == WINDOW):
        of = {str(row[4]): float(row[5]) for row in rows if row[0] == WINDOW and (row[1], row[3]) == (name, devices)}
        rivals = [(of[method], method) for method in ("LBU", "LPU", "LPD", "LPA", "IPP", "CAPP")]
        changes = [
            f"{of[method]:.1f} / {of[f'{method}, variance kept']:.1f} / {of[f'{method}, change known']:.1f}"
            for method in ("LPD", "LPA")
        ]
        best_rival = f"{min(rivals)[0]:.1f} ({min(rivals)[1]})"
        windows.append(f"| {name} | {devices:,} | {of[TURNS]:.1f} | {best_rival} | {' | '.join(changes)} |")
    means = []
    for name, epsilon, devices in dict.fromkeys(row[1:4] for row in rows if row[0] == MEANS):
        of = {str(row[4]): float(row[5]) for row in rows if row[:4] == (MEANS, name, epsilon, devices)}
        shown = " | ".join(
            f"{of[method]:.1f}" for method in (SHIPS, SMOOTHED, FAST, KALMAN, EVERY_FOURTH, "independent noise")
        )
        means.append(f"| {name} | {devices:,} | {epsilon:g} | {shown} |")
    lines = "\n".join
    return [
        "| one reading | ε | designed table | linear programme | best rival |\n|---|---|---|---|---|\n" + lines(ratios),
        "| any 24 hours, ε = 1 | devices | turns with a designed table, % | best rival, % | LPD: as published / "
        "variance kept / change known, % | LPA: as published / variance kept / change known, % |\n"
        "|---|---|---|---|---|---|\n" + lines(windows),
        "| a stream, a slot's mean | devices | ε a day | CGM, what ships, % | CGM, what ships, Kalman, % | FAST, % | "
        "Kalman, every slot, % | every fourth slot, held, % | independent noise, % |\n"
        "|---|---|---|---|---|---|---|---|---|\n" + lines(means),
    ]


def _fleet(name: str, source: ReadingSource, devices: int, options: StudyOptions) -> CopiedFleet:
    """Return a fleet of copies of the homes in the data, with the readings of the study's days."""
    days = range(2 if options.quick else DAYS)
    values = [source.part(0, _homes(name), range(day * DAY, (day + 1) * DAY))[0] for day in days]
    return CopiedFleet(np.concatenate(values).astype(np.float64), devices, DAY)


def _grid(fleet: CopiedFleet, options: StudyOptions) -> list[float]:
    return grid(fleet, 4) if options.quick else grid(fleet)


def _homes(name: str) -> int:
    """Return the number of devices whose readings are used."""
    return 622 if name == "EDRP" else 1_000


def _percent(errors: list[float]) -> tuple[float, float]:
    """Return the mean of the errors and its standard error, in per cent."""
    return 100 * _mean(errors), 100 * float(np.std(errors, ddof=1)) / sqrt(len(errors))


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _seeded(options: StudyOptions, number: int) -> np.random.Generator:
    return np.random.default_rng([options.seed, number])

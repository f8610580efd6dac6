"""Study of the filter on published series: real and synthetic truths, with the noise of each way of collecting.

The truth is the mean of a fleet's truncated readings, slot by slot. The noise of a slot is drawn from a normal
distribution with its exact variance. The ways of collecting are: a report for each reading (``event``), reports of
devices in turn, with sampling error (``turns``), and streams that begin anew in each cycle, with noise that is
correlated within the cycle (``stream``).
"""

import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design import Budget, hybrid, worst_variance
from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate import filter as core
from undertone_aggregator.estimate.calendar import Days, calendar
from undertone_aggregator.estimate.estimates import Z
from undertone_aggregator.estimate.seasonal import Calendar
from undertone_aggregator.estimate.series_filter import own_chance
from undertone_aggregator.estimate.state_space import Noise
from undertone_shared.stream import GAUSSIAN
from undertone_simulator.readings.begin import START
from undertone_simulator.readings.populations import POPULATIONS
from undertone_studies.cgm_populations import EDRP_FILE, EDRP_RANGE, london

Array = NDArray[np.float64]

FLEETS = (500, 5_000, 50_000)
DAYS = 28
STRIDE = 49
SLEW = Fraction(1, 20)
DELTA = 1e-5
# Number of devices whose readings choose θ. Readings are also generated for this many devices at a time.
_SOME = 4096
# Cycles after which hyper-parameters are fitted again. A server does so after each cycle; the study does so less often
# if a cycle has more than `_SHORT_CYCLE` slots. The causal series is evaluated from the third cycle on.
_REFITS, _SHORT_CYCLE = (2, 3, 4, 6, 8, 11, 15, 20), 24


@dataclass(frozen=True)
class TrueSeries:
    """Readings [devices, slots] of a data set in ``unit``, from slot ``first`` on.

    ``bound``: the largest θ that is tried. ``range``: the range of a stream, of which the slew is a share. For a fleet
    larger than the data set, the data set's mean is used.
    """

    name: str
    unit: str
    readings: NDArray[np.floating]
    bound: float
    range: float
    cycle: int
    slot_seconds: int
    first: int

    @property
    def slots(self) -> NDArray[np.int64]:
        """Numbers of the slots."""
        return np.arange(self.first, self.first + self.readings.shape[1])


def edrp(data: Path, days: int = DAYS) -> TrueSeries:
    """Half-hours of 622 Scottish households from Sunday 1 March 2009 on. Raises OSError."""
    with np.load(data / EDRP_FILE) as file:
        wh = file["wh"][:, : 48 * days].astype(np.float64)
    return TrueSeries("EDRP", "Wh", wh, 10_000.0, EDRP_RANGE, 48, 1800, 1_235_865_600 // 1800)


def daily(data: Path) -> TrueSeries:
    """Daily energy of those London households that have a reading on each day, with weeks as cycles. Raises OSError."""
    streams = london(data)
    kwh = streams.windows[0] * streams.range
    return TrueSeries("London daily", "kWh", kwh[:, : 7 * 4 * 13], streams.range, streams.range, 7, 86400, 15_700)


def synthetic(name: str, seed: int, days: int = DAYS, devices: int = FLEETS[-1]) -> TrueSeries:
    """Return a population of the simulator from a Monday on, with as many devices as the largest fleet of the study."""
    source = POPULATIONS[name](seed)
    readings = np.empty((devices, days * source.per_day), dtype=np.float32)
    for begin in range(0, devices, _SOME):
        end = min(begin + _SOME, devices)
        readings[begin:end] = source.part(begin, end, range(readings.shape[1]))[0].T
    bound, first = float(source.bound), START // source.step_seconds
    top = float(np.quantile(readings[:_SOME], 0.995))
    return TrueSeries(name, source.unit, readings, bound, top, source.per_day, source.step_seconds, first)


@dataclass(frozen=True)
class PublishedSeries:
    """A published series: the truncated ``truth`` [n], the raw mean, and the noise, from which values can be drawn."""

    truth: Array
    raw_truth: Array
    noise: Noise
    theta: float

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return the truth plus one draw of the noise, [n]."""
        deviation = np.sqrt(self.noise.variance)
        fresh = rng.standard_normal(len(deviation))
        if self.noise.carried is None:
            return self.truth + deviation * fresh
        noise = np.empty(len(deviation))
        for i, share in enumerate(self.noise.carried):
            before = noise[i - 1] if share else 0.0
            new = deviation[i] ** 2 - (share * deviation[i - 1]) ** 2 if share else deviation[i] ** 2
            noise[i] = share * before + np.sqrt(new) * fresh[i]
        return self.truth + noise


Way = Callable[[TrueSeries, int], PublishedSeries]


def event(epsilon: str) -> Way:
    """Return a function that makes the published series if every device reports every slot by the Hybrid."""
    variance = float(worst_variance(hybrid(epsilon)))

    def publish(truth: TrueSeries, devices: int) -> PublishedSeries:
        fleet = truth.readings[:devices]
        theta = _best(fleet, truth.bound, lambda theta, _: theta**2 / 4 * variance / devices)
        noise = np.full(fleet.shape[1], theta**2 / 4 * variance / devices)
        return _published(fleet, theta, Noise(noise))

    return publish


def turns(epsilon: str) -> Way:
    """Return a function that makes the published series if one in `STRIDE` devices reports in each slot."""
    variance = float(worst_variance(hybrid(epsilon)))

    def publish(truth: TrueSeries, devices: int) -> PublishedSeries:
        fleet = truth.readings[:devices]

        def noise(theta: float, spread: Array) -> Array:
            return (theta**2 / 4 * variance + spread * (1 - 1 / STRIDE)) * STRIDE / devices

        theta = _best(fleet, truth.bound, noise)
        spread = np.minimum(fleet[:_SOME], theta).var(axis=0, dtype=np.float64)
        return _published(fleet, theta, Noise(noise(theta, spread)))

    return publish


def stream(epsilon: str) -> Way:
    """Return a function that makes the published series of correlated Gaussian streams, with (ε, δ) per cycle."""

    def publish(truth: TrueSeries, devices: int) -> PublishedSeries:
        fleet, cycle = truth.readings[:devices], truth.cycle
        rho = rho_for(GAUSSIAN, Budget.parse(epsilon, DELTA))
        # `release_variance` is in units of the squared range, so the width of the rule's range may be any number.
        rule = choose(GAUSSIAN, rho, slew=SLEW, reports=cycle, theta=10_000, renewal=cycle)
        age = np.arange(fleet.shape[1]) % cycle
        of_age = np.array([release_variance(rule, age) for age in range(1, cycle + 1)])
        variance = truth.range**2 * of_age[age] / devices
        carried = np.where(age == 0, 0.0, rule.reuse / (1 << rule.shift))
        return _published(fleet, truth.range, Noise(variance, carried))

    return publish


def _best(fleet: NDArray[np.floating], bound: float, noise: Callable[[float, Array], Array | float]) -> float:
    """Return the θ with the least mean square error of a slot, from bias and noise."""
    errors = []
    fleet = fleet[:_SOME].astype(np.float64)
    thetas = np.geomspace(max(float(np.quantile(fleet, 0.5)), bound / 1000), bound, 40)
    raw = fleet.mean(axis=0)
    for theta in thetas:
        truncated = np.minimum(fleet, theta)
        bias = raw - truncated.mean(axis=0)
        errors.append(float(np.mean(bias**2 + noise(float(theta), truncated.var(axis=0)))))
    return float(thetas[int(np.argmin(errors))])


def _published(fleet: NDArray[np.floating], theta: float, noise: Noise) -> PublishedSeries:
    truncated, raw = np.zeros((2, fleet.shape[1]))
    for begin in range(0, len(fleet), _SOME):
        some = fleet[begin : begin + _SOME].astype(np.float64)
        truncated += np.minimum(some, theta).sum(axis=0)
        raw += some.sum(axis=0)
    truth = truncated / len(fleet)
    # If few devices stand for a larger fleet, their mean fluctuates as much as the mean of few devices does.
    own = own_chance(float(truth.mean()), theta, len(fleet)) / math.sqrt(float(noise.variance.mean()))
    return PublishedSeries(truth, raw / len(fleet), replace(noise, chance=own), theta)


@dataclass(frozen=True)
class Result:
    """Result of a cell.

    ``raw``: error of a slot in per cent of the mean. ``smoothed``, ``causal``: root mean square error divided by that
    of the raw series. The causal series estimates a slot from the slots up to it, with refits, from the third cycle on.
    ``smoothed_held``, ``causal_held``: shares of 95 % intervals that contain the truncated mean.
    ``late``: the causal error in per cent of the mean, without the first 14 cycles (without the first half, if the
    series has fewer than 28). ``seconds``: time of fit and smoothing. ``chance``, ``causal_chance``: standard errors of
    the coverages, between draws of the noise; NaN for a single draw.
    """

    raw: float
    smoothed: float
    smoothed_held: float
    causal: float
    causal_held: float
    late: float
    seconds: float
    chance: float
    causal_chance: float


@dataclass(frozen=True)
class Case:
    """A cell of the study: a published series, its slots, and their calendar."""

    published: PublishedSeries
    slots: NDArray[np.int64]
    days: Calendar


# Type of the result of one draw of the noise: squared errors (raw; smoothed; raw and causal from the third cycle on;
# causal as in `Result.late`), coverages (smoothed, causal), seconds.
Draw = tuple[list[float], tuple[float, float], float]


def case(truth: TrueSeries, way: Way, devices: int) -> Case:
    """Return the case of a fleet of ``devices`` devices that publishes this series in this way."""
    days = calendar(truth.slots, truth.slot_seconds, truth.cycle, Days())
    return Case(way(truth, devices), truth.slots, days)


def measure(truth: TrueSeries, way: Way, devices: int, seeds: Sequence[int]) -> Result:
    """Return the summary of several draws of the noise, one per seed."""
    cell = case(truth, way, devices)
    return summary(cell, [draw(cell, seed) for seed in seeds])


def summary(cell: Case, draws: Sequence[Draw]) -> Result:
    """Return errors and coverages over several draws: roots of mean squares, and means with their standard errors."""
    raw, smoothed, raw_later, causal, late = np.sqrt(np.mean([squares for squares, _, _ in draws], axis=0))
    level = float(np.mean(cell.published.truth))
    shares = np.array([held for _, held, _ in draws])
    held = shares.mean(axis=0)
    chance = shares.std(axis=0, ddof=1) / np.sqrt(len(draws)) if len(draws) > 1 else np.full(2, np.nan)
    return Result(
        raw=100 * raw / level,
        smoothed=smoothed / raw,
        smoothed_held=float(held[0]),
        causal=causal / raw_later,
        causal_held=float(held[1]),
        late=100 * late / level,
        seconds=float(np.mean([seconds for _, _, seconds in draws])),
        chance=float(chance[0]),
        causal_chance=float(chance[1]),
    )


def draw(cell: Case, seed: int) -> Draw:
    """Make one draw of the noise; each cell has its own seed, so that chance does not affect all of them alike."""
    published, cycle = cell.published, cell.days.cycle
    luck = zlib.crc32(published.noise.variance.tobytes())
    values = published.drawn(np.random.default_rng([17, seed, luck]))
    start = time.perf_counter()
    done = core.filtered(cell.slots, values, published.noise, cell.days)
    seconds = time.perf_counter() - start
    causal, error = as_it_goes(cell, values)
    later = slice(2 * cycle, None)
    late = slice(min(14 * cycle, len(values) // 2), None)
    exact = published.truth
    held = (
        float(np.mean(np.abs(done.mean - exact) <= Z * done.standard_error)),
        float(np.mean(np.abs(causal - exact)[later] <= Z * error[later])),
    )
    raw, passed = values - exact, causal - exact
    errors = [raw, done.mean - exact, raw[later], passed[later], passed[late]]
    return [float(np.mean(np.square(each))) for each in errors], held, seconds


def as_it_goes(cell: Case, values: Array) -> tuple[Array, Array]:
    """Return (mean, standard error) of each slot from the slots up to it.

    The parameters are fitted again after the cycles in `_REFITS`, or after every cycle if cycles are short.
    """
    noise, days, cycle = cell.published.noise, cell.days, cell.days.cycle
    mean, error = values.copy(), np.sqrt(noise.variance)
    cycles = _REFITS if cycle > _SHORT_CYCLE else range(2, len(values) // cycle + 1)
    ends = [number * cycle for number in cycles if core.FEWEST <= number * cycle < len(values)]
    fitted: core.Fitted | None = None
    for begin, end in zip(ends, [*ends[1:], len(values)], strict=True):
        seen = (cell.slots[:begin], values[:begin], noise.part(0, begin), days.part(0, begin))
        done = core.filtered(*seen, before=fitted)
        fitted = done.fitted
        if not done.used or done.fitted is None:
            continue
        run = core.running(done.fitted, noise)
        left = core.step(run, done.fitted, *seen)[2]
        part = slice(begin, end)
        mean[part], error[part], left = core.step(
            run, done.fitted, cell.slots[part], values[part], noise.part(begin, end), days.part(begin, end), left
        )
    return mean, error

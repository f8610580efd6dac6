"""Benchmark of the filter: time to filter a long series, to add one slot to it, and to fit its parameters once."""

import numpy as np

from undertone_aggregator.estimate import filter as core
from undertone_aggregator.estimate.calendar import Days, calendar
from undertone_aggregator.estimate.state_space import Noise
from undertone_simulator.readings.begin import START
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds

TITLE = "Filtering"

SLOTS = 10_000
_HALF_HOUR, _DAY = 1800, 48
_NOISE = 20.0
_CARRIED = 0.9


def run(options: StudyOptions) -> list[Measured]:
    """Measure the seconds of one thread for half-hours with weekends; set OPENBLAS_NUM_THREADS=1."""
    slots = START // _HALF_HOUR + np.arange(2_000 if options.quick else SLOTS)
    rng = np.random.default_rng(options.seed)
    values = 200 + 60 * np.sin(2 * np.pi * slots / _DAY) + np.cumsum(0.3 * rng.standard_normal(len(slots)))
    values += _NOISE * rng.standard_normal(len(slots))
    noise = Noise(np.full(len(slots), _NOISE**2))
    # Variance and correlation of the noise of a stream that is renewed each day; the values need not contain this
    # noise, because the filter's run time does not depend on them.
    renewed = Noise(noise.variance, np.where(slots % _DAY == 0, 0.0, _CARRIED))
    days = calendar(slots, _HALF_HOUR, _DAY, Days())
    rounds = 1 if options.quick else 3
    whole, stream, fitting = best_seconds(
        [
            lambda: core.filtered(slots, values, noise, days),
            lambda: core.filtered(slots, values, renewed, days),
            lambda: core.fit(slots, values, noise, days),
        ],
        rounds,
    )
    fitted = core.fit(slots, values, noise, days)
    run = core.running(fitted, noise)
    core.step(run, fitted, slots[:-200], values[:-200], noise.part(0, len(slots) - 200), days.part(0, len(slots) - 200))
    at = iter(range(len(slots) - 200, len(slots)))

    def step() -> None:
        i = next(at)
        core.step(run, fitted, slots[i : i + 1], values[i : i + 1], noise.part(i, i + 1), days.part(i, i + 1))

    (update,) = best_seconds([step], 100)
    return [
        Measured(f"{len(slots)} slots, fitted and smoothed", whole, "s", goal=2.0),
        Measured(f"{len(slots)} slots of a stream, fitted and smoothed", stream, "s", goal=2.0),
        Measured("one fit", fitting, "s"),
        Measured("one more slot", update * 1e3, "ms", goal=20.0),
    ]

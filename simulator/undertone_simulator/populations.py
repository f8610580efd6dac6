"""A synthetic population of households with half-hourly meters, for demonstrations without a data file.

The load of household h in half-hour t, in Wh:

    SCALE s_h (BASE b_h + ACTIVITY d_t e^{g_ht + a_ht - var/2}) + appliances,   ln s_h ~ N(0, SPREAD²),

with b_h a lognormal factor of the base load, d the daily shape above FLOOR (mean 1), g the household's habits
(one value per half-hour of the day) and a what differs from day to day, both AR(1) with correlation PERSISTENCE
per half-hour, and appliances that start with probability STARTS s_h d_t e^{g_ht}, take LEAST + Exp(MORE) Wh per
half-hour and run on with probability RUN_ON; a share ABSENT of half-hours reads 0; nothing exceeds BOUND, what
a 100 A fuse passes at 200 V in half an hour.

The constants reproduce, within a tenth (the lowest quantile within a fifth), summary figures of the 622 Scottish
households of the Energy Demand Research Project (spring 2009; UK Data Service SN 7591), computed from the readings
that the phovafer project publishes: mean 219 Wh; quantiles 5 % 24, 25 % 66, 50 % 129, 75 % 252, 90 % 488, 95 % 755,
99 % 1408, 99.9 % 2531; standard deviation of a household's log mean .56; correlation of a household's successive
half-hours .47, of the same half-hour on successive days .29. No reading of theirs is in it.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_simulator.readings import Readings

BOUND = 10_000
SCALE = 145.0
SPREAD = 0.5
FLOOR = 0.2
BASE = 0.29
BASE_SD = 0.7
ACTIVITY = 0.7
HABIT_SD = 0.7
DAY_SD = 0.5
PERSISTENCE = 0.7
STARTS = 0.06
LEAST = 100.0
MORE = 390.0
RUN_ON = 0.42
ABSENT = 0.008
HALF_HOURS = 48

# Mean load by half-hour of the day over the daily mean, from midnight.
# fmt: off
SHAPE = (
    0.70, 0.60, 0.52, 0.48, 0.45, 0.43, 0.42, 0.41, 0.41, 0.43, 0.45, 0.52,
    0.62, 0.77, 0.90, 1.02, 1.07, 1.10, 1.08, 1.09, 1.09, 1.07, 1.06, 1.08,
    1.06, 1.08, 1.05, 1.00, 0.98, 0.96, 0.97, 1.01, 1.11, 1.25, 1.38, 1.47,
    1.51, 1.49, 1.49, 1.49, 1.52, 1.55, 1.57, 1.53, 1.49, 1.35, 1.19, 0.99,
)
# fmt: on


def households(count: int, days: int, seed: int) -> Readings:
    """`count` households over `days` days of half-hours from a Monday on, the same for the same seed.

    Raises ValueError for a negative seed, or a count or number of days below 1.
    """
    if count < 1 or days < 1:
        raise ValueError("a population needs at least one household and one day")
    rng = np.random.default_rng(seed)
    slots = days * HALF_HOURS
    # What is left of the shape above the base load.
    shape = np.tile((np.array(SHAPE) - FLOOR) / (1.0 - FLOOR), days)
    size = np.exp(SPREAD * rng.standard_normal(count))[:, None]
    base = np.exp(BASE_SD * rng.standard_normal(count))[:, None]
    habits = np.tile(_persistent(rng, count, HALF_HOURS, HABIT_SD), days)
    varied = habits + _persistent(rng, count, slots, DAY_SD)
    activity = shape * np.exp(varied - (HABIT_SD**2 + DAY_SD**2) / 2)
    load = SCALE * size * (BASE * base + ACTIVITY * activity)
    load += _appliances(rng, STARTS * size * shape * np.exp(habits - HABIT_SD**2 / 2))
    load[rng.random((count, slots)) < ABSENT] = 0.0
    values = np.minimum(np.rint(load), BOUND).astype(np.int64)
    return Readings(values, np.ones(values.shape, dtype=np.bool_), "Wh", "2024-01-01 00:00:00", 1800)


def _persistent(rng: np.random.Generator, count: int, slots: int, sd: float) -> NDArray[np.float64]:
    """A stationary AR(1) process per household with standard deviation `sd`; [count, slots]."""
    process = rng.standard_normal((count, slots)) * sd
    fresh = np.sqrt(1.0 - PERSISTENCE**2)
    for t in range(1, slots):
        process[:, t] = PERSISTENCE * process[:, t - 1] + fresh * process[:, t]
    return process


def _appliances(rng: np.random.Generator, starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Energy of appliances that start with these probabilities, run for a geometric time and stop; [count, slots]."""
    starting = rng.random(starts.shape) < starts
    energy = LEAST + rng.exponential(MORE, starts.shape)
    runs_on = rng.random(starts.shape) < RUN_ON
    load = np.zeros(starts.shape)
    running = np.zeros(len(starts))
    for t in range(starts.shape[1]):
        running = np.where(starting[:, t], energy[:, t], np.where(runs_on[:, t], running, 0.0))
        load[:, t] = running
    return load

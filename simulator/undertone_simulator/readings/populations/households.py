"""Synthetic households with half-hourly meters, in Wh.

The load of household h in half-hour t of a day:

    SCALE s_h S_d (BASE b_h + ACTIVITY w_t d_t e^{g_ht + a_ht - var/2}) + appliances,   ln s_h ~ N(0, SPREAD²),

with b_h a lognormal factor of the base load, d the daily shape above FLOOR (mean 1), w its weekday or weekend factor, S
the season, var the variance of g + a, g the household's habits (one value per half-hour of the day) and a the
deviations of single days from them, both AR(1) with correlation PERSISTENCE per half-hour. Appliances start with
probability STARTS s_h w_t d_t e^{g_ht - HABIT_SD²/2}, take LEAST + Exp(MORE) Wh per half-hour and run on with
probability RUN_ON. A share ABSENT of half-hours reads 0. Nothing exceeds BOUND, the energy that a 100 A fuse passes at
200 V in half an hour.

The constants reproduce, within a tenth (the lowest quantile within a fifth), summary figures of the 622 Scottish
households of the Energy Demand Research Project (spring 2009; UK Data Service SN 7591), computed from the readings that
the phovafer project publishes: mean 219 Wh; quantiles 5 % 24, 25 % 66, 50 % 129, 75 % 252, 90 % 488, 95 % 755, 99 %
1408, 99.9 % 2531; standard deviation of a household's log mean .56; correlation of a household's successive half-hours
.47, of the same half-hour on successive days .29; weekends use 1.05 times as much as weekdays,
and WEEKEND has this ratio for each two hours of the day; load falls by a sixth from early March to late May. SEASON is
a cosine over the year that has this fall and its peak in mid-January. The synthetic data contain no reading of those
households.
"""

import math

import numpy as np

from undertone_simulator.readings.populations.synthetic import BLOCK, Floats, Synthetic, is_weekend

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
# Appliances that run at midnight have started at most this many half-hours earlier; one appliance in 10^3 would run for
# longer.
EVENING = 8
SEASON = 0.16
# Days from mid-January to the population's first day.
SEASON_SHIFT = 77

# Mean load in each half-hour of the day from midnight on, divided by the mean load of the day.
SHAPE = (
    0.70,
    0.60,
    0.52,
    0.48,
    0.45,
    0.43,
    0.42,
    0.41,
    0.41,
    0.43,
    0.45,
    0.52,
    0.62,
    0.77,
    0.90,
    1.02,
    1.07,
    1.10,
    1.08,
    1.09,
    1.09,
    1.07,
    1.06,
    1.08,
    1.06,
    1.05,
    1.00,
    0.98,
    0.96,
    0.97,
    1.01,
    1.11,
    1.25,
    1.38,
    1.47,
    1.51,
    1.49,
    1.49,
    1.49,
    1.52,
    1.55,
    1.57,
    1.53,
    1.49,
    1.35,
    1.19,
    0.99,
    0.83,
)
# Mean load on weekends, divided by that on weekdays, for each two hours of the day.
WEEKEND = (1.17, 1.10, 0.95, 0.71, 1.00, 1.36, 1.32, 1.20, 0.99, 0.99, 0.94, 1.01)

_WEEKEND = np.repeat(np.array(WEEKEND), HALF_HOURS // len(WEEKEND))
# Factor of the load on weekdays, with which the mean of the factors over a week is 1.
_WEEKDAY = 7.0 / (5.0 + 2.0 * _WEEKEND)
_ABOVE_FLOOR = (np.array(SHAPE) - FLOOR) / (1.0 - FLOOR)


class Households(Synthetic):
    """Households with half-hourly meters; see the module's docstring."""

    name = "households"
    about = "half-hourly energy of households, fitted to published statistics of meters"
    unit = "Wh"
    bound = BOUND
    step_seconds = 1800

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {
            "size": np.exp(SPREAD * rng.standard_normal(BLOCK)),
            "base": np.exp(BASE_SD * rng.standard_normal(BLOCK)),
            "habits": _persistent(rng, HABIT_SD),
        }

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        # Arrays are [HALF_HOURS, BLOCK], because each half-hour is computed from the one before it.
        size, habits = traits["size"], traits["habits"]
        shape = (_ABOVE_FLOOR * _WEEKDAY * (_WEEKEND if is_weekend(day) else 1.0))[:, None]
        load = habits + _persistent(rng, DAY_SD)
        load -= (HABIT_SD**2 + DAY_SD**2) / 2
        np.exp(load, out=load)
        load *= shape
        load *= ACTIVITY
        load += BASE * traits["base"]
        load *= SCALE * size * season(day)
        starts = habits - HABIT_SD**2 / 2
        np.exp(starts, out=starts)
        starts *= STARTS * size * shape
        load += _appliances(rng, starts)
        absent, half_hours = np.divmod(np.flatnonzero(rng.random(BLOCK * HALF_HOURS) < ABSENT), HALF_HOURS)
        load[half_hours, absent] = 0.0
        return load.T


def season(day: int) -> float:
    """Return the season's factor of the load, 1 on day 0."""

    def wave(days: int) -> float:
        return 1.0 + SEASON * math.cos(2.0 * math.pi * days / 365.0)

    return wave(day + SEASON_SHIFT) / wave(SEASON_SHIFT)


def _persistent(rng: np.random.Generator, sd: float) -> Floats:
    """Make a stationary AR(1) process over a day per household, with standard deviation `sd`; [HALF_HOURS, BLOCK]."""
    process = np.ascontiguousarray(rng.standard_normal((BLOCK, HALF_HOURS)).T)
    process *= sd
    process[1:] *= math.sqrt(1.0 - PERSISTENCE**2)
    before = np.empty(BLOCK)
    for t in range(1, HALF_HOURS):
        process[t] += np.multiply(process[t - 1], PERSISTENCE, out=before)
    return process


def _appliances(rng: np.random.Generator, starts: Floats) -> Floats:
    """Return the energy of appliances that start with these probabilities and run for a geometric time.

    Shapes [HALF_HOURS, households]. Appliances that run at midnight started on a separate evening with the same
    probabilities, so that days are independent.
    """
    starts = np.concatenate([starts[-EVENING:], starts])
    half_hours, count = starts.shape
    starting = starts > rng.random((count, half_hours)).T
    load = np.add(rng.exponential(MORE, (count, half_hours)).T, LEAST, order="C")
    runs_on = np.ascontiguousarray((rng.random((count, half_hours)) < RUN_ON).T)
    # Up to here, ``load`` has what an appliance takes if it starts in a half-hour. Now it gets what really runs then.
    running = np.zeros(count)
    for t in range(half_hours):
        running *= runs_on[t]
        np.copyto(running, load[t], where=starting[t])
        load[t] = running
    return load[EVENING:]

"""Synthetic populations that are hard for models of the load, most of them by what happens at certain times of the day.

The constants are chosen, not fitted.
"""

from typing import ClassVar

import numpy as np

from undertone_simulator.readings.populations.households import HALF_HOURS, Households
from undertone_simulator.readings.populations.synthetic import BLOCK, Floats, Synthetic, is_weekend, lognormal

# Marks the random generators of a day's weather, which all blocks share; `Synthetic` has two such marks of its own.
_WEATHER = 3


class Charging(Households):
    """Households of which a share CARS charge a car on a share DAYS of the days.

    Charging starts at a half-hour from FIRST to LAST, and takes POWER Wh in each of LEAST to MOST half-hours.
    """

    name = "charging"
    about = "half-hourly energy of households, of which a quarter charge a car in the evening"

    CARS, DAYS, POWER = 0.25, 0.6, 3600.0
    FIRST, LAST, LEAST, MOST = 34, 44, 2, 4

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return super()._traits(rng) | {"car": (rng.random(BLOCK) < self.CARS).astype(np.float64)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        load = super()._day(rng, traits, day)
        charges = (traits["car"] > 0) & (rng.random(BLOCK) < self.DAYS)
        begins = rng.integers(self.FIRST, self.LAST + 1, BLOCK)
        ends = begins + rng.integers(self.LEAST, self.MOST + 1, BLOCK)
        at = np.arange(HALF_HOURS)
        running = charges[:, None] & (at >= begins[:, None]) & (at < ends[:, None])
        return np.asarray(load + self.POWER * running)


class NightHeating(Charging):
    """Households of which a sixth have night storage heaters, which take power on most nights.

    They run for two to four hours between midnight and six.
    """

    name = "night-heating"
    about = "half-hourly energy of households, of which a sixth have heaters that store heat at night"

    CARS, DAYS, POWER = 1 / 6, 0.9, 1500.0
    FIRST, LAST, LEAST, MOST = 0, 4, 4, 8


class Solar(Households):
    """Households of which a share PANELS feed in up to PEAK Wh per half-hour around noon.

    Readings are counted from -OFFSET Wh.

    All homes have the same weather on a day, a uniform factor of the sun from CLOUDY to 1; panels differ in size.
    """

    name = "solar"
    about = "half-hourly energy, counted from -2000 Wh, of households of which a third feed in around noon"
    unit = "Wh above -2000"

    OFFSET, PANELS, PEAK, CLOUDY = 2000.0, 1 / 3, 1500.0, 0.15

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        size = np.where(rng.random(BLOCK) < self.PANELS, np.minimum(rng.uniform(0.5, 1.1, BLOCK), 1.0), 0.0)
        return super()._traits(rng) | {"panels": size}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        weather = self._generator(_WEATHER, day).uniform(self.CLOUDY, 1.0)
        sun = np.maximum(np.sin(np.pi * (np.arange(HALF_HOURS) - 12.0) / 24.0), 0.0) ** 1.5
        fed_in = traits["panels"][:, None] * self.PEAK * weather * sun * rng.uniform(0.8, 1.0, (BLOCK, HALF_HOURS))
        return np.asarray(super()._day(rng, traits, day) - fed_in + self.OFFSET)


class Retail(Synthetic):
    """Sizes of purchases per half-hour: 0 for most customers, and otherwise geometric with mean SIZE, cut at 40.

    The share of customers who buy follows HOURS, with the mean BUYERS, and is WEEKEND times as large on weekends.
    """

    name = "retail"
    about = "pieces bought per half-hour, mostly none: more buyers at noon, with baskets of the same size"
    unit = "pieces"
    bound = 200
    step_seconds = 1800

    BUYERS, SIZE, WEEKEND = 0.15, 8.0, 1.3
    # fmt: off
    HOURS = (
        0.05, 0.05, 0.05, 0.05, 0.05, 0.10, 0.30, 0.60, 1.00, 1.40, 1.80, 2.20,
        2.40, 2.10, 1.80, 1.70, 1.80, 2.00, 1.80, 1.30, 0.80, 0.40, 0.15, 0.05,
    )
    # fmt: on

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"activity": np.minimum(lognormal(rng, 0.4), 2.0)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        hours = np.repeat(self.HOURS, 2) / np.mean(self.HOURS) * (self.WEEKEND if is_weekend(day) else 1.0)
        buys = rng.random((BLOCK, HALF_HOURS)) < np.minimum(self.BUYERS * traits["activity"][:, None] * hours, 0.9)
        sizes = np.minimum(rng.geometric(1.0 / self.SIZE, buys.shape), 40)
        return np.where(buys, sizes, 0.0)


class Zeros(Retail):
    """Retail with 90 % zeros on average, and sizes that are lognormal."""

    name = "zeros"
    about = "readings of which nine in ten are zero, with more non-zero ones in the evening"
    unit = "units"
    bound = 5000

    BUYERS, SIZE = 0.1, 150.0
    # fmt: off
    HOURS = (
        0.60, 0.40, 0.30, 0.30, 0.30, 0.40, 0.60, 0.80, 0.90, 1.00, 1.00, 1.00,
        1.10, 1.10, 1.00, 1.00, 1.20, 1.50, 1.80, 2.00, 2.00, 1.80, 1.30, 0.90,
    )
    # fmt: on

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        active = super()._day(rng, traits, day) > 0
        return np.where(active, self.SIZE * lognormal(rng, 0.8, active.shape), 0.0)


class Star(Synthetic):
    """Counts in a narrow band, nearly all from 7 to 43 and at most 63, far below the sensor's bound of 2,088."""

    name = "star"
    about = "counts from 0 to 63 of a sensor that counts to 2088"
    unit = "counts"
    bound = 2088
    step_seconds = 1800

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"level": rng.normal(25.0, 5.0, BLOCK)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        swing = 8.0 * np.cos(2.0 * np.pi * (np.arange(HALF_HOURS) - 4.0) / HALF_HOURS)
        level = (traits["level"] + rng.normal(0.0, 2.0, BLOCK))[:, None] + swing
        return np.clip(level + rng.normal(0.0, 2.0, level.shape), 0.0, 63.0)


class Rise(Households):
    """Households whose readings grow evenly to TOTAL times their size within DAYS days."""

    name = "rise"
    about = "half-hourly energy of households that grows by 120 % in 60 days"

    TOTAL, DAYS = 2.2, 60

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        return np.asarray(super()._day(rng, traits, day) * (1.0 + (self.TOTAL - 1.0) * min(day / self.DAYS, 1.0)))


class Bimodal(Households):
    """Households of which a share LARGE are businesses.

    They use FACTOR + 1/2 times as much as a household on workdays from eight to six, and otherwise half as much.
    """

    name = "bimodal"
    about = "half-hourly energy of households and, one in twelve, of businesses with 8.5 times as much in working hours"

    LARGE, FACTOR = 1 / 12, 8.0

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return super()._traits(rng) | {"large": (rng.random(BLOCK) < self.LARGE).astype(np.float64)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        at = np.arange(HALF_HOURS)
        opened = (at >= 16) & (at < 36) & (not is_weekend(day))
        size = 1.0 + (self.FACTOR * opened - 0.5) * traits["large"][:, None]
        return np.asarray(super()._day(rng, traits, day) * size)


class HeatWave(Households):
    """Households of which a share COOLED use about POWER Wh more per half-hour while they cool.

    They cool between 11:00 and 22:00, mostly on the days WAVE[0] <= day < WAVE[1].
    """

    name = "heat-wave"
    about = "half-hourly energy of households, a third of which cool in the afternoon, mostly on hot days"

    COOLED, POWER, WAVE = 1 / 3, 700.0, (9, 13)

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        power = np.where(rng.random(BLOCK) < self.COOLED, lognormal(rng, 0.3), 0.0)
        return super()._traits(rng) | {"cooling": power}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        hot = 1.0 if self.WAVE[0] <= day < self.WAVE[1] else 0.15
        afternoon = np.maximum(np.sin(np.pi * (np.arange(HALF_HOURS) - 22.0) / 22.0), 0.0)
        running = rng.random((BLOCK, HALF_HOURS)) < hot * afternoon
        return np.asarray(super()._day(rng, traits, day) + self.POWER * traits["cooling"][:, None] * running)


class Offices(Households):
    """Offices: large loads on workdays from eight to six, a fifth of them otherwise.

    Their sizes differ as those of households do. The days CLOSED are days off, too.
    """

    name = "offices"
    about = "half-hourly energy of offices, which at night and on days off use a fifth as much as in working hours"

    CLOSED: ClassVar[tuple[int, ...]] = ()

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        at = np.arange(HALF_HOURS)
        works = (at >= 16) & (at < 36) & (not is_weekend(day)) & (day not in self.CLOSED)
        return np.asarray(traits["size"][:, None] * np.where(works, 500.0, 100.0) * lognormal(rng, 0.5, (BLOCK, 48)))


class Holiday(Offices):
    """Offices that are closed on two workdays of the second week."""

    name = "holiday"
    about = "half-hourly energy of offices, which are closed on two workdays of the second week"

    CLOSED = (9, 10)


class Pareto(Synthetic):
    """Counts with a Pareto tail of exponent TAIL, which are larger by day. A device's scale is lognormal."""

    name = "pareto"
    about = "counts per half-hour with a Pareto tail of exponent 1.2, larger by day"
    unit = "events"
    bound = 10_000
    step_seconds = 1800

    TAIL = 1.2

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"scale": 10.0 * lognormal(rng, 0.4)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        hours = 1.0 - 0.4 * np.cos(2.0 * np.pi * (np.arange(HALF_HOURS) - 6.0) / HALF_HOURS)
        return np.asarray(traits["scale"][:, None] * hours * (1.0 + rng.pareto(self.TAIL, (BLOCK, HALF_HOURS))))

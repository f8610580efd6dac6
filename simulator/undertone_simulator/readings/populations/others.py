"""Synthetic populations of phones' usage, time in a state, heavy-tailed counts, and room temperatures.

The constants are chosen, not fitted: each class explains its own.
"""

import numpy as np

from undertone_simulator.readings.populations.synthetic import BLOCK, Floats, Synthetic, is_weekend, lognormal


class Phones(Synthetic):
    """Number of times that a phone is unlocked per hour: a Poisson count with a Gamma mean, thus negative binomial.

    The mean is UNLOCKS a day over all phones. A phone's own rate is lognormal with log deviation SPREAD, a day's with
    DAY_SD. The hours of the day follow HOURS, on weekends two hours later. Within an hour counts cluster with a Gamma
    factor of shape BUNCHING (variance = mean + mean²/BUNCHING).
    """

    name = "phones"
    about = "unlocks of a phone per hour, counts that cluster"
    unit = "unlocks"
    bound = 200
    step_seconds = 3600

    UNLOCKS = 80.0
    SPREAD = 0.7
    DAY_SD = 0.3
    BUNCHING = 1.5
    # fmt: off
    HOURS = (
        0.30, 0.15, 0.08, 0.05, 0.05, 0.15, 0.55, 1.10, 1.30, 1.20, 1.20, 1.30,
        1.45, 1.35, 1.25, 1.25, 1.35, 1.50, 1.55, 1.55, 1.55, 1.50, 1.20, 0.67,
    )
    # fmt: on

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"rate": self.UNLOCKS / 24.0 * lognormal(rng, self.SPREAD)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        hours = np.roll(self.HOURS, 2 if is_weekend(day) else 0) / np.mean(self.HOURS)
        rate = (traits["rate"] * lognormal(rng, self.DAY_SD))[:, None] * hours
        counts = rng.poisson(rate * rng.gamma(self.BUNCHING, 1.0 / self.BUNCHING, rate.shape))
        return np.asarray(counts, dtype=np.float64)


class TimeInState(Synthetic):
    """Seconds per half-hour that something is on (a heating pump, a charger, presence): a two-state chain by minute.

    A device is on for a share of the time, Beta(SHARE_A, SHARE_B) over devices, in spells of geometric length with
    mean SPELL minutes; most half-hours read 0 or 1800.
    """

    name = "time-in-state"
    about = "seconds per half-hour that something is on, mostly 0 or 1800"
    unit = "s"
    bound = 1800
    step_seconds = 1800

    SHARE_A = 1.0
    SHARE_B = 2.5
    SPELL = 45.0

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"share": np.clip(rng.beta(self.SHARE_A, self.SHARE_B, BLOCK), 0.001, 0.95)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        share = traits["share"]
        stops = 1.0 / self.SPELL
        starts = stops * share / (1.0 - share)
        on = rng.random(BLOCK) < share
        seconds = np.zeros((BLOCK, 48))
        for minute in range(1440):
            chance = rng.random(BLOCK, dtype=np.float32)
            on = np.where(on, chance >= stops, chance < starts)
            seconds[:, minute // 30] += 60.0 * on
        return seconds


class HeavyTail(Synthetic):
    """Counts per half-hour: zero with probability ZEROS, else Pareto(TAIL). Only the bound makes their variance finite.

    A device's scale is lognormal about SCALE with log deviation SPREAD.
    """

    name = "heavy-tail"
    about = "counts per half-hour with a Pareto tail and many zeros"
    unit = "events"
    bound = 10_000
    step_seconds = 1800

    ZEROS = 0.3
    TAIL = 1.5
    SCALE = 20.0
    SPREAD = 0.4

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"scale": self.SCALE * lognormal(rng, self.SPREAD)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        counts = traits["scale"][:, None] * (1.0 + rng.pareto(self.TAIL, (BLOCK, 48)))
        return np.where(rng.random(counts.shape) < self.ZEROS, 0.0, counts)


class Temperature(Synthetic):
    """Room temperatures of 15 to 25 °C, in tenths of a degree above -40 °C. The sensor's range is -40 to 85 °C.

    A room's own level is normal with deviation SPREAD around MEAN, a day's with DAY_SD; the time of day adds
    from -SWING at 4:00 to SWING at 16:00; slots differ by NOISE. All these are in degrees.
    """

    name = "temperature"
    about = "rooms within 15 to 25 degrees, for a sensor of -40 to 85"
    unit = "dC above -40"
    bound = 1250
    step_seconds = 1800

    MEAN = 20.0
    SPREAD = 1.2
    DAY_SD = 0.6
    SWING = 1.5
    NOISE = 0.3

    def _traits(self, rng: np.random.Generator) -> dict[str, Floats]:
        return {"level": rng.normal(self.MEAN, self.SPREAD, BLOCK)}

    def _day(self, rng: np.random.Generator, traits: dict[str, Floats], day: int) -> Floats:
        hours = -np.cos(2.0 * np.pi * (np.arange(48) - 8) / 48.0)
        level = (traits["level"] + rng.normal(0.0, self.DAY_SD, BLOCK))[:, None] + self.SWING * hours
        degrees = np.clip(level + rng.normal(0.0, self.NOISE, level.shape), 15.0, 25.0)
        return np.asarray(np.rint(10.0 * (degrees + 40.0)), dtype=np.float64)

"""Populations of the threshold experiment, as frequencies of integer readings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_SIZE = 400_000
# (name, file, array, factor to integers, bound) of the real data sets.
_REAL = (
    ("POS", "pos_length.npz", "v", 1.0, 1638),
    ("DNS", "dns_google_1k.npz", "v", 1.0, 500),
    ("EDRP", "edrp_scotland_622x4416_halfhour_wh.npz", "wh", 1.0, 10_000),
    ("London daily", "london_daily_energy_kwh.npz", "kwh", 100.0, 20_000),
)


@dataclass(frozen=True)
class CountedReadings:
    """A population: `counts` [bound + 1] is the number of readings with each integer value.

    `measured`: True for real data. `tuned`: True for real data that the method was tuned on.
    """

    name: str
    counts: Counts
    tuned: bool = False
    measured: bool = False

    @property
    def bound(self) -> int:
        """The public bound B."""
        return len(self.counts) - 1


def real(data: Path) -> list[CountedReadings]:
    """Read POS, DNS, EDRP, and London's daily energy in units of 10 Wh, from `data`.

    Raises OSError without the files.
    """
    populations = []
    for name, file, array, factor, bound in _REAL:
        with np.load(data / file) as arrays:
            readings = arrays[array].ravel().astype(np.float64)
        readings = readings[np.isfinite(readings)] * factor
        populations.append(CountedReadings(name, _counts(readings, bound), tuned=name != "London daily", measured=True))
    return populations


def in_time_order(data: Path) -> NDArray[np.int64]:
    """Read EDRP's half-hourly Wh, slot after slot; shape [slots, households]."""
    with np.load(data / "edrp_scotland_622x4416_halfhour_wh.npz") as arrays:
        return np.asarray(arrays["wh"].T.astype(np.int64))


def synthetic() -> list[CountedReadings]:
    """Make 400,000 readings of each synthetic shape that the method must handle, from fixed seeds."""
    shapes: dict[str, tuple[Callable[[np.random.Generator], Floats], int]] = {
        "Weibull 0.8": (lambda g: g.weibull(0.8, _SIZE) * 200, 10_000),
        "lognormal, σ = 1": (lambda g: np.exp(g.normal(5, 1, _SIZE)), 20_000),
        "half-normal": (lambda g: np.abs(g.normal(0, 300, _SIZE)), 5_000),
        "Pareto 1.5": (lambda g: (g.pareto(1.5, _SIZE) + 1) * 20, 10_000),
        "60 % zeros": (lambda g: g.weibull(0.9, _SIZE) * 300 * (g.random(_SIZE) >= 0.6), 10_000),
        "10 % at 100×, Weibull": (lambda g: _far(g, g.weibull(1.2, _SIZE) * 50), 50_000),
        "10 % at 100×, gamma": (lambda g: _far(g, g.gamma(4, 10, _SIZE)), 50_000),
        "10 % at 100×, narrow": (lambda g: _far(g, g.normal(30, 3, _SIZE)), 50_000),
        "Pareto 1.1": (lambda g: (g.pareto(1.1, _SIZE) + 1) * 20, 10_000),
        "Pareto 1.2": (lambda g: (g.pareto(1.2, _SIZE) + 1) * 20, 10_000),
        "Pareto 2": (lambda g: (g.pareto(2.0, _SIZE) + 1) * 20, 10_000),
    }
    return [
        CountedReadings(name, _counts(shape(np.random.default_rng([7, i])), bound))
        for i, (name, (shape, bound)) in enumerate(shapes.items())
    ]


def mixture(seed: int) -> CountedReadings:
    """Make a random mixture of two to four lognormal, gamma or Weibull groups, bound 20,000."""
    generator = np.random.default_rng([11, seed])
    shares = generator.dirichlet(np.full(int(generator.integers(2, 5)), 2.0))
    parts = []
    for share in shares:
        scale = float(np.exp(generator.normal(5.0, 1.0)))
        size = round(share * _SIZE)
        family = int(generator.integers(3))
        if family == 0:
            part = scale * np.exp(generator.normal(0.0, generator.uniform(0.3, 1.0), size))
        elif family == 1:
            shape = float(generator.uniform(0.5, 4.0))
            part = scale / shape * generator.gamma(shape, 1.0, size)
        else:
            part = scale * generator.weibull(generator.uniform(0.7, 2.0), size)
        parts.append(part)
    return CountedReadings(f"mixture {seed}", _counts(np.concatenate(parts), 20_000))


def _far(generator: np.random.Generator, readings: Floats) -> Floats:
    return np.where(generator.random(len(readings)) < 0.1, 100.0 * readings, readings)


def _counts(readings: Floats, bound: int) -> Counts:
    return np.bincount(np.clip(np.rint(readings), 0, bound).astype(np.int64), minlength=bound + 1)

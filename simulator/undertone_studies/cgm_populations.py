"""Streams for the experiments, as shares of a public range: real data from files, and synthetic stand-ins.

The names of stand-ins say that they are stand-ins.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EDRP_FILE = "edrp_scotland_622x4416_halfhour_wh.npz"
LONDON_FILE = "london_daily_energy_kwh.npz"
EDRP_RANGE = 2000.0
LONDON_RANGE = 50.0
DAY = 48
_EDRP_DAYS = range(4, 92, 18)
_LONDON_DAYS = 484
_SEED = 20210


@dataclass(frozen=True)
class CgmStreams:
    """``windows``: streams [devices, slots] in [0, 1], each window under a budget of its own; ``range`` in ``unit``.

    ``per_report``: the budget is per report, as in the paper's Kaggle experiment. ``slews``: values of C to try, the
    middle one for comparisons. ``cycle``: slots of the readings' natural period, None without one.
    """

    name: str
    label: str
    windows: tuple[Array, ...]
    range: float
    unit: str
    slews: tuple[str, str, str]
    cycle: int | None = None
    per_report: bool = False

    @property
    def slots(self) -> int:
        """Number of reports of one stream."""
        return int(self.windows[0].shape[1])

    @property
    def devices(self) -> int:
        """Number of devices in the data."""
        return len(self.windows[0])


def edrp(folder: Path) -> CgmStreams:
    """Half-hours of five days, four weekdays and a Saturday, of 622 Scottish households (spring 2009)."""
    with np.load(folder / EDRP_FILE) as file:
        wh = file["wh"].astype(np.float64)
    windows = tuple(np.minimum(wh[:, day * DAY : (day + 1) * DAY] / EDRP_RANGE, 1.0) for day in _EDRP_DAYS)
    label = f"EDRP, half-hours of {len(windows)} days, readings up to {EDRP_RANGE:g} Wh"
    return CgmStreams("edrp", label, windows, EDRP_RANGE, "Wh", ("0.01", "0.05", "0.1"))


def london(folder: Path) -> CgmStreams:
    """484 days of those London households that have a reading on each of them."""
    with np.load(folder / LONDON_FILE) as file:
        kwh = file["kwh"].astype(np.float64)
    starts = range(0, kwh.shape[1] - _LONDON_DAYS + 1)
    complete = [np.isfinite(kwh[:, s : s + _LONDON_DAYS]).all(axis=1) for s in starts]
    start = int(np.argmax([rows.sum() for rows in complete]))
    daily = kwh[complete[start], start : start + _LONDON_DAYS]
    window = np.minimum(daily / LONDON_RANGE, 1.0)
    label = f"London daily, {len(window)} households without a gap in {_LONDON_DAYS} days, up to {LONDON_RANGE:g} kWh"
    return CgmStreams("london", label, (window,), LONDON_RANGE, "kWh", ("0.01", "0.05", "0.1"), cycle=7)


def kaggle_like() -> CgmStreams:
    """A synthetic stand-in for daily views of pages over 550 days.

    2000 pages are drawn, and those with more than 20,000 views on any day are left out.
    """
    rng = np.random.default_rng(_SEED)
    pages, days = 2000, 550
    level = np.exp(4.5 + 1.6 * rng.standard_normal(pages))[:, None]
    week = 1 + 0.15 * np.sin(2 * np.pi * (np.arange(days) / 7 + rng.random((pages, 1))))
    drift = np.cumsum(0.02 * rng.standard_normal((pages, days)), axis=1)
    burst = np.exp(1.5 * rng.standard_exponential((pages, days)) * (rng.random((pages, days)) < 0.01))
    views = np.rint(level * week * np.exp(drift + 0.2 * rng.standard_normal((pages, days))) * burst)
    scaled = views[(views <= 20_000).all(axis=1)] / 20_000
    label = f"synthetic stand-in for the Kaggle pages: {len(scaled)} pages, 550 days, budget per day"
    return CgmStreams("kaggle-like", label, (scaled,), 20_000.0, "views", ("0.01", "0.025", "0.05"), 7, per_report=True)


def taxi_like() -> CgmStreams:
    """A synthetic stand-in for the share of each half-hour that 2000 taxis spend in a zone, over one day."""
    rng = np.random.default_rng(_SEED + 1)
    taxis, slots = 2000, DAY
    busy = 0.06 + 0.05 * np.sin(2 * np.pi * (np.arange(slots) - 14) / slots)
    inside = np.zeros((taxis, slots))
    here = rng.random(taxis) < busy[0]
    for i in range(slots):
        # A taxi that enters the zone stays for two half-hours on average.
        here = np.where(here, rng.random(taxis) < 0.5, rng.random(taxis) < 0.5 * busy[i] / (1 - busy[i]))
        inside[:, i] = np.where(here, rng.beta(1.5, 1.5, taxis), 0.0)
    return CgmStreams(
        "taxi-like",
        f"synthetic stand-in for the Beijing taxis: {taxis} taxis, one day",
        (inside,),
        1.0,
        "share",
        ("0.01", "0.05", "0.1"),
    )

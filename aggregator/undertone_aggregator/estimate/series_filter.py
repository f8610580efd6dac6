"""The filter of `estimate.filter` applied to a campaign's estimates: whole series at once, or slot by slot as they
settle.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate import filter as core
from undertone_aggregator.estimate.calendar import Days, calendar
from undertone_aggregator.estimate.estimates import Estimate, Load, Series
from undertone_aggregator.estimate.seasonal import Calendar
from undertone_aggregator.estimate.state_space import Filter, Noise, Vector

# Number of reports in a slot at which the slot's own variance estimate counts as much as the whole series' estimate.
_FEW_REPORTS = 50.0
# Assumed standard deviation of a device's independent variation per slot, relative to the largest standard deviation
# that readings in [0, θ] can have.
_OWN = 0.6


@dataclass(frozen=True)
class SeriesFilter:
    """Settings of the filter for a campaign: slot length, cycle (in slots), days, a stream's ``chains``, the
    ``stride``.

    ``bottom``: slot -> low end of the range that readings are truncated to, in their unit.
    """

    slot_seconds: int
    cycle: int
    days: Days = field(default_factory=Days)
    chains: int = 1
    stride: int = 1
    bottom: Callable[[int], int] = lambda slot: 0

    def smoothed(self, estimates: Iterable[Estimate]) -> list[Estimate]:
        """Return the filtered series of raw estimates, by slot, then series; each value uses all estimates.

        Estimates without a standard error (threshold rounds) are left out.
        """
        smoothed: list[Estimate] = []
        for raw in by_series(estimates).values():
            done = self.run(raw)
            if done.used:
                pairs = zip(raw, done.mean.tolist(), done.standard_error.tolist(), strict=True)
                smoothed += [as_filtered(estimate, mean, error) for estimate, mean, error in pairs]
            else:
                smoothed += [as_filtered(e, e.estimate, e.truncated_se or 0.0) for e in raw]
        return sorted(smoothed, key=lambda estimate: (estimate.slot, estimate.series))

    def run(self, raw: Sequence[Estimate], before: core.Fitted | None = None) -> core.Filtered:
        """Filter one series; ``before``: its last fit, to start from."""
        slots = np.array([estimate.slot for estimate in raw], dtype=np.int64)
        return core.filtered(slots, _values(raw), self.noise(raw), self._calendar(slots), before=before)

    def noise(self, raw: Sequence[Estimate]) -> Noise:
        """Return the noise of one series' estimates.

        A variance that is estimated from few reports is shrunk towards a report's variance in the whole series: a slot
        whose reports happen to agree is not more precise.
        """
        variance = np.square([estimate.truncated_se or 0.0 for estimate in raw])
        if all(estimate.carried is None for estimate in raw):
            reports = np.array([max(estimate.reports, 1) for estimate in raw])
            pooled = float(variance @ reports**2 / reports.sum())
            drawn = (variance * reports + _FEW_REPORTS * pooled / reports) / (reports + _FEW_REPORTS)
            return Noise(drawn, chance=self._chance(raw, drawn))
        carried = np.array([estimate.carried or 0.0 for estimate in raw])
        return Noise(variance, carried, self.chains, self._chance(raw, variance))

    def _chance(self, raw: Sequence[Estimate], variance: Vector) -> float:
        """Return the chance error of the whole fleet's mean in a slot, relative to the noise."""
        fleet = self.stride * float(np.mean([max(estimate.reports, 1) for estimate in raw]))
        bottom = float(np.mean([self.bottom(estimate.slot) for estimate in raw]))
        top = float(np.mean([bottom if estimate.theta is None else estimate.theta for estimate in raw]))
        mean = float(np.mean(_values(raw)))
        return own_chance(mean - bottom, top - bottom, fleet) / math.sqrt(float(np.mean(variance)))

    def step(self, run: Filter, fitted: core.Fitted, raw: Sequence[Estimate]) -> tuple[Vector, Vector]:
        """Return (mean, standard error) of newer estimates of one series, each given those before it."""
        slots = np.array([estimate.slot for estimate in raw], dtype=np.int64)
        return core.step(run, fitted, slots, _values(raw), self.noise(raw), self._calendar(slots))

    def _calendar(self, slots: NDArray[np.int64]) -> Calendar:
        return calendar(slots, self.slot_seconds, self.cycle, self.days)

    @property
    def memory(self) -> int:
        """Number of slots that a fit uses."""
        return min(core.FIT_CYCLES * self.cycle, core.FIT_SLOTS)

    @property
    def sentence(self) -> str:
        """The filter's assumptions, as a sentence."""
        day = self.cycle * self.slot_seconds == 86400
        local = f" by the clock of {self.days.zone}, weekends and holidays apart" if day else ""
        return (
            f"filtered: a pattern of {self.cycle} slots that changes slowly{local}, a memory of some slots and a slow "
            f"level, all estimated from this series alone; where raw is as good it is left as it is"
        )


class LiveFilter:
    """Filtered estimates of a running campaign, each given the data so far; refitted once per cycle."""

    def __init__(self, how: SeriesFilter) -> None:
        self._how = how
        self._series: dict[Series, _Running] = {}

    def take(self, raw: Iterable[Estimate]) -> list[Estimate]:
        """Return the filtered estimates of raw ones that have settled; at most one series is refitted per call."""
        filtered: list[Estimate] = []
        patient = False
        for series, estimates in by_series(raw).items():
            running = self._series.setdefault(series, _Running(self._how))
            filtered += running.take(estimates)
            if not patient and running.due:
                running.refit()
                patient = True
        return sorted(filtered, key=lambda estimate: (estimate.slot, estimate.series))


class _Running:
    """One series: its newest raw estimates, the fit, and the filter's state after all of them."""

    def __init__(self, how: SeriesFilter) -> None:
        self._how = how
        self._raw: list[Estimate] = []
        self._fitted: core.Fitted | None = None
        self._used = False
        self._state: Filter | None = None
        self._next = core.FEWEST
        self._taken = 0

    @property
    def due(self) -> bool:
        """True if a refit is due: a cycle of new estimates has come, or as many as the last fit used."""
        return self._taken >= self._next

    def take(self, estimates: Sequence[Estimate]) -> list[Estimate]:
        """Filter the estimates of newer slots, which are final."""
        self._taken += len(estimates)
        self._raw = [*self._raw, *estimates][-self._how.memory :]
        if self._state is None or self._fitted is None or not self._used:
            return [as_filtered(e, e.estimate, e.truncated_se or 0.0) for e in estimates]
        means, errors = self._how.step(self._state, self._fitted, estimates)
        triples = zip(estimates, means.tolist(), errors.tolist(), strict=True)
        return [as_filtered(raw, mean, error) for raw, mean, error in triples]

    def refit(self) -> None:
        """Refit to all stored estimates, and run the filter up to the newest slot."""
        done = self._how.run(self._raw, self._fitted)
        self._fitted, self._used = done.fitted, done.used
        self._next = self._taken + min(max(self._taken, core.FEWEST), self._how.cycle)
        if self._fitted is not None:
            self._state = core.running(self._fitted, self._how.noise(self._raw))
            self._how.step(self._state, self._fitted, self._raw)


def own_chance(mean: float, theta: float, fleet: float) -> float:
    """Return the assumed chance error (a standard deviation) of the mean of ``fleet`` readings in [0, theta] in a slot.

    The readings' variance is at most m(θ - m) (Bhatia & Davis, 2000); the part that is constant for a device is no
    chance.
    """
    return _OWN * math.sqrt(max(mean * (theta - mean), 0.0) / fleet)


def by_series(estimates: Iterable[Estimate]) -> dict[Series, list[Estimate]]:
    """Group the estimates that have a standard error by series, ascending in time."""
    series: dict[Series, list[Estimate]] = {}
    for estimate in sorted(estimates, key=lambda estimate: estimate.slot):
        if estimate.truncated_se:
            series.setdefault(estimate.series, []).append(estimate)
    return series


def as_filtered(raw: Estimate, mean: float, error: float) -> Estimate:
    """Return the filtered series' estimate for the slot of ``raw``; its error includes that of the truncation bias."""
    load = Load.of(mean - (raw.bias or 0.0), error, raw.bias, raw.bias_se)
    return replace(raw, series=raw.series._replace(filtered=True), misfit=None, carried=None, **load._asdict())


def _values(raw: Sequence[Estimate]) -> Vector:
    return np.array([estimate.estimate for estimate in raw])

"""The filter of `estimate.filter`, applied to a campaign's estimates: to whole series, or slot by slot as they
settle.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate import filter as core
from undertone_aggregator.estimate.calendar import Days, calendar
from undertone_aggregator.estimate.estimates import Estimates, Series
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

    ``bottom``: slot -> low end of the range that readings are truncated to, in their unit. ``used``: False if the plan
    asks for the raw series in place of the filtered one.
    """

    slot_seconds: int
    cycle: int
    days: Days = field(default_factory=Days)
    chains: int = 1
    stride: int = 1
    bottom: Callable[[int], int] = lambda slot: 0
    used: bool = True

    def smoothed(self, estimates: Estimates) -> Estimates:
        """Return the filtered series of raw estimates, by slot, then series; each value uses all estimates.

        Estimates without a standard error, those of threshold rounds, are left out.
        """
        parts = []
        for raw in by_series(estimates).values():
            done = self.run(raw) if self.used else None
            if done is not None and done.used:
                parts.append(as_filtered(raw, done.mean, done.standard_error))
            else:
                parts.append(as_filtered(raw, raw.estimate, raw.truncated_se))
        return Estimates.together(parts)

    def run(self, raw: Estimates, before: core.Fitted | None = None) -> core.Filtered:
        """Filter one series; ``before``: its last fit, from which the new fit starts."""
        return core.filtered(raw.slot, raw.estimate, self.noise(raw), self._calendar(raw.slot), before=before)

    def noise(self, raw: Estimates) -> Noise:
        """Return the noise of one series' estimates.

        A variance that is estimated from few reports is shrunk towards a report's variance in the whole series: if the
        reports of a slot happen to be alike, the slot is not more precise for that.
        """
        variance = np.square(np.nan_to_num(raw.truncated_se))
        if np.isnan(raw.carried).all():
            reports = np.maximum(raw.reports, 1)
            pooled = float(variance @ reports**2 / reports.sum())
            drawn = (variance * reports + _FEW_REPORTS * pooled / reports) / (reports + _FEW_REPORTS)
            return Noise(drawn, chance=self._chance(raw, drawn))
        return Noise(variance, np.nan_to_num(raw.carried), self.chains, self._chance(raw, variance))

    def _chance(self, raw: Estimates, variance: Vector) -> float:
        """Return the chance error of the whole fleet's mean in a slot, relative to the noise."""
        fleet = self.stride * float(np.mean(np.maximum(raw.reports, 1)))
        bottom = float(np.mean([self.bottom(slot) for slot in raw.slot.tolist()]))
        top = float(np.mean(np.where(np.isnan(raw.theta), bottom, raw.theta)))
        mean = float(np.mean(raw.estimate))
        return own_chance(mean - bottom, top - bottom, fleet) / math.sqrt(float(np.mean(variance)))

    def step(self, run: Filter, fitted: core.Fitted, raw: Estimates, left: int = 0) -> tuple[Vector, Vector, int]:
        """Return the filtered means of newer estimates of one series, each given all estimates up to it.

        The result is (means, standard errors, ``left``); for ``left`` see `estimate.filter.unsettled`.
        """
        return core.step(run, fitted, raw.slot, raw.estimate, self.noise(raw), self._calendar(raw.slot), left)

    def _calendar(self, slots: NDArray[np.int64]) -> Calendar:
        return calendar(slots, self.slot_seconds, self.cycle, self.days)

    @property
    def memory(self) -> int:
        """Largest number of slots that a fit uses."""
        return min(core.FIT_CYCLES * self.cycle, core.FIT_SLOTS)

    @property
    def sentence(self) -> str:
        """The filter's assumptions, as a sentence."""
        if not self.used:
            return "not filtered, as the plan says"
        day = self.cycle * self.slot_seconds == 86400
        local = f" (by the clock of {self.days.zone}; days off have a pattern of their own)" if day else ""
        return (
            "filtered: the sum of three parts, estimated from this series alone: a pattern that repeats every"
            f" {self.cycle} slots and changes slowly{local}, a slow level, and deviations that last for some slots."
            " Where the filter gains nothing, the raw mean stays"
        )


class LiveFilter:
    """Filtered estimates of a running campaign, each given the data so far.

    The filter is refitted once per cycle, and more often in the first cycle.
    """

    def __init__(self, how: SeriesFilter) -> None:
        self._how = how
        self._series: dict[Series, _Running] = {}

    def take(self, raw: Estimates) -> Estimates:
        """Return the filtered estimates of raw estimates that have settled. At most one series is refitted per call."""
        filtered: list[Estimates] = []
        patient = False
        for series, estimates in by_series(raw).items():
            running = self._series.setdefault(series, _Running(self._how))
            filtered.append(running.take(estimates))
            if not patient and running.due:
                running.refit()
                patient = True
        return Estimates.together(filtered)


class _Running:
    """One series: its newest raw estimates, the fit, and the filter's state after all of them."""

    def __init__(self, how: SeriesFilter) -> None:
        self._how = how
        self._raw: list[Estimates] = []
        self._fitted: core.Fitted | None = None
        self._used = False
        self._state: Filter | None = None
        self._left = 0
        self._next = core.FEWEST
        self._taken = 0

    @property
    def due(self) -> bool:
        """True if a refit is due.

        The first is due after `FEWEST` (`estimate.filter`) estimates. Each further one is due when the number of
        estimates has doubled since the last refit, or grown by one cycle.
        """
        return self._how.used and self._taken >= self._next

    def take(self, estimates: Estimates) -> Estimates:
        """Filter the estimates of newer slots, which are final."""
        self._taken += len(estimates)
        self._raw.append(estimates)
        if self._state is None or self._fitted is None or not self._used:
            return as_filtered(estimates, estimates.estimate, estimates.truncated_se)
        mean, error, self._left = self._how.step(self._state, self._fitted, estimates, self._left)
        return as_filtered(estimates, mean, error)

    def refit(self) -> None:
        """Refit to all stored estimates, and run the filter up to the newest slot."""
        raw = Estimates.together(self._raw)[-self._how.memory :]
        self._raw = [raw]
        done = self._how.run(raw, self._fitted)
        self._fitted, self._used = done.fitted, done.used
        self._next = self._taken + min(max(self._taken, core.FEWEST), self._how.cycle)
        if self._fitted is not None:
            self._state = core.running(self._fitted, self._how.noise(raw))
            self._left = self._how.step(self._state, self._fitted, raw)[2]


def own_chance(mean: float, theta: float, fleet: float) -> float:
    """Return the assumed chance error (a standard deviation) of the mean of ``fleet`` readings in [0, theta] in a slot.

    The readings' variance is at most m(θ - m), where m is their mean (Bhatia & Davis, 2000). The part of the variance
    that is constant for a device does not count as chance.
    """
    return _OWN * math.sqrt(max(mean * (theta - mean), 0.0) / fleet)


def by_series(estimates: Estimates) -> dict[Series, Estimates]:
    """Return the estimates that have a standard error by series, ascending in time."""
    estimates = estimates.take(np.nan_to_num(estimates.truncated_se) > 0)
    names = list(map(Series, *(getattr(estimates, name).tolist() for name in Series._fields)))
    series: dict[Series, list[int]] = {}
    for place, name in enumerate(names):
        series.setdefault(name, []).append(place)
    return {name: _ascending(estimates.take(np.array(places))) for name, places in series.items()}


def _ascending(estimates: Estimates) -> Estimates:
    return estimates.take(np.argsort(estimates.slot, kind="stable"))


def as_filtered(raw: Estimates, mean: Vector, error: Vector) -> Estimates:
    """Return the estimates of the filtered series for the slots of ``raw``.

    ``mean``, ``error``: the filter's result and its standard error [n]. The returned standard errors also count the
    error of the truncation bias.
    """
    nothing = np.full(len(raw), np.nan)
    filtered = replace(raw, filtered=np.ones(len(raw), dtype=bool), misfit=nothing, carried=nothing)
    return filtered.with_load(mean - np.nan_to_num(raw.bias), error, raw.bias, raw.bias_se)

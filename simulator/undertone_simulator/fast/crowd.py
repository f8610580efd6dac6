"""Reports of a crowd: many devices with the readings of a sample, drawn as one histogram for each slot.

The device-by-device simulation of `fast.reporting` takes time for each report. A crowd takes time for each slot,
however many devices it has. Its devices have the readings of the sample's devices in equal shares, their reports have
the mechanisms' exact probabilities, and all devices are honest and always present.

Where every device reports in a slot, the readings are fixed and only the mechanism is random: the readings are rounded
at random to a grid of `_GRID` steps over the slot's range, which keeps each mean, and the symbols of a grid point's
devices have a multinomial distribution. Where a part of the devices reports, by turns or for the threshold, the part
is a new random sample of the crowd in each slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import EVERYBODY, Key
from undertone_aggregator.design.levels import level_positions, weight_rows
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.threshold.channel import WindowChannel
from undertone_shared import report
from undertone_shared.mechanism import WindowMechanism
from undertone_shared.scalar import ScalarRule
from undertone_simulator.fast.fleet import Flags
from undertone_simulator.fast.reporting import ReportContext
from undertone_simulator.fast.tally import Cell, SimulationTally
from undertone_simulator.readings.readings import Integers

Vector = NDArray[np.float64]

# Steps of the grid of readings.
_GRID = 64


@dataclass(frozen=True)
class Crowd:
    """``devices`` devices with the readings of ``sample`` devices; ``seed``: of everything that is drawn."""

    devices: int
    sample: int
    seed: int

    def report(
        self,
        context: ReportContext,
        tally: SimulationTally,
        slots: Sequence[int],
        readings: Integers,
        has: Flags | None,
    ) -> None:
        """Draw and count the reports of these slots, and record the true sums over the sample.

        ``readings`` [slots, sample]: those of the sample; ``has``: mask of readings that exist, None for all.
        """
        rule, schedule = context.campaign.rule, context.campaign.schedule
        assert isinstance(rule, ScalarRule)
        for row, slot in enumerate(slots):
            measured = readings[row] if has is None else readings[row][has[row]]
            if not len(measured):
                continue
            turn = self.devices * len(measured) / (self.sample * schedule.stride)
            chosen = turn / schedule.cohort_stride if schedule.cohort_stride else 0.0
            self._count(context, tally, slot, report.COHORT, measured, chosen)
            self._count(context, tally, slot, report.REPORT, measured, turn - chosen)
            if rule.report is not None:
                low, high = rule.report.range_of(slot, context.campaign.cycle)
                sums = int(np.clip(measured, low, high).sum()), int(measured.sum())
                tally.observe(Cell(slot), EVERYBODY, len(measured), *sums)

    def _count(
        self, context: ReportContext, tally: SimulationTally, slot: int, kind: int, measured: Integers, expected: float
    ) -> None:
        """Draw and count one kind of report; ``expected``: the expected number of devices that send it."""
        campaign, rule = context.campaign, context.campaign.rule
        assert isinstance(rule, ScalarRule)
        rng = np.random.default_rng([self.seed, slot, kind])
        reports = int(expected + rng.random())
        if not reports:
            return
        if kind == report.COHORT or rule.report is None:
            counts = rng.multinomial(reports, _cohort_law(rule.cohort.mechanism, measured))
        else:
            low, high = rule.report.range_of(slot, campaign.cycle)
            shares = _shares(np.clip(measured, low, high) - low, np.linspace(0, high - low, _GRID + 1))
            whole = campaign.schedule.stride == 1
            devices = _rounded(reports * shares, rng) if whole else rng.multinomial(reports, shares)
            counts = rng.multinomial(devices, _rows(rule.report.mechanism, high - low)).sum(axis=0)
        tally.count(Key(campaign.name, campaign.fingerprint, kind, EVERYBODY, slot), counts.astype(np.int64))


def _shares(readings: Integers, points: Vector) -> Vector:
    """Return the shares of the points [n] that result if each reading is rounded at random to one of its neighbours."""
    below = np.clip(np.searchsorted(points, readings, side="right") - 1, 0, len(points) - 2)
    above = (readings - points[below]) / (points[below + 1] - points[below])
    shares = np.bincount(below, 1.0 - above, len(points)) + np.bincount(below + 1, above, len(points))
    return np.asarray(np.maximum(shares, 0.0) / len(readings))


def _rounded(expected: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
    """Round ``expected`` at random to integers, each less than 1 away; their sum is less than 1 away, too."""
    sums = np.floor(np.cumsum(expected) + rng.random())
    return np.diff(sums, prepend=0.0).astype(np.int64)


def _cohort_law(mechanism: WindowMechanism, readings: Integers) -> Vector:
    """Return the probabilities of the Square Wave's symbols; its end bins also take all readings outside the edges."""
    assert mechanism.edges is not None
    bins = np.searchsorted(mechanism.edges[1:-1], readings, side="right")
    shares = np.bincount(bins, minlength=mechanism.levels + 1) / len(readings)
    return _normal(WindowChannel(mechanism).apply(shares))


@lru_cache(maxsize=32)
def _rows(mechanism: Mechanism, width: int) -> Vector:
    """Return the probabilities of the symbols for each point of the grid over [0, width]; [`_GRID` + 1, symbols]."""
    positions = level_positions(mechanism, width)
    points = np.linspace(0, width, _GRID + 1)
    levels = np.stack([np.interp(points, positions, row) for row in np.eye(len(positions))], axis=1)
    return _normal(levels @ weight_rows(mechanism))


def _normal(weights: Vector) -> Vector:
    """Return the weights divided by their sum, along the last axis."""
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

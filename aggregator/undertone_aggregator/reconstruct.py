"""Reconstruction: per slot and group the mean of the devices that reported, with a standard error that holds.

The interval covers the mean of the *truncated* readings of the devices that reported by the report mechanism: a fixed
number, so only the mechanism's noise counts, not the spread of the readings. Its variance is the mechanism's exact one:
Var(Y|x) = p0 + p1 x + p2 x² at reading x in [-1, 1], with the mean of x and x² over the devices estimated without bias
from the same reports. (The empirical variance of the decoded reports would add the readings' own spread: too wide by a
third at ε = 4 on household meters.) The wider interval is meant to cover the mean of the readings themselves: it adds
the model of `undertone_aggregator.bias`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.admission import EVERYBODY
from undertone_aggregator.bias import TruncationBias
from undertone_aggregator.epochs import Epoch, Timeline
from undertone_aggregator.partial import Counts, Key, add_counts
from undertone_aggregator.threshold import CohortCounts, WindowChannel, expectation_maximisation
from undertone_shared import report
from undertone_shared.campaign import ReportRule

Vector = NDArray[np.float64]

# Nominal 95 %.
Z = 1.959963984540054
MEASURED = "report"
MODEL = "model"
# Below this the reports say too little about x²; only stochastic rounding, alone, has 1 + p2 = 0.
_LEAST_CURVATURE = 0.2


@dataclass(frozen=True)
class Estimate:
    """One slot of one group, in the reading's unit.

    ``kind`` ``report``: the mean over ``reports`` devices, unbiased for their readings truncated at ``theta``, and a
    95 % interval [low, high]. ``kind`` ``model``: a threshold epoch, the mean of a fitted distribution, without
    standard error or stated coverage. ``cohort``: reports for the threshold in the slot. ``start``: Unix second.
    ``bias`` with its ``bias_se``: what truncation removes from the mean, a model, and [low_raw, high_raw] the 95 %
    interval that adds it; None where no threshold round came before.
    """

    slot: int
    start: int
    group: str
    kind: str
    reports: int
    cohort: int
    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None
    theta: int | None
    bias: float | None = None
    bias_se: float | None = None
    low_raw: float | None = None
    high_raw: float | None = None

    @property
    def total(self) -> float:
        """The sum over the reporting devices."""
        return self.estimate * self.reports


class Decoder:
    """Mean and variance from a histogram of one epoch's reports."""

    def __init__(self, rule: ReportRule, offset: int) -> None:
        mechanism = rule.mechanism
        width = rule.width
        self.symbols = mechanism.symbols
        self._half = width / 2.0
        self._middle = offset + rule.low + self._half
        # In units of [-1, 1], from exact rationals.
        self._y = np.array([float(Fraction(*mechanism.decode(j, width)) / width * 2 - 1) for j in range(self.symbols)])
        levels = [Fraction(*mechanism.value(k, width)) / width * 2 - 1 for k in range(mechanism.levels + 1)]
        variances = [float(Fraction(*mechanism.variance(k, width)) / width / width * 4) for k in range(len(levels))]
        # Exact for window mechanisms and the Hybrid, whose variance is a quadratic; a fit for tables.
        degree = min(2, len(levels) - 1)
        fitted = np.polynomial.polynomial.polyfit([float(x) for x in levels], variances, degree)
        self._p0, self._p1, self._p2 = (*(float(p) for p in fitted), 0.0)[:3]
        # Rounding between neighbouring levels, averaged over where a reading may lie between them.
        self._rounding = float(np.mean([float(b - a) ** 2 for a, b in pairwise(levels)])) / 6.0

    def mean(self, counts: Counts) -> tuple[float, float, int]:
        """(mean, its variance, number of reports), in the reading's unit. ``counts`` [symbols], at least one report."""
        n = int(counts.sum())
        first = float(counts @ self._y) / n
        second = float(counts @ np.square(self._y)) / n
        variance = self.noise(first, second, n)
        return self._middle + self._half * first, self._half**2 * variance / n, n

    def noise(self, first: float, second: float, n: int) -> float:
        """The mechanism's mean variance over n readings, from the mean and mean square of the decoded reports."""
        x = min(max(first, -1.0), 1.0)
        rounding = (1.0 + self._p2) * self._rounding
        if 1.0 + self._p2 > _LEAST_CURVATURE:
            square = (second - self._p0 - self._p1 * x - rounding) / (1.0 + self._p2)
        else:
            square = x * x - second / n
        square = min(max(square, x * x, 0.0), 1.0)
        return max(self._p0 + self._p1 * x + self._p2 * square + rounding, 0.0)


class Reconstruction:
    """Estimates from Partials, under a campaign's epochs."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._decoders: dict[bytes, Decoder] = {}

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """One estimate per slot and group that has reports, by slot, then group; ``all`` is everybody together.

        ``groups``: only these. Reports of an old epoch within the grace are decoded by their own rule.
        """
        cells: dict[tuple[int, str], dict[tuple[int, bytes], Counts]] = {}
        for key, counts in partial.items():
            for group in {key.group, EVERYBODY}:
                into = cells.setdefault((key.slot, group), {})
                source = (key.kind, key.fingerprint)
                into[source] = add_counts(into[source], counts) if source in into else counts
        wanted = None if groups is None else set(groups)
        found = [
            self._estimate(slot, group, cells[slot, group])
            for slot, group in sorted(cells)
            if wanted is None or group in wanted
        ]
        return self._with_bias([one for one in found if one is not None])

    def _with_bias(self, estimates: list[Estimate]) -> list[Estimate]:
        """The same estimates with the model of what truncation removed, its daily profile learnt from them all."""
        together: dict[tuple[Epoch, str], list[Estimate]] = {}
        for one in estimates:
            epoch = self.timeline.at(one.slot)
            if one.kind == MEASURED and epoch is not None and epoch.threshold is not None:
                together.setdefault((epoch, one.group), []).append(one)
        found = {}
        for (epoch, _), ones in together.items():
            bias = self._bias(epoch, ones)
            found.update({(one.slot, one.group): _raw(one, epoch, bias) for one in ones})
        return [found.get((one.slot, one.group), one) for one in estimates]

    def _bias(self, epoch: Epoch, estimates: list[Estimate]) -> TruncationBias:
        campaign = epoch.campaign
        assert epoch.threshold is not None
        assert campaign.report is not None
        sums: dict[int, list[float]] = {}
        for one in estimates:
            sums.setdefault(one.slot % campaign.cycle, []).append(one.estimate - campaign.offset)
        noise = float(np.mean([(one.standard_error or 0.0) ** 2 for one in estimates]))
        profile = {phase: (float(np.mean(means)), noise / len(means)) for phase, means in sums.items()}
        return TruncationBias(epoch.threshold, campaign.report.theta, profile)

    def _estimate(self, slot: int, group: str, sources: Mapping[tuple[int, bytes], Counts]) -> Estimate | None:
        measured: list[tuple[Epoch, Counts]] = []
        model: list[tuple[Epoch, Counts]] = []
        for (kind, fingerprint), counts in sources.items():
            epoch = self.timeline.of(fingerprint)
            if epoch is not None and counts.sum():
                (measured if kind == report.REPORT else model).append((epoch, counts))
        cohort = sum(int(counts.sum()) for _, counts in model)
        if not measured and not model:
            return None
        start = slot * (measured or model)[0][0].campaign.slot_seconds
        if not measured:
            epoch, counts = max(model, key=lambda one: int(one[1].sum()))
            return Estimate(slot, start, group, MODEL, 0, cohort, self._model(epoch, counts), None, None, None, None)
        parts = [self.decoder(epoch).mean(counts) for epoch, counts in measured]
        reports = sum(n for _, _, n in parts)
        mean = sum(n * m for m, _, n in parts) / reports
        error = math.sqrt(sum(n * n * v for _, v, n in parts)) / reports
        newest = max((epoch for epoch, _ in measured), key=lambda epoch: epoch.campaign.epoch)
        theta = newest.campaign.report.theta if newest.campaign.report else None
        return Estimate(
            slot, start, group, MEASURED, reports, cohort, mean, error, mean - Z * error, mean + Z * error, theta
        )

    def decoder(self, epoch: Epoch) -> Decoder:
        """The decoder of a report epoch, made once."""
        fingerprint = epoch.campaign.fingerprint
        if fingerprint not in self._decoders:
            rule = epoch.report
            assert rule is not None
            self._decoders[fingerprint] = Decoder(rule, epoch.campaign.offset)
        return self._decoders[fingerprint]

    def _model(self, epoch: Epoch, counts: Counts) -> float:
        """The mean of the distribution that expectation maximisation fits to one slot of the cohort."""
        mechanism = epoch.campaign.cohort.mechanism
        edges = CohortCounts(mechanism, counts).edges
        # Smoothing would move mass between cells of very different width, hence the mean.
        fit = expectation_maximisation(WindowChannel(mechanism), counts.astype(np.float64), stop="paper")
        return epoch.campaign.offset + float(fit.density @ self._cell_means(edges))

    def _cell_means(self, edges: tuple[int, ...]) -> Vector:
        """The mean reading within each cell: under the newest fitted distribution, else the cell's middle."""
        middles = (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2.0
        chosen = next((e.threshold for e in reversed(self.timeline.epochs) if e.threshold is not None), None)
        if chosen is None:
            return np.asarray(middles)
        fine = np.asarray(chosen.edges, dtype=np.float64)
        centre = (fine[:-1] + fine[1:] - 1) / 2.0
        cell = np.clip(np.searchsorted(edges, centre, side="right") - 1, 0, len(middles) - 1)
        mass = np.bincount(cell, weights=chosen.density, minlength=len(middles))
        moment = np.bincount(cell, weights=chosen.density * centre, minlength=len(middles))
        return np.where(mass > 0, moment / np.where(mass > 0, mass, 1.0), middles)


def _raw(one: Estimate, epoch: Epoch, bias: TruncationBias) -> Estimate:
    """The estimate with its wider interval."""
    removed, error = bias.at(one.slot % epoch.campaign.cycle, one.reports)
    half = Z * math.hypot(one.standard_error or 0.0, error)
    middle = one.estimate + removed
    return replace(one, bias=removed, bias_se=error, low_raw=middle - half, high_raw=middle + half)

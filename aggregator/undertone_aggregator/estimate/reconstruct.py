"""Reconstruction: per slot and group the mean of the reporting devices' readings, with its interval.

The mean of the *truncated* readings of the devices that reported is a fixed number, so only the mechanism's noise
counts in its standard error, not the spread of the readings: see `estimate.noise`. (The empirical variance of the
decoded reports would add that spread: too wide by a third at ε = 4 on household meters.) In a campaign whose devices
take turns, the mean of the whole fleet is wanted, and the devices that reported are a random part of the fleet: there
the empirical variance is right. The estimate is of the mean of the readings themselves: it adds the model of
`undertone_aggregator.estimate.bias`.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, add_counts
from undertone_aggregator.design.population import Population
from undertone_aggregator.estimate.bias import (
    STALE,
    STALE_SHARE,
    Level,
    Removed,
    TwoSidedBias,
    bias_of,
    error_of_mean,
)
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate, Load, RangeEstimate, Series, Z
from undertone_aggregator.estimate.misfit import Goodness, manipulation
from undertone_aggregator.estimate.noise import decoded, noise_of
from undertone_aggregator.estimate.ranges import BiasError, over, over_slots
from undertone_aggregator.threshold import CohortCounts, Threshold, WindowChannel, expectation_maximisation
from undertone_shared import report
from undertone_shared.scalar import ReportRule

Vector = NDArray[np.float64]
_LONGEST_MEMORY = 96
# For readings that move by an amount, the level around a slot is a mean over 1/16, 1/8, 1/4 or 1/2 of a cycle before
# and after the slot: the shortest time at which its error is at most 1/16 of the range.
_NEAR, _SHARP = (16, 8, 4, 2), 16.0


class Decoder:
    """Decodes a histogram of one epoch's reports to mean and variance; also the range of a single decoded report.

    ``population``: the readings less the offset, as estimated from earlier slots. ``sampled``: the mean is for a fleet
    of which a random sample reported, so its variance is the empirical variance of the decoded reports, s²/n: noise,
    rounding and the spread of the readings (without 1/stride of the spread, because the sample is that share of the
    fleet). The variance of the noise alone is its lower limit: two or three reports may be alike by chance without
    being exact. ``block``: the index of the block of the day whose range is used.
    """

    def __init__(
        self,
        rule: ReportRule,
        offset: int,
        population: Population | None = None,
        *,
        sampled: bool = False,
        block: int = 0,
    ) -> None:
        _, low, theta = rule.ranges[block]
        width = theta - low
        self.symbols = rule.mechanism.symbols
        self._half = width / 2.0
        self._sampled = sampled
        self._middle = offset + low + self._half
        self._y = decoded(rule.mechanism, width)
        used = population and population.above(low)
        self.noise = noise_of(rule.mechanism, width, used)
        self.goodness = Goodness(rule.mechanism, width, used)
        sent = self._y[self.goodness.possible]
        self.lowest, self.highest = (float(self._middle + self._half * y) for y in (sent.min(), sent.max()))

    def mean(self, counts: Counts) -> tuple[float, float, int]:
        """Return (mean, its variance, number of reports), in the reading's unit.

        ``counts`` [symbols], at least one report.
        """
        means, variances, reports = self.means(counts[None])
        return float(means[0]), float(variances[0]), int(reports[0])

    def means(self, counts: Counts) -> tuple[Vector, Vector, NDArray[np.int64]]:
        """Return ``mean`` of many histograms [slots, symbols]; three arrays [slots]."""
        n = counts.sum(axis=1)
        mean = counts @ self._y / n
        variance = self.noise(counts)
        if self._sampled:
            spread = (counts * np.square(self._y - mean[:, None])).sum(axis=1) / np.maximum(n - 1, 1)
            variance = np.maximum(variance, np.where(n > 1, spread, 0.0))
        return self._middle + self._half * mean, self._half**2 * variance / n, n


class _Measured(NamedTuple):
    """What the reports of one epoch say about the mean of a slot and group.

    If two epochs have reports in a slot, the slot's misfit is the sum of theirs.
    """

    epoch: Epoch
    decoder: Decoder
    mean: float
    variance: float
    reports: int
    misfit: float


class Reconstruction:
    """The `Estimator` of independent reports: histograms under a campaign's epochs."""

    def __init__(self, timeline: Timeline, models: dict[str, float] | None = None) -> None:
        """``models``: cache of means fitted to threshold rounds, by the hash of their input; this object adds to it."""
        self.timeline = timeline
        self.models = {} if models is None else models
        self._decoders: dict[tuple[bytes, int], Decoder] = {}
        self._channels: dict[bytes, WindowChannel] = {}

    @property
    def memory(self) -> int:
        """One cycle, which shows the current level of readings; noise of different slots is independent."""
        newest = self.timeline.last
        return 0 if newest is None else min(newest.campaign.cycle, _LONGEST_MEMORY)

    @property
    def chains(self) -> int:
        """Always 1: noise of different slots is independent."""
        return 1

    def estimates(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """Return one estimate per slot and group with reports, by slot, then group; ``all`` means all devices together.

        ``groups``: only these. Reports of an old epoch that arrive within the grace period are decoded by their own
        rule.
        """
        return self._with_bias(partial, groups)[0]

    def truncated(self, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> list[Estimate]:
        """Return ``estimates`` of the means of truncated readings, without the model of what truncation removes."""
        cells: dict[tuple[int, str], dict[tuple[int, bytes], Counts]] = {}
        for key, counts in partial.items():
            for group in {key.group, EVERYBODY}:
                into = cells.setdefault((key.slot, group), {})
                source = (key.kind, key.fingerprint)
                into[source] = add_counts(into[source], counts) if source in into else counts
        if groups is not None:
            wanted = set(groups)
            cells = {key: sources for key, sources in cells.items() if key[1] in wanted}
        means = self._means(cells)
        estimates = [self._estimate(*key, cells[key], means.get(key, ())) for key in sorted(cells)]
        return [estimate for estimate in estimates if estimate is not None]

    def ranges(
        self, partial: Mapping[Key, Counts], every: int, groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """See `estimate.ranges.over`."""
        estimates, bias_error = self._with_bias(partial, groups)
        return over(estimates, every, bias_error)

    def means(
        self, partial: Mapping[Key, Counts], slots: Collection[int], groups: Iterable[str] | None = None
    ) -> list[RangeEstimate]:
        """See `estimate.ranges.over_slots`."""
        estimates, bias_error = self._with_bias(partial, groups)
        return over_slots(estimates, slots, bias_error)

    def warnings(self, estimates: Sequence[Estimate]) -> list[str]:
        """Return a sentence if readings have changed so much since the rounds that θ no longer fits them."""
        newest = self.timeline.last
        if newest is None or newest.threshold is None:
            return []
        campaign = newest.campaign
        measured = [
            e for e in estimates if e.kind == MEASURED and e.series == Series() and e.slot >= campaign.first_slot
        ]
        levels = levels_of(measured, campaign.offset, campaign.cycle) if measured else []
        if not levels or levels[-1] is None:
            return []
        bias = bias_of(newest, measured)
        if isinstance(bias, TwoSidedBias):
            share, least, most = bias.moved(levels[-1])
            if least <= STALE_SHARE and most >= -STALE_SHARE:
                return []
            return [
                f"theta is stale: readings have moved by about {share:+.0%} of the range that was chosen for them"
                f" ({campaign.thetas}); the mean of readings outside it is a guess"
            ]
        factor, low, high = bias.factor(levels[-1])
        if low <= STALE and high >= 1 / STALE:
            return []
        return [
            f"theta is stale: readings are about {factor:.2g} times those that theta = {campaign.thetas} was"
            f" chosen for; truncation removes about {bias.excess(levels[-1]):.3g} {campaign.unit} of the mean"
        ]

    def _means(
        self, cells: Mapping[tuple[int, str], Mapping[tuple[int, bytes], Counts]]
    ) -> dict[tuple[int, str], list[_Measured]]:
        """Estimate each slot and group from its epoch's reports; slots with the same decoder are computed together."""
        together: dict[Decoder, list[tuple[tuple[int, str], Epoch, Counts]]] = {}
        for key, sources in cells.items():
            for (kind, fingerprint), counts in sources.items():
                epoch = self.timeline.of(fingerprint)
                if kind == report.REPORT and counts.sum() and epoch is not None:
                    together.setdefault(self.decoder(epoch, key[0]), []).append((key, epoch, counts))
        means: dict[tuple[int, str], list[_Measured]] = {}
        for decoder, ones in together.items():
            counts = np.stack([counts for _, _, counts in ones])
            columns = (*decoder.means(counts), decoder.goodness.misfits(counts))
            for (key, epoch, _), values in zip(ones, zip(*map(np.ndarray.tolist, columns), strict=True), strict=True):
                means.setdefault(key, []).append(_Measured(epoch, decoder, *values))
        return means

    def _with_bias(
        self, partial: Mapping[Key, Counts], groups: Iterable[str] | None
    ) -> tuple[list[Estimate], BiasError]:
        """Return the estimates with the model of truncation bias, and the error of the mean of several biases.

        The model's daily profile is fitted to all of these estimates.
        """
        estimates = self.truncated(partial, groups)
        together: dict[tuple[Epoch, str], list[Estimate]] = {}
        for estimate in estimates:
            epoch = self.timeline.at(estimate.slot)
            if estimate.kind == MEASURED and epoch is not None and epoch.threshold is not None:
                together.setdefault((epoch, estimate.group), []).append(estimate)
        removed: dict[tuple[int, str], Removed] = {}
        cycle = 1
        for (epoch, group), ones in together.items():
            campaign, bias = epoch.campaign, bias_of(epoch, ones)
            cycle = campaign.cycle
            if isinstance(bias, TwoSidedBias):
                levels: list[Level | None] = [*_near(ones, campaign.offset, cycle, bias.width / _SHARP)]
            else:
                levels = levels_of(ones, campaign.offset, cycle)
            # Where devices take turns, the mean is of all devices, of which one in ``stride`` reports in a slot.
            devices = [estimate.reports * campaign.schedule.stride for estimate in ones]
            parts = bias.each([estimate.slot % cycle for estimate in ones], devices, levels)
            removed |= {(estimate.slot, group): part for estimate, part in zip(ones, parts, strict=True)}

        def bias_error(chosen: Sequence[Estimate]) -> float:
            parts = [removed[estimate.slot, estimate.group] for estimate in chosen]
            return error_of_mean(parts, [estimate.slot for estimate in chosen], cycle)

        both = [(estimate, removed.get((estimate.slot, estimate.group))) for estimate in estimates]
        return [estimate if part is None else _corrected(estimate, part) for estimate, part in both], bias_error

    def _estimate(
        self, slot: int, group: str, sources: Mapping[tuple[int, bytes], Counts], measured: Sequence[_Measured]
    ) -> Estimate | None:
        model: list[tuple[Epoch, Counts]] = []
        for (kind, fingerprint), counts in sources.items():
            epoch = self.timeline.of(fingerprint)
            if kind != report.REPORT and epoch is not None and counts.sum():
                model.append((epoch, counts))
        cohort = sum(int(counts.sum()) for _, counts in model)
        if not measured:
            if not model:
                return None
            start = slot * model[0][0].campaign.slot_seconds
            epoch, counts = max(model, key=lambda part: int(part[1].sum()))
            return Estimate(
                slot, start, Series(group), MODEL, 0, cohort, self._model(epoch, counts), None, None, None, None
            )
        start = slot * measured[0].epoch.campaign.slot_seconds
        reports = sum(part.reports for part in measured)
        mean = sum(part.reports * part.mean for part in measured) / reports
        error = math.sqrt(sum(part.reports * part.reports * part.variance for part in measured)) / reports
        newest = max((part.epoch for part in measured), key=lambda epoch: epoch.campaign.epoch)
        theta = newest.campaign.ranges[newest.block_at(slot)][2]
        lowest = min(part.decoder.lowest for part in measured)
        highest = max(part.decoder.highest for part in measured)
        return Estimate(
            *(slot, start, Series(group), MEASURED, reports, cohort, mean, error),
            *(mean - Z * error, mean + Z * error, theta),
            misfit=sum(part.misfit for part in measured),
            manipulation=manipulation(mean, lowest, highest),
        )

    def decoder(self, epoch: Epoch, slot: int = 0) -> Decoder:
        """Return the decoder of a slot of a report epoch; there is one for each block of the cycle."""
        block = epoch.block_at(slot)
        key = (epoch.campaign.fingerprint, block)
        if key not in self._decoders:
            rule, chosen = epoch.report, epoch.choice_of(block)
            assert rule is not None
            population = None if chosen is None else Population(chosen.density, chosen.edges)
            sampled = epoch.campaign.schedule.stride > 1
            self._decoders[key] = Decoder(rule, epoch.campaign.offset, population, sampled=sampled, block=block)
        return self._decoders[key]

    def _model(self, epoch: Epoch, counts: Counts) -> float:
        """Return the mean of the distribution that expectation maximisation fits to one slot of the cohort."""
        # Cells are wide: the mean reading within each one is taken from the distribution that the rounds ended with.
        chosen = next((e for e in self.timeline.epochs if e.chosen is not None), None)
        behind = b"" if chosen is None or chosen.chosen is None else chosen.chosen.encode()
        key = hashlib.sha256(epoch.campaign.fingerprint + counts.tobytes() + behind).hexdigest()[:16]
        if key not in self.models:
            cohort = epoch.campaign.cohort
            assert cohort is not None
            fit = expectation_maximisation(self._channel(epoch), counts.astype(np.float64))
            means = _cell_means(
                CohortCounts(cohort.mechanism, counts).edges, None if chosen is None else chosen.threshold
            )
            self.models[key] = epoch.campaign.offset + float(fit.density @ means)
        return self.models[key]

    def _channel(self, epoch: Epoch) -> WindowChannel:
        fingerprint = epoch.campaign.fingerprint
        if fingerprint not in self._channels:
            assert epoch.campaign.cohort is not None
            self._channels[fingerprint] = WindowChannel(epoch.campaign.cohort.mechanism)
        return self._channels[fingerprint]


def _cell_means(edges: tuple[int, ...], chosen: Threshold | None) -> Vector:
    """Return the mean reading within each cell: under a fitted distribution, else the cell's middle."""
    middles = (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2.0
    if chosen is None:
        return np.asarray(middles)
    fine = np.asarray(chosen.edges, dtype=np.float64)
    centre = (fine[:-1] + fine[1:] - 1) / 2.0
    cell = np.clip(np.searchsorted(edges, centre, side="right") - 1, 0, len(middles) - 1)
    mass = np.bincount(cell, weights=chosen.density, minlength=len(middles))
    moment = np.bincount(cell, weights=chosen.density * centre, minlength=len(middles))
    return np.where(mass > 0, moment / np.where(mass > 0, mass, 1.0), middles)


def levels_of(estimates: Sequence[Estimate], offset: int, cycle: int) -> list[Level | None]:
    """Return the level around each of ascending slots; None if less than half of the cycle has estimates.

    The level is the mean of the cycle's phases, plus the average deviation of the slots within half a cycle from their
    phases' means.
    """
    slots = np.array([estimate.slot for estimate in estimates])
    values = np.array([estimate.truncated_mean - offset for estimate in estimates])
    phases, place = np.unique(slots % cycle, return_inverse=True)
    if 2 * len(phases) < cycle:
        return [None] * len(slots)
    means = np.bincount(place, values) / np.bincount(place)
    away = np.append(0.0, np.cumsum(values - means[place]))
    variance = np.append(0.0, np.cumsum([(estimate.truncated_se or 0.0) ** 2 for estimate in estimates]))
    first = np.searchsorted(slots, slots - cycle // 2)
    end = np.searchsorted(slots, slots + cycle // 2, side="right")
    n = end - first
    middle = float(means.mean()) + (away[end] - away[first]) / n
    error = np.sqrt(variance[end] - variance[first]) / n
    return [Level(float(m), float(e)) for m, e in zip(middle, error, strict=True)]


def _near(estimates: Sequence[Estimate], offset: int, cycle: int, sharp: float) -> list[Level]:
    """Return the level around each of ascending slots: the mean over as few slots as give an error of ``sharp``.

    It is a mean over the whole cycle, which hides the day's shape, if fewer slots do not.
    """
    slots = np.array([estimate.slot for estimate in estimates])
    sums = np.append(0.0, np.cumsum([estimate.truncated_mean - offset for estimate in estimates]))
    variance = np.append(0.0, np.cumsum([(estimate.truncated_se or 0.0) ** 2 for estimate in estimates]))
    for part in _NEAR:
        first = np.searchsorted(slots, slots - cycle // part)
        end = np.searchsorted(slots, slots + cycle // part, side="right")
        n = end - first
        errors = np.sqrt(variance[end] - variance[first]) / n
        if float(np.median(errors)) <= sharp:
            break
    means = (sums[end] - sums[first]) / n
    return [Level(float(m), float(e), part == _NEAR[-1]) for m, e in zip(means, errors, strict=True)]


def _corrected(estimate: Estimate, removed: Removed) -> Estimate:
    """Return the estimate of the readings' mean: the truncated mean plus the modelled bias of truncation."""
    load = Load.of(estimate.truncated_mean, estimate.truncated_se or 0.0, removed.bias, removed.standard_error)
    return replace(estimate, **load._asdict())

"""Reconstruction: per slot and group the mean of the reporting devices' readings, with its interval.

The mean of the *truncated* readings of the devices that reported is a fixed number. So only the mechanism's noise
counts in its standard error, and the spread of the readings does not: see `estimate.noise`. (The empirical variance of
the decoded reports would add that spread.) If the devices of a campaign take turns, the mean of the whole fleet is
wanted, and the devices that reported are a random part of the fleet: there the empirical variance is used. The estimate
is of the mean of the readings themselves. So it adds the model of what truncation removes, `estimate.excess`, or
`estimate.two_sided` if readings are truncated from below as well.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import EVERYBODY, Counts
from undertone_aggregator.design.population import Population
from undertone_aggregator.estimate.difference import GroupNoise, MeanDifference, Means, Side, difference
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimates, RangeEstimate, Series, Z
from undertone_aggregator.estimate.excess import ExcessModel, pieces_of
from undertone_aggregator.estimate.misfit import Goodness, joined, manipulation
from undertone_aggregator.estimate.noise import decoded, noise_of
from undertone_aggregator.estimate.ranges import BiasError, Places, over, over_slots
from undertone_aggregator.estimate.removed import Removed, Reported, error_of_mean, errors_of_slots
from undertone_aggregator.estimate.two_sided import TwoSided
from undertone_aggregator.threshold import CohortCounts, Threshold, WindowChannel, expectation_maximisation
from undertone_aggregator.threshold.result import WHITE_BOX
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import ReportRule

Vector = NDArray[np.float64]
_LONGEST_MEMORY = 96
# θ counts as stale if readings have certainly changed by more than the factor `STALE` since the rounds. If both ends of
# the range are truncated, θ is stale if readings have certainly moved by more than `STALE_SHARE` of the range's width.
STALE, STALE_SHARE = 4 / 3, 1 / 4


class Decoder:
    """Decodes a histogram of one epoch's reports to mean and variance; also gives the range of a single decoded report.

    ``population``: the readings minus the offset, as estimated from earlier slots. ``block``: the index of the block of
    the day whose range is used. ``sampled``: the mean is for a fleet of which a random sample reported. Its variance is
    then the empirical variance of the decoded reports, s²/n, which contains noise, rounding and the spread of the
    readings. The variance of the noise alone is its lower limit: two or three reports may be alike by chance without
    being exact. ``lowest``, ``highest``: the range of the values to which reports of honest devices decode.
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
        """Return ``mean`` of many histograms [slots, symbols], as three arrays [slots]."""
        n = counts.sum(axis=1)
        mean = counts @ self._y / n
        variance = self.noise(counts)
        if self._sampled:
            spread = (counts * np.square(self._y - mean[:, None])).sum(axis=1) / np.maximum(n - 1, 1)
            variance = np.maximum(variance, np.where(n > 1, spread, 0.0))
        return self._middle + self._half * mean, self._half**2 * variance / n, n


class _Measured(NamedTuple):
    """What the reports of one epoch say about the means of a group's slots; arrays [slots].

    ``theta``: the upper end of the range that the slot's readings were truncated to. ``lowest``, ``highest``: see
    `Decoder`. ``epoch``: Unix second at which the epoch began.
    """

    slot: NDArray[np.int64]
    epoch: NDArray[np.int64]
    mean: Vector
    variance: Vector
    reports: NDArray[np.int64]
    misfit: Vector
    theta: NDArray[np.int64]
    lowest: Vector
    highest: Vector

    @classmethod
    def together(cls, parts: "Sequence[_Measured]") -> "_Measured":
        """Return the slots of all parts, ascending by slot and epoch."""
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return cls(*(column[order] for column in columns))


class Reconstruction:
    """The `Estimator` of independent reports: histograms under a campaign's epochs."""

    def __init__(self, timeline: Timeline, models: dict[str, float] | None = None) -> None:
        """``models``: a cache of means that were fitted to threshold rounds, by the hash of their input. This object
        adds to it.
        """
        self.timeline = timeline
        self.models = {} if models is None else models
        self._decoders: dict[tuple[bytes, int], Decoder] = {}
        self._channels: dict[bytes, WindowChannel] = {}

    @property
    def memory(self) -> int:
        """The slots of one cycle, at most `_LONGEST_MEMORY`, because their reports show the current level of readings.

        The number is 0 for a timeline without an epoch.
        """
        newest = self.timeline.last
        return 0 if newest is None else min(newest.campaign.cycle, _LONGEST_MEMORY)

    @property
    def chains(self) -> int:
        """Always 1, because the noise of different slots is independent."""
        return 1

    def estimates(self, reports: Tables, group: str) -> Estimates:
        """Return one estimate per slot with reports.

        A report that a device made under an older epoch is decoded by the rule of that epoch.
        """
        return self._corrected(*self._truncated(reports, group))[0]

    def truncated(self, reports: Tables, group: str) -> Estimates:
        """Return ``estimates`` of the means of truncated readings, without the model of what truncation removes."""
        return self._truncated(reports, group)[0]

    def ranges(self, reports: Tables, group: str, every: int) -> list[RangeEstimate]:
        """See `estimate.ranges.over`."""
        estimates, bias_error = self._with_bias(reports, group)
        return over(estimates, every, bias_error)

    def means(self, reports: Tables, group: str, slots: Collection[int]) -> list[RangeEstimate]:
        """See `estimate.ranges.over_slots`."""
        estimates, bias_error = self._with_bias(reports, group)
        return over_slots(estimates, slots, bias_error)

    def differences(self, one: Side, other: Side) -> list[MeanDifference]:
        """See `estimate.difference`."""
        cycle = self.timeline.epochs[0].campaign.cycle
        row = difference(self._side(one), self._side(other), self._slot_seconds, cycle)
        return [] if row is None else [row]

    def _side(self, side: Side) -> Means:
        """Return what is known of one side of a difference."""
        truncated, begun = self._truncated(side.reports, side.group)
        estimates, removed = self._corrected(truncated, begun)
        measured = np.flatnonzero(estimates.kind == MEASURED)
        places = measured[np.isin(estimates.slot[measured], side.slots)]
        every, table, begun = estimates.take(measured), estimates.take(places), begun[places]
        choices = [epoch.chosen for epoch in self.timeline.epochs]
        choice = np.zeros(len(table), dtype=np.int64)
        for epoch in self.timeline.epochs:
            choice[begun == epoch.campaign.epoch] = choices.index(self._known_by(epoch).chosen)
        reports = table.reports.astype(np.float64)
        noise = GroupNoise(every.slot, every.reports.astype(np.float64), np.square(every.truncated_se)[:, None])
        series = Series(side.group)
        mean = table.truncated_mean
        return Means(series, side.slots, table.slot, mean, reports, removed.take(places), choice, noise)

    def warnings(self, estimates: Estimates) -> list[str]:
        """Return a sentence if readings have changed so much since the rounds that θ no longer fits them."""
        newest = self.timeline.last
        if newest is None or newest.threshold is None:
            return []
        campaign = newest.campaign
        of_all = (estimates.group == EVERYBODY) & (estimates.coordinate == 1) & ~estimates.filtered
        since = (estimates.kind == MEASURED) & (estimates.slot >= campaign.first_slot)
        measured = estimates.take(of_all & since)
        if not len(measured):
            return []
        model, reported = model_of(newest), reported_of(measured, campaign)
        moved = model.moved(reported)
        if moved is None:
            return []
        change, least, most = moved[-1].tolist()
        if isinstance(model, TwoSided):
            if least <= STALE_SHARE and most >= -STALE_SHARE:
                return []
            return [
                f"theta is stale: readings have moved by about {change:+.0%} of the range that was chosen for them"
                f" ({campaign.thetas}); the mean of readings outside this range is a guess"
            ]
        if least <= STALE and most >= 1 / STALE:
            return []
        removed = float(model.removed(reported).bias[-campaign.cycle :].mean())
        return [
            f"theta is stale: readings are about {change:.2g} times those that theta = {campaign.thetas} was"
            f" chosen for; truncation removes about {removed:.3g} {campaign.unit} of the mean"
        ]

    def _with_bias(self, reports: Tables, group: str) -> tuple[Estimates, BiasError]:
        """Return the estimates with the model of truncation bias, and a function for the error of a mean of biases."""
        estimates, removed = self._corrected(*self._truncated(reports, group))

        measured = np.flatnonzero(estimates.kind == MEASURED)
        reported, noise = estimates.slot[measured], np.square(estimates.truncated_se[measured])
        cycle = self.timeline.epochs[0].campaign.cycle

        def bias_error(places: Places) -> float:
            return error_of_mean(removed.take(places), estimates.slot[places], reported, noise, cycle)

        return estimates, bias_error

    def _corrected(self, estimates: Estimates, begun: NDArray[np.int64]) -> tuple[Estimates, Removed]:
        """Return the estimates of a group with their biases, and what truncation removes from them; nan if unknown.

        ``begun`` [slots]: see `_truncated`.
        """
        removed = Removed.unknown(len(estimates))
        measured = estimates.kind == MEASURED
        for epoch in self.timeline.epochs:
            ones = np.flatnonzero(measured & (begun == epoch.campaign.epoch))
            if epoch.threshold is None or not len(ones):
                continue
            of_epoch = model_of(epoch, self._known_by(epoch)).removed(reported_of(estimates.take(ones), epoch.campaign))
            if epoch.threshold.method == WHITE_BOX:
                of_epoch = of_epoch.as_error()
            for column, values in zip(removed, of_epoch, strict=True):
                column[ones] = values
        mean, error, bias_se = estimates.truncated_mean, estimates.truncated_se, np.full(len(estimates), np.nan)
        reported = removed.take(np.flatnonzero(measured))
        cycle = self.timeline.epochs[0].campaign.cycle
        bias_se[measured] = errors_of_slots(reported, estimates.slot[measured], np.square(error[measured]), cycle)
        return estimates.with_load(mean, error, removed.bias, bias_se), removed

    def _known_by(self, epoch: Epoch) -> Epoch:
        """Return the epoch whose choice of θ knows an epoch's readings best.

        It is the next epoch with a choice of θ, because that choice was also fitted to the reports of the epoch itself.
        If no such epoch follows, or if both ends of the range are truncated, it is the epoch itself.
        """
        if epoch.campaign.report is None or epoch.campaign.report.low:
            return epoch
        later = self.timeline.epochs[self.timeline.epochs.index(epoch) + 1 :]
        return next((one for one in later if one.threshold is not None), epoch)

    def _truncated(self, reports: Tables, group: str) -> tuple[Estimates, NDArray[np.int64]]:
        """Return ``truncated`` of one group's reports, and for each slot the epoch under which most of its reports were
        made.

        An epoch is given as the Unix second at which it began; 0 where nothing was measured.
        """
        measured: list[_Measured] = []
        model: list[tuple[Epoch, NDArray[np.int64], Counts]] = []
        for source, (slots, counts) in reports.items():
            epoch, filled = self.timeline.of(source.fingerprint), counts.any(axis=1)
            if epoch is not None and source.kind == report.REPORT:
                measured += self._measured(epoch, slots[filled], counts[filled])
            elif epoch is not None:
                model.append((epoch, slots[filled], counts[filled]))
        parts, begun = [], np.array([], dtype=np.int64)
        if measured:
            joined, begun = _joined(_Measured.together(measured), group, self._slot_seconds)
            parts = [joined]
        learning = self._learning(model, parts[0].slot if parts else np.array([], dtype=np.int64), group)
        both = Estimates.together([*parts, learning])
        for _, slots, counts in model:
            both.cohort[np.searchsorted(both.slot, slots)] += counts.sum(axis=1)
        of_slots = np.zeros(len(both), dtype=np.int64)
        of_slots[both.kind == MEASURED] = begun
        return both, of_slots

    @property
    def _slot_seconds(self) -> int:
        return self.timeline.epochs[0].campaign.slot_seconds

    def _measured(self, epoch: Epoch, slots: NDArray[np.int64], counts: Counts) -> Iterator[_Measured]:
        """Yield what an epoch's histograms [slots, symbols] say, for each of its decoders."""
        campaign = epoch.campaign
        blocks = np.searchsorted([first for first, _, _ in campaign.ranges], slots % campaign.cycle, side="right") - 1
        for block, (_, _, theta) in enumerate(campaign.ranges):
            ones = np.flatnonzero(blocks == block)
            if len(ones):
                decoder = self.decoder(epoch, int(slots[ones[0]]))
                means, variances, reports = decoder.means(counts[ones])
                misfits = decoder.goodness.misfits(counts[ones])
                same = np.array([[campaign.epoch], [theta], [decoder.lowest], [decoder.highest]]).repeat(len(ones), 1)
                yield _Measured(slots[ones], same[0].astype(np.int64), means, variances, reports, misfits, *same[1:])

    def _learning(
        self, tables: Sequence[tuple[Epoch, NDArray[np.int64], Counts]], measured: NDArray[np.int64], group: str
    ) -> Estimates:
        """Return the fitted means of the slots that have reports for the threshold and are not among the ``measured``
        slots.

        A slot with reports of several epochs gets the mean of the epoch with most of the reports. If several epochs
        have equally many, the newest counts.
        """
        largest: dict[int, tuple[int, Epoch, Counts]] = {}
        for epoch, slots, counts in sorted(tables, key=lambda table: table[0].campaign.epoch):
            for i in np.flatnonzero(~np.isin(slots, measured)).tolist():
                slot, n = int(slots[i]), int(counts[i].sum())
                if slot not in largest or n >= largest[slot][0]:
                    largest[slot] = (n, epoch, counts[i])
        slots = np.array(sorted(largest), dtype=np.int64)
        means = np.array([self._model(*largest[slot][1:]) for slot in slots.tolist()], dtype=np.float64)
        return Estimates.each(
            len(slots), group=group, kind=MODEL, slot=slots, start=slots * self._slot_seconds, model=means,
            reports=np.zeros_like(slots), cohort=np.zeros_like(slots),
        )  # fmt: skip

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
        """Return the mean of the distribution that expectation maximisation fits to the cohort's reports of a slot."""
        # A cell is too wide to be represented by its middle, so the mean reading within it is taken from the
        # distribution that the rounds ended with.
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
    """Return the mean reading within each cell [edges[i], edges[i + 1]), under the distribution in ``chosen``.

    It is the middle of the cell if the distribution has no reading there, or if ``chosen`` is None.
    """
    middles = (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2.0
    if chosen is None:
        return np.asarray(middles)
    fine = np.asarray(chosen.edges, dtype=np.float64)
    centre = (fine[:-1] + fine[1:] - 1) / 2.0
    cell = np.clip(np.searchsorted(edges, centre, side="right") - 1, 0, len(middles) - 1)
    mass = np.bincount(cell, weights=chosen.density, minlength=len(middles))
    moment = np.bincount(cell, weights=chosen.density * centre, minlength=len(middles))
    return np.where(mass > 0, moment / np.where(mass > 0, mass, 1.0), middles)


def _joined(measured: _Measured, group: str, slot_seconds: int) -> tuple[Estimates, NDArray[np.int64]]:
    """Return a group's estimates, and for each slot when the epoch of most of its reports began (a Unix second).

    A slot with reports of several epochs gets the mean over all of its reports, and the θ of the epoch with most of the
    reports. If several epochs have equally many, the newest counts.
    """
    slots, first = np.unique(measured.slot, return_index=True)
    ranked = np.lexsort((measured.epoch, measured.reports, measured.slot))
    most = ranked[np.append(first[1:], len(measured.slot)) - 1]
    reports = np.add.reduceat(measured.reports, first)
    mean = np.add.reduceat(measured.reports * measured.mean, first) / reports
    error = np.sqrt(np.add.reduceat(np.square(measured.reports) * measured.variance, first)) / reports
    lowest, highest = np.minimum.reduceat(measured.lowest, first), np.maximum.reduceat(measured.highest, first)
    estimates = Estimates.each(
        len(slots),
        group=group,
        kind=MEASURED,
        slot=slots,
        start=slots * slot_seconds,
        reports=reports,
        cohort=np.zeros(len(slots), dtype=np.int64),
        estimate=mean,
        standard_error=error,
        low=mean - Z * error,
        high=mean + Z * error,
        theta=measured.theta[most],
        misfit=joined(measured.misfit, first),
        manipulation=manipulation(mean, lowest, highest),
    )
    return estimates, measured.epoch[most]


@lru_cache(maxsize=64)
def model_of(epoch: Epoch, known_by: Epoch | None = None) -> ExcessModel | TwoSided:
    """Return the model of what truncation removes in a report epoch with a choice of θ. All groups share this model.

    ``known_by``: the epoch whose choice describes the readings, None for the epoch itself.
    """
    campaign, chosen = epoch.campaign, (known_by or epoch).threshold
    assert chosen is not None
    assert campaign.report is not None
    if campaign.report.low:
        return TwoSided(chosen, campaign.report.low, campaign.report.theta, campaign.bound, campaign.cycle)
    return ExcessModel(pieces_of(chosen), campaign.rule.ranges, campaign.cycle)


def reported_of(estimates: Estimates, campaign: Campaign) -> Reported:
    """Return the truncated means of these slots without the offset, their errors, and the numbers of devices.

    The slots of ``estimates`` are ascending.
    """
    # If devices take turns, the mean is of all devices, of which one in ``stride`` reports in a slot.
    devices = (estimates.reports * campaign.schedule.stride).astype(np.float64)
    error = np.nan_to_num(estimates.truncated_se)
    return Reported(estimates.slot, estimates.truncated_mean - campaign.offset, error, devices)

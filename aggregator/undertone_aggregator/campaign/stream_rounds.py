"""The epochs of a stream campaign: a threshold round if the plan asks for one, then one epoch that is the whole stream.

In the round each device sends one Square Wave report, under its own part of ε (`StreamPlan.round_epsilon`). θ is chosen
from these reports by ToPL's Eq. 8 with the variance of the stream's noise, and broadcast with the stream. It stays the
same for the whole stream: another θ would need a new stream, and devices have no budget for that. A successor of the
campaign begins with a round of its own.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.design import Budget, square_wave
from undertone_aggregator.design.named import stream_as
from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate.clipping import PART, levels_of, means_of
from undertone_aggregator.settings.config import CampaignPlan, StreamPlan
from undertone_aggregator.settings.plan_checks import coprime_near
from undertone_aggregator.threshold import CohortCounts, Query, Threshold, first_edges
from undertone_aggregator.threshold.choose import theta_from_reports
from undertone_aggregator.threshold.objective import Integers, mean_excess
from undertone_shared import report
from undertone_shared.scalar import Cohort
from undertone_shared.schedule import Schedule
from undertone_shared.stream import StreamRule

Vector = NDArray[np.float64]

# Each candidate for θ is this many times the one before.
_APART = 1.02
_LEAST = 2


def stream_rule(plan: CampaignPlan, stream: StreamPlan, theta: int | None = None) -> StreamRule:
    """Return the rule of the planned stream, whose parameters are integers. Raises Invalid.

    ``theta``: the θ that a threshold round chose; None: the plan's θ or, if the plan has none, the bound.
    """
    named = stream_as(stream.mechanism)
    planned = plan.bound if stream.theta is None else stream.theta
    return choose(
        named.law,
        rho_for(named.law, stream.budget(plan.epsilon)),
        slew=stream.slew,
        reports=stream.reports,
        theta=planned if theta is None else theta,
        chains=stream.chains,
        dimension=stream.dimension,
        lag=stream.lag,
        restart=stream.restart,
        renewal=stream.renewal,
        independent=named.independent,
        share=stream.share,
    )


def round_length(plan: CampaignPlan, stream: StreamPlan) -> int:
    """Return the length of the threshold round in slots, in which each device has one turn.

    It is near the planned length, and has no divisor in common with the cycle.
    """
    return coprime_near(stream.round_slots, 1, plan.cycle)


class StreamRounds:
    """Source of epochs for streams, like `undertone_aggregator.campaign.rounds.Rounds` for other campaigns."""

    fixed_end = "the budget of a stream covers its planned slots and no more"

    def __init__(self, plan: CampaignPlan, stream: StreamPlan, means: EpochMeans) -> None:
        self.plan = plan
        self.stream = stream
        self.rule = stream_rule(plan, stream)
        self._means = means

    def warnings(self) -> dict[str, str]:
        """Return a map: kind -> sentence about a part of the plan that will work, but badly."""
        window = self.rule.renewal or self.plan.report_slots
        if self.rule.reports >= window:
            return {}
        budget = f"a budget of {self.rule.reports} reports"
        span = "window" if self.rule.renewal else "stream"
        return {"budget": f"a device has {budget} for the {window} slots of a {span}: it stops before the {span} ends"}

    def first(self, now: int) -> Epoch:
        """Return the campaign's first epoch, which starts as planned, or as soon as the lead time allows."""
        first = max(self._soonest(now), (self.plan.start or 0) // self.plan.slot_seconds)
        return self._round(first, now) if self.stream.round_slots else self._stream(self.rule, first, now)

    def planned(self, now: int) -> list[Epoch]:
        """Return the planned epochs: the threshold round, if any, and the stream's epoch under the plan's largest θ."""
        first = self.first(now)
        if first.phase != THRESHOLD_PHASE:
            return [first]
        return [first, self._stream(self.rule, self._after(first), now)]

    def last_slot(self, timeline: Timeline) -> int:
        """Return the last slot of the stream's epoch; during the round, the one that is planned."""
        assert timeline.last is not None
        last = timeline.last.campaign.last_slot
        if timeline.last.phase != THRESHOLD_PHASE:
            return last
        return self._aligned(self._after(timeline.last)) + self.plan.report_slots - 1

    def learning_ends(self, timeline: Timeline) -> int | None:
        """Return the Unix second at which the stream begins if the round is not late; None once it is issued."""
        newest = timeline.last
        if newest is None or newest.phase != THRESHOLD_PHASE:
            return None
        return self._aligned(self._after(newest)) * self.plan.slot_seconds

    def reissued(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return None, because a stream's budget covers only its planned slots."""
        return None

    def due(self, timeline: Timeline, now: int) -> int | None:
        """Return the Unix second at which the round has settled; None once the stream is issued."""
        newest = timeline.last
        assert newest is not None
        if newest.phase != THRESHOLD_PHASE:
            return None
        return (newest.campaign.last_slot + 1 + self.plan.settle_slots) * self.plan.slot_seconds

    def waits(self, timeline: Timeline, now: int) -> str:
        """Return "": nothing is waited for, because each device has already sent its only report for the threshold."""
        return ""

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the stream's epoch under the θ that the round chose, or another round if nobody reported in it."""
        newest = timeline.last
        assert newest is not None
        campaign = newest.campaign
        partial = self._means.read(campaign.first_slot, campaign.last_slot, report.COHORT)
        histograms = [counts for key, counts in partial.items() if key.fingerprint == campaign.fingerprint]
        clock = self._means.clock
        soonest = self._soonest(now if clock is None else max(now, int(clock())))
        if not histograms:
            return self._round(soonest, now)
        assert campaign.cohort is not None
        cohort = CohortCounts(campaign.cohort.mechanism, np.sum(histograms, axis=0, dtype=np.int64))
        # The variance of a slot's noise in units of (θ/2)², the mean over the stream's reports.
        ages = range(1, self.rule.reports + 1)
        noise = 4 * float(np.mean([release_variance(self.rule, age) for age in ages]))
        chosen = theta_from_reports(
            [cohort],
            bound=self.plan.bound,
            variance=lambda _: noise,
            query=Query.fleet(cohort.total),
            method=self.plan.method,  # type: ignore[arg-type]
            offset=self.plan.offset,
        )
        for warning in chosen.warnings:
            self._means.warn(warning)
        slew = None if stream_as(self.stream.mechanism).independent else float(self.stream.slew)
        theta = stream_theta(chosen, self.plan.bound, slew, noise / 4, cohort.total)
        return self._stream(stream_rule(self.plan, self.stream, theta), soonest, now)

    def _soonest(self, now: int) -> int:
        return now // self.plan.slot_seconds + self.plan.lead_slots

    def _after(self, epoch: Epoch) -> int:
        """Return the first slot of the stream after the threshold round, if the round is not late."""
        return epoch.campaign.last_slot + 1 + self.plan.settle_slots + self.plan.lead_slots

    def _aligned(self, first: int) -> int:
        """Return the first slot, from slot ``first`` on, in which a stream can begin.

        With renewal this is a slot in which a period of the device policies' budget begins: a window of the stream that
        lies in two periods would be charged in both.
        """
        renewal = self.rule.renewal
        return -(-first // renewal) * renewal if renewal else first

    def _round(self, first: int, now: int) -> Epoch:
        """Return a threshold epoch in which each device has one turn; it ends with its last slot."""
        plan, part = self.plan, self.stream.round_epsilon
        assert part is not None
        stride = round_length(plan, self.stream)
        cohort = Cohort(square_wave(part, first_edges(plan.bound, plan.cells)))
        schedule = Schedule(self._means.seed, stride, 1)
        campaign = plan.epoch(first, first + stride - 1, cohort=cohort, schedule=schedule)
        return Epoch(campaign, now, budget=Budget(part))

    def _stream(self, rule: StreamRule, first: int, now: int) -> Epoch:
        first = self._aligned(first)
        return Epoch(self.plan.epoch(first, first + self.plan.report_slots - 1, stream=rule), now)


def stream_theta(found: Threshold, bound: int, slew: float | None, noise: float, devices: int) -> int:
    """Return the θ of least mean square error among integers that lie about 2 % apart.

    The error of a mean is ToPL's Eq. 8 with the variance of the stream's noise, and with a bias of two parts instead of
    one. Truncation at θ removes E[(x - θ)⁺] from the mean of the readings x; clipped steps remove `PART` of what
    `clipped_steps` returns. A larger θ makes both parts smaller, because the largest step is a share of the range.

    ``found``: the distribution; ``slew``: largest step as a share of the range, None without a limit; ``noise``:
    variance of a device's report, as a share of θ²; ``devices``: how many report in a slot.
    """
    count = int(np.log(max(bound, _LEAST + 1) / _LEAST) / np.log(_APART)) + 2
    thetas = np.unique(np.geomspace(_LEAST, bound, count).astype(np.int64))
    bias = mean_excess(found.density, found.edges, thetas)
    if slew is not None:
        bias += PART * clipped_steps(found, thetas, slew, bias)
    return int(thetas[np.argmin(bias**2 + noise * np.square(thetas.astype(np.float64)) / devices)])


def clipped_steps(found: Threshold, thetas: Integers, slew: float, excess: Vector) -> Vector:
    """Return by how much the clipping of steps lowers the mean, for each θ. Readings x are taken as independent.

    ``excess`` [thetas]: E[(x - θ)⁺].
    """
    edges = np.asarray(found.edges, dtype=np.float64)
    below = np.concatenate(([0.0], np.cumsum(found.density)))
    mean = float(np.dot(found.density, (edges[:-1] + edges[1:] - 1.0) / 2.0))
    shares = np.interp(thetas[:, None, None] * levels_of(slew), edges, below)
    return np.asarray(np.maximum(mean - excess - thetas * means_of(shares, slew), 0.0))

"""The single epoch of a stream campaign: it has no threshold round, because reports for one would need their own
budget.
"""

from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.design import Budget
from undertone_aggregator.design.named import stream_as
from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.settings.config import CampaignPlan, StreamPlan
from undertone_shared.stream import StreamRule


def stream_rule(plan: CampaignPlan, stream: StreamPlan) -> StreamRule:
    """Return the rule of the planned stream, whose parameters are integers. Raises Invalid."""
    named = stream_as(stream.mechanism)
    return choose(
        named.law,
        rho_for(named.law, Budget.parse(plan.epsilon, stream.delta)),
        slew=stream.slew,
        reports=stream.reports,
        theta=plan.bound if stream.theta is None else stream.theta,
        chains=stream.chains,
        dimension=stream.dimension,
        lag=stream.lag,
        restart=stream.restart,
        renewal=stream.renewal,
        independent=named.independent,
    )


class StreamRounds:
    """Source of epochs for streams, like `undertone_aggregator.campaign.rounds.Rounds` for other campaigns."""

    fixed_end = "the budget of a stream covers its planned slots and no more"

    def __init__(self, plan: CampaignPlan, stream: StreamPlan) -> None:
        self.plan = plan
        self.rule = stream_rule(plan, stream)

    def warnings(self) -> list[str]:
        """Return sentences about parts of the plan that will work, but not well."""
        window = self.rule.renewal or self.plan.report_slots
        if self.rule.reports >= window:
            return []
        return [f"a window of {window} slots has a budget of {self.rule.reports} reports: devices stop before its end"]

    def first(self, now: int) -> Epoch:
        """Return the campaign's epoch, which starts as planned, or as soon as the lead time allows."""
        plan = self.plan
        first = max(now // plan.slot_seconds + plan.lead_slots, (plan.start or 0) // plan.slot_seconds)
        if self.rule.renewal:
            # Begin where a period of the device policies' budget begins: a window of the stream that crosses such a
            # point would be charged in both periods.
            first = -(-first // self.rule.renewal) * self.rule.renewal
        campaign = plan.epoch(first, first + plan.report_slots - 1, stream=self.rule)
        return Epoch(campaign, now)

    def last_slot(self, timeline: Timeline) -> int:
        """Return the last slot of the stream's epoch."""
        assert timeline.last is not None
        return timeline.last.campaign.last_slot

    def learning_ends(self, timeline: Timeline) -> int | None:
        """Return None: a stream's range is in its plan."""
        return None

    def extended(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return None: a stream's budget covers its planned slots and no more."""
        return None

    def due(self, timeline: Timeline, now: int) -> int | None:
        """Return None: one epoch is the whole stream."""
        return None

    def waits(self, timeline: Timeline, now: int) -> str:
        """Return "": there is no further epoch that could wait."""
        return ""

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return None: there is no further epoch."""
        return None

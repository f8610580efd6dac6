"""Settles slots, after which their published numbers never change, and publishes their estimates."""

import json
import math

from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import estimator_of, guarantee_of
from undertone_aggregator.campaign.context import CampaignContext, FittedModels
from undertone_aggregator.campaign.home_assistant import discovery
from undertone_aggregator.campaign.issuing import Issuing
from undertone_aggregator.campaign.newest_means import NEWEST
from undertone_aggregator.campaign.publish import estimate_message
from undertone_aggregator.campaign.restored import SettledMark
from undertone_aggregator.campaign.today import TOPIC, Today
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.estimates import MODEL, Estimate, Estimates, Series, Z
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.misfit import ALARMING, RARELY
from undertone_aggregator.estimate.publication import publication_of, settle
from undertone_aggregator.estimate.series_filter import LiveFilter, SeriesFilter
from undertone_aggregator.estimate.world import world_learns
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.store.store_address import store_address
from undertone_shared.off_board.issue import aggregate_topic

# Seconds from one log line about estimates to the next. If slots are shorter, each line is about the newest slot alone.
SLOT_LOG_SECONDS = 60
# After a start, the estimates of at most this many slots before the newest settled one are computed again. Of each
# series the newest of them is published.
_RECENT_SLOTS = 4
# Largest number of slots whose sums are stored in one step of the server.
_SUMMED_SLOTS = 96
# Longest time in seconds that slots wait after a start for the reports that brokers and devices have queued.
_RETURN_SECONDS = 600
# Name of the stored value that tells how much of this wait is left: [seconds left, Unix second of this note].
_WAIT = "settling_wait"


class _Return:
    """The wait after a start: how long due slots wait for reports that brokers and devices have queued for this server.

    The store keeps how much of the wait is left, so that even a server that is killed again and again settles its
    slots. A new wait begins at the first start after the last wait is over, and after an absence that is longer than a
    wait.
    """

    def __init__(self, context: CampaignContext) -> None:
        self._store = context.store
        self._whole = min(context.plan.settle_slots * context.plan.slot_seconds, _RETURN_SECONDS)
        # Seconds left, and the Unix second at which they were computed; None before the first tick.
        self._left: tuple[int, int] | None = None

    def over(self, now: int) -> bool:
        """Note that the server runs at Unix second ``now``; return True once the wait is over."""
        if self._left is None:
            left, at = json.loads(self._store.meta(_WAIT).get(_WAIT, "[0, 0]"))
            goes_on = left > 0 and abs(now - at) <= self._whole
            self._left = (min(left, self._whole) if goes_on else self._whole), now
        left, at = self._left
        if left and now != at:
            # If the clock was set back, no time has passed.
            self._left = max(left - max(now - at, 0), 0), now
            self._store.set_meta({_WAIT: json.dumps(self._left)})
        return not self._left[0]


class Settling:
    """Settles slots and publishes their estimates.

    ``published``: what published numbers reveal about a household, for messages; None before the first slot.
    ``newest``: the newest slot whose estimates were published, -1 before the first. ``due``: the newest slot whose
    reports have had the time to arrive and to be counted, even if none has come; -1 before the first.
    """

    def __init__(self, context: CampaignContext, issuing: Issuing, lag: Lag, models: FittedModels) -> None:
        self._context, self._issuing, self._lag, self._models = context, issuing, lag, models
        self._settled = publication_of(context.store, context.plan.min_reports).settled
        # The newest timeline and its estimator, None before the first slot.
        self._estimating: tuple[Timeline, Estimator] | None = None
        self._return = _Return(context)
        # Only a database needs this mark. A store in a file is restored with its folder by `undertone restore`, which
        # withholds the slots itself.
        database = store_address(context.config.store_url).file is None
        self._mark = SettledMark(context.config.folder, context.plan.name) if database else None
        self._compared = False
        self._today = Today(context.store, context.plan)
        self.published: Published | None = None
        # True if the store may lack the sums of settled slots, as after a server that ended before it stored them.
        self._sums_lack = True
        # The series that Home Assistant shows, and the message by which they were announced to it.
        self._at_home: set[Series] = set()
        self._announced = b""
        self.restart()

    def restart(self) -> None:
        """Treat every step as not yet done, as after a start or when the wall clock was set back."""
        self._logged_at, self._logged_kind = -math.inf, ""
        self.newest = self._filtered = self.due = -1
        self._live: LiveFilter | None = None

    def tick(self, now: int) -> None:
        """Settle the slots that are due at Unix second ``now``, and publish the newest estimate of each series."""
        newest, settled = self._issuing.timeline.last, self._settle(now)
        if newest is None or settled <= self.newest:
            return
        context = self._context
        first = max(self.newest + 1, settled - _RECENT_SLOTS)
        self.newest = settled
        estimates, smallest = self._estimates(first, settled)
        self.published = world_learns(newest, smallest) or self.published
        cost = guarantee_of(self._issuing.timeline, context.config.budget)
        for estimate in {estimate.series: estimate for estimate in estimates}.values():
            topic = aggregate_topic(context.prefix, context.plan.name, estimate.series.topic)
            message = estimate_message(estimate, newest.campaign, cost, self.published)
            context.outlet.publish(topic, message, again=True)
        today = self._today.message(settled, newest.campaign, self._estimator())
        if today is not None:
            context.outlet.publish(aggregate_topic(context.prefix, context.plan.name, TOPIC), today, again=True)
        NEWEST.publish(context.plan.name, settled, estimates)
        self._announce_at_home(newest, {estimate.series for estimate in estimates})
        self._log([estimate for estimate in estimates if estimate.series == Series()], now)

    def _settle(self, now: int) -> int:
        """Settle the slots that are due, and return the newest settled slot.

        After a start, slots that became due meanwhile wait for ``settle_slots`` again, at most `_RETURN_SECONDS`,
        because brokers and devices have queued reports for this server. A slot settles only after a report for it or
        for a later slot has come. Otherwise a clock that is ahead would settle slots that devices have not measured
        yet.
        """
        plan, store = self._context.plan, self._context.store
        returned = self._return.over(now)
        self._compare(now)
        # Where Spark counts, a slot settles once Spark has counted the files that may hold its reports.
        waited = self._context.due_slot(self._lag.counted_until(store, now))
        if returned:
            self.due = waited
        if waited > self._settled and returned:
            newest = store.newest_slot()
            due = -1 if newest is None else min(waited, newest)
            if due > self._settled:
                self._settled = settle(store, due, plan.min_reports).settled
                self._sums_lack = True
        if self._mark is not None:
            self._mark.note(self._settled)
        if self._sums_lack:
            self._sums_lack = store.sum_up(_SUMMED_SLOTS)
        return self._settled

    def _compare(self, now: int) -> None:
        """At the first tick, withhold slots that this server may have published before its database was restored."""
        if self._mark is None or self._compared:
            return
        plan, store = self._context.plan, self._context.store
        span = self._mark.withhold(store, self._context.due_slot(now), plan.min_reports)
        self._compared = True
        if span is not None:
            self._settled = span[1]
            self._context.journal.alarm(
                "restored",
                "the database is older than what this server has published, as after a restore from a backup."
                f" No number is published for slots {span[0]} to {span[1]}, because some may be published already",
            )

    def _estimates(self, first: int, last: int) -> tuple[Estimates, int]:
        """Return the raw and filtered estimates of settled slots, and the size of the smallest crowd.

        The crowd of a published number is the reports behind it: each report is hidden among them.
        """
        if self._live is None:
            plan, issuing = self._context.plan, self._issuing
            chains = self._estimator().chains
            # The function looks up the timeline at each call, because each new epoch replaces the timeline.
            how = SeriesFilter(
                plan.slot_seconds,
                plan.cycle,
                plan.days,
                chains,
                plan.stride,
                lambda slot: issuing.timeline.bottom(slot),
                plan.filter,
            )
            self._live, self._filtered = LiveFilter(how), max(first - how.memory, 0) - 1
        # Begin with slots that an earlier run of the server published, because the new filter has not seen them.
        raw, smallest = self._raw(min(first, self._filtered + 1), last)
        self._filtered = last
        both = Estimates.together([raw, self._live.take(raw)])
        return both.take(both.slot >= first), smallest

    def _estimator(self) -> Estimator:
        """Return the estimator of the current timeline, which is kept because making a decoder takes long."""
        timeline = self._issuing.timeline
        if self._estimating is None or self._estimating[0] is not timeline:
            self._estimating = timeline, estimator_of(timeline, self._models.values)
        return self._estimating[1]

    def _raw(self, first: int, last: int) -> tuple[Estimates, int]:
        context = self._context
        estimator = self._estimator()
        cells = context.store.histograms(max(first - estimator.memory, 0), last)
        shown = publication_of(context.store, context.plan.min_reports).select(cells.sums())
        estimates = Estimates.together([estimator.estimates(shown.of(group, cells), group) for group in shown.groups])
        self._models.save()
        for sentence in estimator.warnings(estimates):
            # The numbers in the warning change with every slot, but its part before the colon stays the same. So
            # `say_once` logs the warning once instead of in every slot.
            what = sentence.partition(":")[0]
            context.journal.say_once("stale", f"alarm: {what}: it no longer fits the readings", warning=sentence)
        return estimates.take(estimates.slot >= first), shown.smallest

    def _announce_at_home(self, newest: Epoch, series: set[Series]) -> None:
        """Announce the series to Home Assistant if a series is new or the campaign has changed."""
        context, home = self._context, self._context.config.server.home_assistant
        if home:
            self._at_home |= series
            cost = guarantee_of(self._issuing.timeline, context.config.budget)
            topic, message = discovery(home, context.prefix, newest.campaign, self._at_home, cost.sentence)
            if message != self._announced:
                self._announced = message
                context.outlet.publish(topic, message, again=True)

    def _log(self, estimates: list[Estimate], now: int) -> None:
        """Log the newest estimate of each kind if the last line is old or of another kind, and each suspicious one."""
        journal = self._context.journal
        newest = {estimate.kind: estimate for estimate in estimates}
        for estimate in newest.values():
            if now >= self._logged_at + SLOT_LOG_SECONDS or estimate.kind != self._logged_kind:
                self._logged_at, self._logged_kind = now, estimate.kind
                sentence = _described(estimate, self._context.plan.unit)
                journal.say("slot", sentence, slot=estimate.slot, reports=estimate.reports)
        for estimate in estimates:
            if estimate.misfit is not None and estimate.misfit >= ALARMING:
                begins = utc(estimate.slot * self._context.plan.slot_seconds)
                sentence = f"warning: some reports for the slot of {begins} can hardly be from honest devices: {RARELY}"
                journal.say("misfit", sentence, slot=estimate.slot, misfit=estimate.misfit)


def _described(estimate: Estimate, unit: str) -> str:
    """Return an estimate as a line for people; the number after ± is half the width of its 95 % interval."""
    if estimate.kind != MODEL:
        return (
            f"slot {estimate.slot}: {estimate.estimate:.1f} ± {Z * (estimate.standard_error or 0.0):.1f} {unit}"
            f" from {many(estimate.reports, 'report')}"
        )
    reports = many(estimate.cohort, "report")
    return f"slot {estimate.slot}: about {estimate.model:.1f} {unit} by a model, from {reports} for the threshold"

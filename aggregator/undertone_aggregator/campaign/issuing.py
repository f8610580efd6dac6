"""Issues a campaign's epochs, and keeps the newest one broadcast."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from undertone_aggregator.base.plural import many
from undertone_aggregator.base.timing import CHOICES
from undertone_aggregator.campaign.collection import collection_of, estimator_of
from undertone_aggregator.campaign.context import CampaignContext, FittedModels
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.handover import HandoverFile
from undertone_aggregator.campaign.strays import Strays
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.ingest.lag import Lag
from undertone_shared import report
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import pack
from undertone_shared.topics import config_topic

REPUBLISH_SECONDS = 3600
# Progress is logged when the choice of θ takes longer than this.
_QUIET_SECONDS = 1.0


class Issuing:
    """Issues epochs.

    ``seed``: from which the devices' schedule is drawn. ``sign``: signs campaigns; None: campaigns are not signed.
    ``clock``: Unix seconds, to see how long a choice of θ has taken.
    """

    def __init__(
        self,
        context: CampaignContext,
        seed: bytes,
        lag: Lag,
        models: FittedModels,
        clock: Callable[[], float] | None,
        sign: Callable[[bytes], bytes] | None,
        strays: Strays,
    ) -> None:
        self._context, self._lag, self._models, self._sign = context, lag, models, sign
        config = context.config
        self._collection = collection_of(config.kind)
        means = EpochMeans(seed, self._read, clock, self._progress, self._warn, partial(strays.at, context.store))
        self._handover = HandoverFile(config.folder, context.plan.name)
        self.rounds = self._collection.epochs(config, means)
        self.timeline = Timeline(context.store.epochs())
        # True while this thread chooses θ and designs a mechanism, which takes seconds to minutes.
        self.choosing = False
        # When the choice of θ last made progress, by the monotonic clock.
        self.advanced = time.monotonic()
        self._logged_at = -math.inf
        for kind, sentence in self.rounds.warnings().items():
            context.journal.say("warning", f"warning: {sentence}", kind=kind)
        if len(self.timeline):
            context.journal.say(
                "resumed", f"resuming campaign {context.plan.name} with {many(len(self.timeline), 'epoch')}"
            )
        self.restart()

    def restart(self) -> None:
        """Treat every step as not yet done, as after a start or when the wall clock was set back."""
        self._broadcast_at = self._examined = -math.inf
        # The slot in which the server last found that devices are away; None while they are present.
        self._away_in: int | None = None
        # True once the log says that devices are away.
        self._said_away = False

    def tick(self, now: int) -> None:
        """Issue the epoch that is due at Unix second ``now``, if any, and broadcast the newest from time to time."""
        if not len(self.timeline):
            self._issue(self.rounds.first(now), now)
        reissued = self.rounds.reissued(self.timeline, now)
        if reissued is not None and self._devices_are_back(now):
            self._issue(reissued, now)
        due = self.rounds.due(self.timeline, now)
        counted = self._lag.counted_until(self._context.store, now)
        if due is not None and self._examined < due <= counted and self._devices_are_back(counted):
            self.choosing = True
            try:
                with CHOICES.timed(self._context.plan.name):
                    self._choose(due, now)
            finally:
                self.choosing = False
        self.keep_broadcast(now)

    def keep_broadcast(self, now: int) -> None:
        """Broadcast the newest campaign again if its hand-over has changed or the last broadcast is an hour old."""
        if self._handover_changed() or now >= self._broadcast_at + REPUBLISH_SECONDS:
            self.broadcast(now)

    def broadcast(self, now: int) -> None:
        """Publish the newest campaign with a header that is issued now."""
        newest = self.timeline.last
        if newest is not None:
            topic = config_topic(self._context.prefix, self._context.plan.name)
            try:
                message = pack(newest.campaign, now, self._sign, self._handover.signed)
            except Invalid as wrong:
                self._context.journal.alarm("handover", f"the hand-over is not sent: {wrong}")
                message = pack(newest.campaign, now, self._sign)
            self._context.outlet.publish(topic, message, again=True)
            self._broadcast_at = now

    def _handover_changed(self) -> bool:
        try:
            return self._handover.changed()
        except (Invalid, OSError) as wrong:
            self._context.journal.say_once("handover", f"the file of the hand-over cannot be used: {wrong}")
            return False

    def _devices_are_back(self, counted: int) -> bool:
        """Return False while the server issues no epoch because devices are away; log this once.

        ``counted``: the Unix second up to which the store holds all reports that arrived. While devices are away, this
        function looks for them once a slot.
        """
        slot = self._context.due_slot(counted)
        if slot == self._away_in:
            return False
        why = self.rounds.waits(self.timeline, counted)
        if not why:
            self._away_in, self._said_away = None, False
            return True
        self._away_in = slot
        if not self._said_away:
            self._warn(why)
        self._said_away = True
        return False

    def _choose(self, due: int, now: int) -> None:
        """Issue the next epoch, or log why none is issued yet."""
        journal = self._context.journal
        self._logged_at = time.monotonic()
        epoch = self.rounds.next(self.timeline, now)
        newest = self.timeline.last
        assert newest is not None
        if epoch is not None:
            self._issue(epoch, now)
        elif newest.phase == THRESHOLD_PHASE:
            number = len(self.timeline)
            journal.say_once("waiting", f"threshold round {number} goes on, because no report of it has come")
            return
        else:
            journal.say("theta", f"theta stays at {newest.campaign.thetas}")
        self._examined = due

    def _issue(self, epoch: Epoch, now: int) -> None:
        context, store = self._context, self._context.store
        # An extended epoch has the budget of the epoch whose rule it continues.
        epoch = replace(epoch, budget=epoch.budget or context.config.budget)
        store.add_epoch(epoch)
        self.timeline = Timeline(store.epochs())
        self.broadcast(now)
        if epoch.chosen is not None and sum(each.chosen is not None for each in self.timeline.epochs) == 1:
            # The threshold rounds end when the first θ is chosen, which changes how their slots are estimated. So the
            # models of these slots are dropped and fitted once more.
            self._models.clear()
            rounds = store.partial(0, epoch.campaign.first_slot - 1, kind=report.COHORT, late=False)
            estimates_of(estimator_of(self.timeline, self._models.values), rounds)
            self._models.save()
        campaign, chosen = epoch.campaign, epoch.threshold
        facts = {"epoch": campaign.epoch, "phase": epoch.phase, "slot": campaign.first_slot}
        round_of = (len(self.timeline), len(context.plan.rounds))
        events = self._collection.announce(epoch, context.plan.epsilon, round_of, campaign.epoch - now)
        for event, sentence, fields in events:
            context.journal.say(event, sentence, **(facts if event == "epoch" else {}), **fields)
        if chosen is not None:
            for warning in chosen.warnings:
                self._warn(warning)
            for notice in chosen.notices:
                context.journal.say("notice", notice)

    def _progress(self, step: str) -> None:
        self.advanced = time.monotonic()
        if time.monotonic() > self._logged_at + _QUIET_SECONDS:
            self._context.journal.say("progress", f"choosing theta and the mechanism: {step}")
            self._logged_at = time.monotonic()

    def _warn(self, sentence: str) -> None:
        self._context.journal.say("warning", f"warning: {sentence}")

    def _read(self, first: int, last: int, kind: int | None = None) -> Partial:
        return self._context.store.partial(first, last, kind=kind)

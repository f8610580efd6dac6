"""The coordinator: broadcasts the campaign, issues its epochs, publishes its estimates."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.timing import CHOICES
from undertone_aggregator.campaign.collection import collection_of, estimator_of, guarantee_of
from undertone_aggregator.campaign.describe import describe, suspicion
from undertone_aggregator.campaign.home_assistant import discovery, removal
from undertone_aggregator.campaign.publish import estimate_message, status_message
from undertone_aggregator.campaign.watch import CLOCK_SECONDS
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.counts.sequences import by_group
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.estimates import Estimate, Series
from undertone_aggregator.estimate.misfit import ALARMING
from undertone_aggregator.estimate.opened import MODELS
from undertone_aggregator.estimate.publication import only_told, publication_of, settle, tell_groups
from undertone_aggregator.estimate.series_filter import LiveFilter, SeriesFilter
from undertone_aggregator.estimate.world import world_learns
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.mqtt.dropped import DROPPED, Dropped
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.inventory import ACTIVE
from undertone_aggregator.store.store import RECEIVED, Store
from undertone_shared import report
from undertone_shared.campaign import header
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import aggregate_topic, pack
from undertone_shared.topics import config_topic

REPUBLISH_SECONDS = 3600
STATUS_SECONDS = 60
# Slots shorter than this share a line of the log, which shows the newest of this many seconds.
SLOT_LOG_SECONDS = 60
_DAY = 86400
# Number of newest slots that are published again after a start.
_RECENT_SLOTS = 4
# After a start, slots that are due settle after at most this many seconds, during which waiting reports arrive.
_RETURN_SECONDS = 600
# Computations that take longer are logged.
_PATIENCE_SECONDS = 1.0


class Publisher(Protocol):
    """Publishes retained messages; `undertone_aggregator.mqtt.link.Outlet` is one."""

    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        """Publish a retained message; ``again``: also at every later connect."""


@dataclass
class Coordinator:
    """Coordinates one campaign. Call ``tick`` a few times per slot; all its state is in the store."""

    config: Config
    seed: bytes
    store: Store
    outlet: Publisher
    journal: Journal
    clock: Callable[[], float] | None = None
    sign: Callable[[bytes], bytes] | None = None

    def __post_init__(self) -> None:
        self.plan, self.prefix = self.config.campaign, self.config.broker.prefix
        self._budget = self.config.budget
        self._collection = collection_of(self.config.kind)
        self.rounds = self._collection.epochs(
            self.config, self.seed, self._read, self.clock, self._progress, self._warn
        )
        self._timeline = Timeline(self.store.epochs())
        self._lag = Lag(self.config.landing.plan(self.config.folder))
        self._dropped = Dropped.from_json(self.store.meta().get(DROPPED))
        self._heard, self._retired = b"", False
        self._world: Published | None = None
        self._settled = publication_of(self.store, self.plan.min_reports).settled
        self._returned: int | None = None
        self._told_at = -math.inf
        # True while it chooses θ and designs a mechanism, which takes seconds to minutes; then the time of its last
        # progress.
        self.choosing, self.advanced = False, time.monotonic()
        self._models: dict[str, float] = json.loads(self.store.meta().get(MODELS, "{}"))
        self._begin(0)
        self._at_home: set[Series] = set()
        self._announced = b""
        for sentence in self.rounds.warnings():
            self.journal.say("warning", f"warning: {sentence}")
        if len(self._timeline):
            self.journal.say("resumed", f"resuming campaign {self.plan.name} with {len(self._timeline)} epochs")

    def _begin(self, now: int) -> None:
        """Reset the schedule, as at the start; everything that is due then depends on the clock."""
        self._now = now
        self._published_at = self._status_at = self._looked = self._logged_at = -math.inf
        self._logged = ""
        self._shown = self._taken = self._told_due = -1
        self._live: LiveFilter | None = None

    def tick(self, now: int) -> None:
        """Do everything that is due at Unix second ``now``."""
        if now < self._now - CLOCK_SECONDS:
            self._begin(now)
        self._now = max(now, self._now)
        if not len(self._timeline):
            self._issue(self.rounds.first(now), now)
        due = self.rounds.due(self._timeline, now)
        if due is not None and self._looked < due <= self._lag.counted_until(self.store, now):
            self.choosing = True
            try:
                with CHOICES.timed(self.plan.name):
                    self._look(due, now)
            finally:
                self.choosing = False
        if now >= self._published_at + REPUBLISH_SECONDS:
            self.broadcast(now)
        self._show(now)
        self._tell(now)

    def broadcast(self, now: int) -> None:
        """Publish the newest campaign with a header issued now."""
        newest = self._timeline.last
        if newest is not None:
            topic = config_topic(self.prefix, self.plan.name)
            self.outlet.publish(topic, pack(newest.campaign, now, self.sign), again=True)
            self._published_at = now

    def _progress(self, what: str) -> None:
        self.advanced = time.monotonic()
        if time.monotonic() > self._told_at + _PATIENCE_SECONDS:
            self.journal.say("progress", f"theta and the mechanism: {what}")
            self._told_at = time.monotonic()

    def _warn(self, sentence: str) -> None:
        self.journal.say("warning", f"warning: {sentence}")

    def _look(self, due: int, now: int) -> None:
        self._told_at = time.monotonic()
        epoch = self.rounds.next(self._timeline, now)
        newest = self._timeline.last
        assert newest is not None
        if epoch is not None:
            self._issue(epoch, now)
        elif newest.phase == THRESHOLD_PHASE:
            self.journal.say_once("waiting", f"no report has come in epoch {newest.campaign.epoch}: the round goes on")
            return
        else:
            self.journal.say("theta", f"theta stays at {newest.campaign.thetas}")
        self._looked = due

    def _issue(self, epoch: Epoch, now: int) -> None:
        epoch = replace(epoch, budget=self._budget)
        self.store.add_epoch(epoch)
        self._timeline = Timeline(self.store.epochs())
        self.broadcast(now)
        if epoch.chosen is not None and sum(known.chosen is not None for known in self._timeline.epochs) == 1:
            # The end of the rounds changes the estimates of their slots; they are fitted once and stored for all
            # readers.
            self._models.clear()
            rounds = self.store.partial(0, epoch.campaign.first_slot - 1, kind=report.COHORT, late=False)
            estimator_of(self._timeline, self._models).estimates(rounds)
            self._keep_models(0)
        campaign, chosen = epoch.campaign, epoch.threshold
        facts = {"epoch": campaign.epoch, "phase": epoch.phase, "slot": campaign.first_slot}
        round_of = (len(self._timeline), len(self.plan.rounds))
        said = self._collection.announce(epoch, self.plan.epsilon, round_of, campaign.epoch - now)
        for event, sentence, fields in said:
            self.journal.say(event, sentence, **(facts if event == "epoch" else {}), **fields)
        for warning in chosen.warnings if chosen is not None else ():
            self.journal.say("warning", f"warning: {warning}")

    def _due(self, now: int) -> int:
        """Return the newest slot whose settle_slots for late reports are over."""
        return now // self.plan.slot_seconds - self.plan.settle_slots - 1

    def _settle(self, now: int) -> int:
        """Settle the slots that are due, which makes their published numbers final; return the newest settled slot.

        After a start, slots that became due meanwhile wait for settle_slots again, or `_RETURN_SECONDS`, because
        brokers and devices have stored reports for us. No slot settles before a report for it or a later one has come:
        with a clock that is ahead the server would settle slots that devices have not measured yet.
        """
        plan = self.plan
        if self._returned is None:
            self._returned = now + min(plan.settle_slots * plan.slot_seconds, _RETURN_SECONDS)
        # If Spark counts, a slot waits until the files that may contain its reports are counted.
        waited = self._due(self._lag.counted_until(self.store, now))
        if waited > self._settled and now >= self._returned:
            newest = self.store.newest_slot()
            due = -1 if newest is None else min(waited, newest)
            if due > self._settled:
                self._settled = settle(self.store, due, plan.min_reports).settled
        return self._settled

    def _show(self, now: int) -> None:
        """Settle the slots that are due, and publish their estimates, the newest last."""
        newest, settled = self._timeline.last, self._settle(now)
        if newest is None or settled <= self._shown:
            return
        first = max(self._shown + 1, settled - _RECENT_SLOTS)
        self._shown = settled
        estimates, smallest = self._estimates(first, settled)
        self._world = world_learns(newest, smallest) or self._world
        cost = guarantee_of(self._timeline, self._budget)
        for estimate in {estimate.series: estimate for estimate in estimates}.values():
            topic = aggregate_topic(self.prefix, self.plan.name, estimate.series.topic)
            self.outlet.publish(topic, estimate_message(estimate, newest.campaign, cost, self._world), again=True)
        self._tell_home(newest, {estimate.series for estimate in estimates})
        self._log([estimate for estimate in estimates if estimate.series == Series()], now)

    def _tell(self, now: int) -> None:
        """Publish the status once a slot, and at most once in `STATUS_SECONDS`."""
        due = self._due(now)
        if due > self._told_due and now >= self._status_at + STATUS_SECONDS:
            self._told_due = due
            self.status(now)

    def _log(self, estimates: list[Estimate], now: int) -> None:
        """Log the newest of these estimates if the last line is old enough or of another kind.

        Log each suspicious one.
        """
        for estimate in estimates[-1:]:
            if now >= self._logged_at + SLOT_LOG_SECONDS or estimate.kind != self._logged:
                self._logged_at, self._logged = now, estimate.kind
                said = describe(estimate, self.plan.unit)
                self.journal.say("slot", said, slot=estimate.slot, reports=estimate.reports)
        for estimate in estimates:
            if estimate.misfit is not None and estimate.misfit >= ALARMING:
                self.journal.say("misfit", suspicion(estimate), slot=estimate.slot, misfit=estimate.misfit)

    def _tell_home(self, newest: Epoch, series: set[Series]) -> None:
        """Announce the series to Home Assistant, again when there is a new one or the campaign has changed."""
        home = self.config.server.home_assistant
        if home:
            self._at_home |= series
            cost = guarantee_of(self._timeline, self._budget)
            topic, message = discovery(home, self.prefix, newest.campaign, self._at_home, cost.sentence)
            if message != self._announced:
                self._announced = message
                self.outlet.publish(topic, message, again=True)

    def _estimates(self, first: int, last: int) -> tuple[list[Estimate], int]:
        """Return raw and filtered estimates of settled slots, and the fewest reports of a slot among which one
        hides.
        """
        if self._live is None:
            chains = estimator_of(self._timeline).chains
            how = SeriesFilter(
                self.plan.slot_seconds, self.plan.cycle, self.plan.days, chains, self.plan.stride, self.plan.offset
            )
            self._live, self._taken = LiveFilter(how), max(first - how.memory, 0) - 1
        # Estimates that an earlier or slow run has not filtered are included.
        raw, smallest = self._published(min(first, self._taken + 1), last)
        self._taken = last
        return [estimate for estimate in raw + self._live.take(raw) if estimate.slot >= first], smallest

    def _published(self, first: int, last: int) -> tuple[list[Estimate], int]:
        estimator, known = estimator_of(self._timeline, self._models), len(self._models)
        partial = self.store.partial(max(first - estimator.memory, 0), last, late=False)
        shown = publication_of(self.store, self.plan.min_reports).select(partial)
        estimates = [row for group in shown.groups for row in estimator.estimates(shown.of(group), [group])]
        estimates.sort(key=lambda estimate: (estimate.slot, estimate.series))
        self._keep_models(known)
        for sentence in estimator.warnings(estimates):
            # The sentence's numbers change with every slot, so only its beginning is logged, once.
            self.journal.say_once("stale", "alarm: " + sentence.partition(":")[0], warning=sentence)
        return [estimate for estimate in estimates if estimate.slot >= first], shown.smallest

    def _keep_models(self, known: int) -> None:
        """Store the means that were fitted to threshold rounds, if there are more than ``known``."""
        if len(self._models) > known:
            self.store.set_meta({MODELS: json.dumps(self._models)})

    def retire(self, now: int) -> None:
        """Stop broadcasting the campaign; reports that are under way are still counted."""
        if not self._retired:
            self._retired = True
            self.outlet.publish(config_topic(self.prefix, self.plan.name), b"", again=True)
            if self.config.server.home_assistant:
                topic, message = removal(self.config.server.home_assistant, self.plan.name)
                self.outlet.publish(topic, message, again=True)
            self.status(now)
        self._show(now)
        self._tell(now)

    def status(self, now: int) -> None:
        """Publish and log the campaign's status."""
        newest = self._timeline.last
        if newest is None:
            return
        outcomes, late = self.store.outcomes(), self.store.late_reports()
        told = tell_groups(self.store, self.plan.min_reports)
        lost = self._lost(told)
        cost = guarantee_of(self._timeline, self._budget)
        message = status_message(
            *(newest, cost, now),
            {"outcomes": outcomes, "unpublished": late, "dropped": self._dropped.total, "lost": lost},
            self._world,
        )
        self.outlet.publish(aggregate_topic(self.prefix, self.plan.name, "status"), message, again=True)
        missing = lost[EVERYBODY]["reports"]
        parts = [f"{n} {outcome}" for outcome, n in sorted(outcomes.items()) if outcome != RECEIVED and n]
        said = f"{outcomes[RECEIVED]} deliveries: " + (", ".join(parts) or "none yet")
        if missing:
            said += f"; {missing} reports were drawn and never came"
        if late:
            said += f"; {late} reports came after their slot had settled, and are in no published mean"
        self.journal.say("deliveries", said, lost=missing, **outcomes)
        self._status_at = now
        # The status is also stored, for readers of the store such as the page.
        alarms = [{"time": int(alarm.time), "sentence": alarm.sentence} for alarm in self.journal.rang(now - _DAY)]
        facts = {"time": now, "alarms": alarms, "devices": self._devices(lost, told)}
        self.store.set_meta({"status": json.dumps(facts)})

    def _devices(
        self, lost: Mapping[str, Mapping[str, int | None]], told: frozenset[str]
    ) -> dict[str, dict[str, int | None]]:
        """Return group -> devices that reported in the newest settled slot, or did not; reports lost, and in conflict.

        Only groups whose counts may be published (``told``), and all devices together.
        """
        active = [device.group for device in self.store.devices().values() if device.state == ACTIVE]
        partial = self.store.partial(self._shown, self._shown, late=False) if self._shown >= 0 else Partial()
        conflicts = self.store.conflicts()
        groups = sorted({EVERYBODY} | ({*lost, *conflicts, *(key.group for key in partial)} & told))
        rows: dict[str, dict[str, int | None]] = {}
        for group in groups:
            mine = Partial({key: counts for key, counts in partial.items() if group in (key.group, EVERYBODY)})
            known = sum(group in (EVERYBODY, of) for of in active)
            silent = max(known - mine.reports, 0) if known and self.plan.stride == 1 else None
            missing, contrary = lost.get(group, {}).get("reports", 0), conflicts.get(group, 0)
            rows[group] = {"reporting": mine.reports, "silent": silent, "lost": missing, "conflicting": contrary}
        rows[EVERYBODY]["conflicting"] = self.store.outcomes()["conflict"]
        return rows

    def note_broker(self, dropped: int | None, heard: Mapping[str, bytes]) -> None:
        """Process the broker's number of dropped messages since its start (None: it reported none) and retained topics.

        ``heard``: the last message by topic; a campaign under our name that is not ours raises an alarm.
        """
        more = self._dropped.more(dropped)
        if more:
            self.store.set_meta({DROPPED: self._dropped.to_json()})
            self.journal.alarm(
                "dropped",
                f"the broker dropped {more} messages, {self._dropped.total} in all: acknowledged reports may be among"
                " them",
                dropped=self._dropped.total,
            )
        message = heard.get(config_topic(self.prefix, self.plan.name))
        if message and message != self._heard:
            self._heard = message
            try:
                ours = self._timeline.of(header(message)[1]) is not None
            except Invalid:
                ours = False
            if not ours:
                self.journal.alarm("foreign", f"somebody else broadcasts the campaign {self.plan.name}")

    def _lost(self, told: frozenset[str]) -> dict[str, dict[str, int | None]]:
        """Return group -> reports that were drawn and never arrived, and since when (Unix second); ``all``: together.

        Only groups whose counts may be published (``told``).
        """
        groups: dict[str, tuple[int, int | None]] = {EVERYBODY: (0, None)}
        groups |= only_told(by_group(self.store.losses()), told)
        return {
            group: {"reports": n, "since": None if slot is None else slot * self.plan.slot_seconds}
            for group, (n, slot) in groups.items()
        }

    def _read(self, first: int, last: int, kind: int | None = None) -> Partial:
        return self.store.partial(first, last, kind=kind)

"""Publishes a campaign's status: its epoch, θ and guarantee, deliveries by outcome, losses, devices, alarms."""

import json
import math
from collections.abc import Mapping

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import guarantee_of
from undertone_aggregator.campaign.context import CampaignContext
from undertone_aggregator.campaign.issuing import Issuing
from undertone_aggregator.campaign.publish import status_message
from undertone_aggregator.campaign.settling import Settling
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.estimate.publication import only_told, tell_groups
from undertone_aggregator.mqtt.dropped import DROPPED, Dropped
from undertone_aggregator.store.inventory import ACTIVE
from undertone_aggregator.store.store import RECEIVED
from undertone_shared.campaign import header
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import aggregate_topic
from undertone_shared.topics import config_topic

STATUS_SECONDS = 60
_DAY_SECONDS = 86400

# Group -> the group's numbers by name, such as its devices that reported.
Rows = dict[str, dict[str, int | None]]


class Status:
    """Publishes the status, and writes it to the store for readers such as the page."""

    def __init__(self, context: CampaignContext, issuing: Issuing, settling: Settling) -> None:
        self._context, self._issuing, self._settling = context, issuing, settling
        self._dropped = Dropped.from_json(context.store.meta().get(DROPPED))
        # The newest campaign that anybody has broadcast on this campaign's topic.
        self._heard = b""
        self.restart()

    def restart(self) -> None:
        """Treat the status as not yet published, as after a start or when the wall clock was set back."""
        self._published_at, self._slot = -math.inf, -1

    def tick(self, now: int) -> None:
        """Publish the status once a slot, but no more often than once in `STATUS_SECONDS`."""
        due = self._context.due_slot(now)
        if due > self._slot and now >= self._published_at + STATUS_SECONDS:
            self._slot = due
            self.publish(now)

    def publish(self, now: int) -> None:
        """Publish, log and store the status."""
        newest = self._issuing.timeline.last
        if newest is None:
            return
        context, store, journal = self._context, self._context.store, self._context.journal
        outcomes, late = store.outcomes(), store.late_reports()
        # Groups of devices whose numbers may be published.
        told = tell_groups(store, context.plan.min_reports)
        lost = self._lost(told)
        cost = guarantee_of(self._issuing.timeline, context.config.budget)
        counts = {"outcomes": outcomes, "unpublished": late, "dropped": self._dropped.total, "lost": lost}
        message = status_message(newest, cost, now, counts, self._settling.published)
        context.outlet.publish(aggregate_topic(context.prefix, context.plan.name, "status"), message, again=True)
        missing = lost[EVERYBODY]["reports"]
        parts = [f"{n} {outcome}" for outcome, n in sorted(outcomes.items()) if outcome != RECEIVED and n]
        sentence = f"{many(outcomes[RECEIVED], 'delivery', 'deliveries')}: "
        sentence += ", ".join(parts) or "no report has been counted yet"
        if missing:
            sentence += f"; {many(missing, 'report')} that devices made did not arrive, or were refused"
        if late:
            sentence += f"; {many(late, 'report')} came too late for the published mean of the slot"
        journal.say("deliveries", sentence, lost=missing, **outcomes)
        self._published_at = now
        recent = journal.recent_alarms(now - _DAY_SECONDS)
        alarms = [{"time": int(alarm.time), "event": alarm.event, "sentence": alarm.sentence} for alarm in recent]
        slot = self._newest_due()
        facts = {"time": now, "alarms": alarms, "devices": self._devices(slot, lost, told)}
        facts["devices_until"] = (slot + 1) * context.plan.slot_seconds if slot >= 0 else None
        facts["settle_slots"] = context.plan.settle_slots
        facts["prefix"] = context.prefix
        facts["learning_ends"] = self._issuing.rounds.learning_ends(self._issuing.timeline)
        store.set_meta({"status": json.dumps(facts)})

    def note_broker(self, dropped: int | None, heard: Mapping[str, bytes]) -> None:
        """Raise alarms for messages that the broker dropped, and for a campaign that somebody else broadcasts.

        ``dropped``: how many messages the broker has dropped since it started, None if that is unknown. ``heard``:
        topic -> the newest campaign message on it.
        """
        context = self._context
        more = self._dropped.more(dropped)
        if more:
            context.store.set_meta({DROPPED: self._dropped.to_json()})
            context.journal.alarm(
                "dropped",
                f"the broker dropped {many(more, 'message')}, {self._dropped.total} in all: acknowledged reports may be"
                " among them",
                dropped=self._dropped.total,
            )
        message = heard.get(config_topic(context.prefix, context.plan.name))
        if message and message != self._heard:
            self._heard = message
            try:
                ours = self._issuing.timeline.of(header(message)[1]) is not None
            except Invalid:
                ours = False
            if not ours:
                sentence = f"another program broadcasts the campaign {context.plan.name}"
                context.journal.alarm("foreign", f"{sentence}: find out who else may publish at the broker")

    def _newest_due(self) -> int:
        """Return the newest slot whose reports should all have arrived by now; -1 if there is none yet.

        A slot settles only after a report for it or for a later one. So if all devices fall silent, this slot is later
        than the newest settled one, and nobody has reported in it.
        """
        epochs = self._issuing.timeline.epochs
        due = min(self._settling.due, epochs[-1].campaign.last_slot)
        return max(self._settling.newest, due if due >= epochs[0].campaign.first_slot else -1)

    def _devices(self, slot: int, lost: Rows, told: frozenset[str]) -> Rows:
        """Return a map: group -> devices that did or did not report in ``slot`` (-1: unknown), losses, conflicts.

        ``told``: the groups that are shown, beside all devices together.
        """
        store, plan = self._context.store, self._context.plan
        active = [device.group for device in store.devices().values() if device.state == ACTIVE]
        partial = store.partial(slot, slot, late=False) if slot >= 0 else Partial()
        conflicts = store.conflicts()
        groups = sorted({EVERYBODY} | ({*lost, *conflicts, *(key.group for key in partial)} & told))
        rows: Rows = {}
        for group in groups:
            of_group = Partial({key: counts for key, counts in partial.items() if group in (key.group, EVERYBODY)})
            members = sum(group in (EVERYBODY, of) for of in active)
            reporting = of_group.reports if slot >= 0 else None
            silent = max(members - of_group.reports, 0) if members and plan.stride == 1 and slot >= 0 else None
            missing, contrary = lost.get(group, {}).get("reports", 0), conflicts.get(group, 0)
            rows[group] = {"reporting": reporting, "silent": silent, "lost": missing, "conflicting": contrary}
        rows[EVERYBODY]["conflicting"] = store.outcomes()["conflict"]
        return rows

    def _lost(self, told: frozenset[str]) -> Rows:
        """Return a map: group -> reports that were drawn and never came, and since when (Unix second).

        ``told``: the groups that are shown, beside all devices together.
        """
        groups: dict[str, tuple[int, int | None]] = {EVERYBODY: (0, None)}
        groups |= only_told(self._context.store.lost(), told)
        return {
            group: {"reports": n, "since": None if slot is None else slot * self._context.plan.slot_seconds}
            for group, (n, slot) in groups.items()
        }

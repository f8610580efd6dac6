"""The reporter core: one sensor's samples in, perturbed reports out. It has no loop, no socket and no clock of its own.

Every measured interval is used by at most one draw, whatever server, broker or clock say (see `guard`), and a campaign
that the policy does not allow is refused (see `acceptance`). Unix seconds are passed in; ticks are milliseconds modulo
2^30.
"""

from undertone_device.core.acceptance import Acceptance
from undertone_device.core.guard import Guard
from undertone_device.core.ledger import DEFAULT_OUTBOX, Ledger
from undertone_device.core.slot_value import OpenSlot
from undertone_shared.entropy import EntropyError
from undertone_shared.report import LENGTH, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from undertone_device.core.ledger import Storage
    from undertone_device.core.protocols import Accumulator, RuleState, Sample
    from undertone_device.core.slot_value import SlotValue
    from undertone_shared.campaign import Campaign
    from undertone_shared.entropy import Entropy
    from undertone_shared.policy import Policy


class Reporter:
    """One sensor of one device under its owner's policy.

    ``storage`` contains the ledger and the accepted campaigns; ``capacity`` is the number of unacknowledged reports
    that are stored (the aggregator admits at least the last 96 slots). ``asleep``: milliseconds since the last draw by
    a counter that ran during deep sleep; then this wake is no boot. ``paused`` is one word: why the last finished slot
    gave no report, or None.
    """

    def __init__(
        self,
        device: str,
        policy: "Policy",
        storage: "Storage",
        entropy: "Entropy",
        ticks: "Callable[[], int]",
        counter_modulus: int = 0,
        capacity: int = DEFAULT_OUTBOX,
        asleep: "int | None" = None,
    ):
        self.device = device
        self.policy = policy
        self.dropped = 0
        self.paused: str | None = None
        # ``storage`` is public for status displays, such as `undertone_device.host.status`.
        self.storage = storage
        self.ledger: Ledger
        self.entropy = entropy
        self.ticks = ticks
        rule_states: dict[str, RuleState] = {}
        several: Callable[[list[SlotValue]], Accumulator] | None = None
        if policy.stream:
            # A board without streams never loads their code.
            from undertone_device.core.stream_state import StreamState, VectorValue

            self.ledger = Ledger(storage, capacity, LENGTH + 4 * (policy.stream.dimension - 1))
            rule_states["stream"] = StreamState(policy, self.ledger, entropy)
            several = VectorValue
        else:
            self.ledger = Ledger(storage, capacity)
        self.guard = Guard(policy, storage, self.ledger, ticks, asleep, rule_states)
        self.accepted = Acceptance(policy, storage, self.ledger, self.guard)
        # A campaign's fingerprint, and this device's place in its schedule: see `_place`.
        self._placed = (b"", 0)
        self._open = OpenSlot(counter_modulus, several)
        # Unacknowledged reports, oldest first; number of refused campaigns, by reason.
        self.outbox = self.ledger.outbox
        self.refusals = self.accepted.refusals

    @property
    def campaign(self) -> "Campaign | None":
        """The current campaign; None if none is accepted."""
        return self.accepted.campaign

    @property
    def following(self) -> "Campaign | None":
        """The accepted campaign that will replace the current one when its own epoch begins; None if there is none."""
        return self.accepted.following

    def campaign_of(self, report: bytes) -> "str | None":
        """Return the name of the campaign of a report in the outbox, None if it is not known any more."""
        return self.accepted.files.name_of(report)

    def accept(
        self,
        message: "bytes | memoryview",
        now: int,
        name: "str | None" = None,
        alive: "Callable[[], object] | None" = None,
    ) -> bool:
        """Process a campaign message; return True for a new campaign, False for one that is already accepted.

        An accepted campaign whose file was lost or damaged counts as new, but is not charged again.

        ``name``: the campaign in the message's topic, if there was one; the message must be of that campaign.
        ``alive``: feeds a watchdog while a new campaign's signature is verified. Raises Refused or Invalid, counts the
        reason in ``refusals`` and keeps the last valid campaign.
        """
        had = self.campaign
        new = self.accepted.accept(message, now, name, alive)
        if new and had is None:
            self.paused = None
        return new

    # Methods that handle slots.

    def observe(self, sample: "Sample | Sequence[Sample]", now: int) -> None:
        """Take one raw sample, or a buffer of them. Raises Invalid; nothing of the buffer is counted then.

        A sample is an integer in the campaign's unit (a 1 or 0 for duration), or a tuple of integers if the policy's
        streams have several dimensions. A buffer is bytes, a list, an array or a row of ulab (`buffers.summary`).
        """
        self._roll(now)
        if self._open.value is None:
            return
        if isinstance(sample, (int, tuple)):
            self._open.value.add(sample, self.ticks())
        else:
            self._open.value.add_many(sample, self.ticks())

    def close_slot(self, now: int) -> "bytes | None":
        """Return the report of the slot that has just ended, once.

        Return None while the slot lasts, or if nothing may be drawn. The report is in the outbox, and the ledger is on
        file as the policy demands, before it is returned.
        """
        self._roll(now)
        finished = self._open.finished
        if finished is None:
            return None
        campaign, slot, value, opened = finished
        self.paused = self._obstacle(campaign, slot, now, opened)
        if self.paused == "rate":
            # It is too early for the next draw; the slot stays finished, so that a later call may draw its report.
            return None
        self._open.finished = None
        if self.paused is not None:
            return None
        return self._release(campaign, slot, campaign.default if value is None else value)

    def run_once(self, sample: "Sample | Sequence[int] | None", now: int) -> "bytes | None":
        """Return the report of the slot that ended last, for a device that slept; None if nothing may be drawn.

        ``sample``: the slot's value, or a buffer of all of its samples, of which the campaign's measure is taken; None
        if the sensor failed, for which the campaign's default is reported. Raises Invalid.
        """
        campaign = self.accepted.promote(now)
        if campaign is None:
            self.paused = "no_campaign"
            return None
        if sample is not None and not isinstance(sample, (int, tuple)):
            from undertone_device.core.buffers import slot_value

            sample = slot_value(campaign.measure, sample)
        slot = now // campaign.slot_seconds - 1
        self.guard.advance()
        opened = self.ledger.uptime - (now - self.guard.begins(campaign, slot))
        self.paused = self._obstacle(campaign, slot, now, opened)
        if self.paused is not None:
            return None
        return self._release(campaign, slot, campaign.default if sample is None else sample)

    def acked(self, report: bytes) -> None:
        """Remove a report that the broker has acknowledged; it is not sent again in this run."""
        self.ledger.outbox.remove(report)

    def _roll(self, now: int) -> None:
        """Finish the open slot if it is over, and open the one that contains ``now``."""
        self.guard.advance()
        if self._open.lasts(now):
            return
        end = self._open.close(self.ticks())
        campaign = self.accepted.promote(now)
        if campaign is None:
            self.paused = "no_campaign"
        else:
            self._open.open(campaign, now, end, self.ledger.uptime, self.ticks())

    # Methods that draw reports.

    def _obstacle(self, campaign: "Campaign", slot: int, now: int, opened: int) -> "str | None":
        """Return one word why this slot must not be drawn, or None.

        ``opened``: the uptime at which the slot's measurement began.
        """
        if not self.accepted.agrees(now):
            return "clock"
        # A pause is looked for in every slot, also in slots that are not this device's turn, because by ticks a pause
        # begins when the device first sees it.
        paused = self.guard.paused(campaign, slot, now, opened)
        if not campaign.schedule.is_turn(self._place(campaign), slot):
            return "turn"
        return self.guard.obstacle(campaign, slot, now, opened) or paused

    def _release(self, campaign: "Campaign", slot: int, reading: "Sample") -> "bytes | None":
        try:
            self.entropy.refill()
            report = self._draw(campaign, slot, reading)
        except EntropyError:
            self.paused = "entropy"
            return None
        self.guard.spend(campaign, slot)
        # The report's topic needs the campaign's name, which is forgotten if the campaign was just replaced.
        self.accepted.files.remember(campaign)
        self.dropped += self.outbox.append(report)
        if self.guard.commit(campaign):
            return report
        self.outbox.remove_newest()
        self.paused = "storage"
        return None

    def _place(self, campaign: "Campaign") -> int:
        """Return this device's place in the campaign's schedule, by one hash per campaign."""
        if campaign.fingerprint != self._placed[0]:
            self._placed = (campaign.fingerprint, campaign.schedule.place(self.device))
        return self._placed[1]

    def _draw(self, campaign: "Campaign", slot: int, reading: "Sample") -> bytes:
        rule = campaign.rule
        member = campaign.schedule.is_member(self._place(campaign), slot)
        state = self.guard.rule_state(campaign)
        kind, values, chain = rule.draw(campaign, slot, reading, member, state, self.entropy)
        return pack(kind, campaign.fingerprint, slot, values, self.ledger.sequence + 1, chain)

"""The reporter core: one sensor's samples in, perturbed reports out. No loop, no socket, no clock of its own.

Every measured interval enters at most one draw, whatever server, broker or clock say: the ledger's
``spent_until`` moves forward before a report leaves, draws are rate-limited on the monotonic tick counter, and a
campaign outside the policy is refused. Unix seconds are passed in; ticks are milliseconds modulo 2^30.
"""

from undertone_device.campaign_files import CampaignFiles
from undertone_device.ledger import NO_CAMPAIGN, Ledger
from undertone_device.slot_value import TICKS_MASK, SlotValue
from undertone_shared import campaign as campaigns
from undertone_shared.cohort import in_cohort
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid, Refused
from undertone_shared.report import COHORT, LENGTH, REPORT, STREAM, pack
from undertone_shared.truncation import truncate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from undertone_device.ledger import Outbox, Storage
    from undertone_device.slot_value import Sample
    from undertone_device.stream_state import StreamState, VectorValue
    from undertone_shared.campaign import Campaign
    from undertone_shared.entropy import Entropy
    from undertone_shared.notation import Mechanism
    from undertone_shared.policy import Policy

# No clock that is right shows a time before this code existed (2026-11-01).
BUILT = 1793491200
DAY = 86400
DEFAULT_OUTBOX = 96


class Reporter:
    """One sensor of one device under its owner's policy.

    ``storage`` holds the ledger and the accepted campaigns; ``capacity`` is how many unacknowledged reports are
    kept (96 slots are the least that the aggregator still admits). ``asleep``: milliseconds since the last draw by
    a counter that ran on through deep sleep, which makes this wake no boot. ``paused`` says in one word why the
    last finished slot gave no report.
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
        self.refusals: dict[str, int] = {}
        self.dropped = 0
        self.paused: str | None = None
        self._storage = storage
        self._files = CampaignFiles(storage)
        self._entropy = entropy
        self._ticks = ticks
        self._modulus = counter_modulus
        self._dimension = 1 if policy.stream is None else policy.stream.dimension
        self._ledger = Ledger(storage, capacity, LENGTH + 4 * (self._dimension - 1))
        self._stream = _stream_state(policy, self._ledger, entropy)
        # What the file already counts as spent; further than what is spent when slots are reserved in blocks.
        self._reserved_until = self._ledger.spent_until
        self._reserved_used = self._ledger.used
        self._drew_at: int | None = None
        if asleep is not None:
            self._drew_at = (ticks() - asleep) & TICKS_MASK
        self._drawn = False
        self._issued_at = 0
        self.campaign = self._load(self._ledger.current)
        self.next_campaign = self._load(self._ledger.next)
        self._slot: int | None = None
        self._whole = False
        self._value: SlotValue | VectorValue | None = None
        self._finished: tuple[Campaign, int, Sample | None] | None = None

    @property
    def outbox(self) -> "Outbox":
        """Unacknowledged reports, oldest first."""
        return self._ledger.outbox

    @property
    def spent_until(self) -> int:
        """The Unix second at which the last spent interval ends."""
        return self._ledger.spent_until

    @property
    def used(self) -> tuple[int, int]:
        """(period index, reports drawn in it)."""
        return self._ledger.period, self._ledger.used

    # Campaigns

    def campaign_of(self, report: bytes) -> "str | None":
        """The name of the campaign that a report in the outbox belongs to, None if it is not known any more."""
        return self._files.name_of(report)

    def accept(self, message: "bytes | memoryview", now: int, name: "str | None" = None) -> bool:
        """Take a campaign message; True if it is a new campaign, False for the one accepted already.

        ``name``: the campaign that the message's topic names, if it came by one; the message must be of that one.
        Raises Refused or Invalid, counts the reason in ``refusals`` and keeps the last good one.
        """
        try:
            return self._accept(message, now, name)
        except Refused as refused:
            self.refusals[refused.reason] = self.refusals.get(refused.reason, 0) + 1
            raise
        except Invalid:
            self.refusals["invalid"] = self.refusals.get("invalid", 0) + 1
            raise

    def _accept(self, message: "bytes | memoryview", now: int, name: "str | None") -> bool:
        issued_at, fingerprint = campaigns.header(message)
        for known in (self.campaign, self.next_campaign):
            if known is not None and known.fingerprint == fingerprint:
                _check_name(known, name)
                self._hear(issued_at, now)
                return False
        campaign = campaigns.Campaign(campaigns.body_of(message))
        _check_name(campaign, name)
        self.policy.check_campaign(campaign)
        if not self._agrees(now, issued_at):
            raise Refused("clock", "issued_at is %d, this device's clock says %d" % (issued_at, now))
        self._start(now)
        self._roll(now)
        newest = self.next_campaign or self.campaign
        self.policy.check_succession(campaign, newest, self._ledger.last_epoch, now)
        if self.next_campaign is not None:
            raise Refused("epoch_pending", "epoch %d has not begun yet" % self.next_campaign.epoch)
        self._keep(campaign, now)
        self._hear(issued_at, now)
        return True

    def _hear(self, issued_at: int, now: int) -> None:
        # One that agrees with the clock gives way only to a later one that does, too: a forged one cannot pause the
        # device. One that does not agree gives way to any: neither it nor a wrong clock outlasts the next message.
        if not self._agrees(now, self._issued_at) or (issued_at > self._issued_at and self._agrees(now, issued_at)):
            self._issued_at = issued_at

    def _keep(self, campaign: "Campaign", now: int) -> None:
        ledger = self._ledger
        before = (ledger.last_epoch, ledger.current, ledger.next, ledger.rho_period, ledger.rho)
        if self._stream is not None:
            self._stream.charge(campaign, self.policy, now)
        ledger.last_epoch = campaign.epoch
        if self.campaign is None:
            ledger.current = campaign.fingerprint
            if self._stream is not None:
                self._stream.restart()
        else:
            ledger.next = campaign.fingerprint
        try:
            # The file first: a ledger never names a campaign that is not there.
            self._files.save(campaign)
            ledger.write(self._reserved_until, self._reserved_used)
        except OSError as error:
            ledger.last_epoch, ledger.current, ledger.next, ledger.rho_period, ledger.rho = before
            raise Refused("storage", "the campaign could not be stored: %s" % error)
        if self.campaign is None:
            self.campaign = campaign
            self.paused = None
        else:
            self.next_campaign = campaign

    def _load(self, fingerprint: bytes) -> "Campaign | None":
        return None if fingerprint == NO_CAMPAIGN else self._files.load(fingerprint, self.policy)

    def _promote(self, now: int) -> None:
        following = self.next_campaign
        if following is None or (self.campaign is not None and now < following.epoch):
            return
        old = self._ledger.current
        self.campaign = following
        self.next_campaign = None
        self._ledger.current = following.fingerprint
        self._ledger.next = NO_CAMPAIGN
        if self._stream is not None:
            self._stream.restart()
        if old not in (NO_CAMPAIGN, following.fingerprint):
            self._files.retire(old, following, self.outbox)

    # Slots

    def observe(self, sample: "Sample", now: int) -> None:
        """Take one raw sample, an integer in the campaign's unit (a 1 or 0 for duration), or a tuple of integers

        where the policy's streams have several dimensions. Raises Invalid.
        """
        self._roll(now)
        if self._value is not None:
            self._value.add(sample, self._ticks())

    def observe_many(self, samples: "Sequence[Sample]", now: int) -> None:
        """Take a buffer of raw samples. Raises Invalid."""
        self._roll(now)
        if self._value is not None:
            self._value.add_many(samples, self._ticks())

    def close_slot(self, now: int) -> "bytes | None":
        """The report of the slot that has just ended, once; None while it lasts or when nothing may be drawn.

        The report is in the outbox, and on file as the policy demands, before it is returned.
        """
        self._roll(now)
        finished = self._finished
        if finished is None:
            return None
        campaign, slot, value = finished
        self.paused = self._obstacle(campaign, slot, now)
        if self.paused == "rate":
            # Only early: asked again within the slot, it may still be drawn.
            return None
        self._finished = None
        if self.paused is not None:
            return None
        return self._release(campaign, slot, campaign.default if value is None else value)

    def run_once(self, sample: "Sample | None", now: int) -> "bytes | None":
        """Wake, read, report, sleep: ``sample`` is the value of the slot that ended last, None if the sensor failed."""
        self._promote(now)
        campaign = self.campaign
        if campaign is None:
            self.paused = "no_campaign"
            return None
        slot = now // campaign.slot_seconds - 1
        self.paused = self._obstacle(campaign, slot, now)
        if self.paused is not None:
            return None
        return self._release(campaign, slot, campaign.default if sample is None else sample)

    def acked(self, report: bytes) -> None:
        """The broker has acknowledged these bytes: they are not sent again in this run."""
        self._ledger.outbox.remove(report)

    def _start(self, now: int) -> None:
        if self._ledger.lost:
            if self._stream is not None:
                try:
                    self._stream.begin(self._storage, now, self.policy)
                except OSError as error:
                    raise Refused("storage", "the ledger could not be begun: %s" % error)
            # The lost file may have counted as many reports as slots fit into this period so far.
            period = now // self.policy.period_seconds
            elapsed = now - period * self.policy.period_seconds
            self._ledger.start(now, period, elapsed // self.policy.slot_seconds)
            self._reserved_until = now
            self._reserved_used = self._ledger.used

    def _roll(self, now: int) -> None:
        """Finish the open slot if it is over, and open the one that holds ``now``."""
        before = self.campaign
        if before is not None and self._slot is not None:
            seconds = before.slot_seconds
            if now // seconds == self._slot:
                if self._stream is not None and self._finished is None:
                    self._stream.prepare(before)
                return
            end = (self._slot + 1) * seconds
            if self._value is not None:
                value = self._value.close(self._ticks())
                if self._whole:
                    self._finished = (before, self._slot, value)
        else:
            end = -1
        self._promote(now)
        campaign = self.campaign
        if campaign is None:
            self.paused = "no_campaign"
            return
        if self._value is None or before is None or _kept(campaign) != _kept(before):
            self._value = _slot_value(campaign, self._modulus, self._dimension)
        self._slot = now // campaign.slot_seconds
        # A slot that was entered in its middle, by boot or by a jump of the clock, is not reported.
        self._whole = self._slot * campaign.slot_seconds == end

    # Drawing

    def _agrees(self, now: int, issued_at: int) -> bool:
        return now >= BUILT and -DAY <= now - issued_at <= DAY

    def _obstacle(self, campaign: "Campaign", slot: int, now: int) -> "str | None":
        """One word why this slot must not be drawn, or None."""
        ledger = self._ledger
        policy = self.policy
        start = slot * campaign.slot_seconds
        if not self._agrees(now, self._issued_at):
            return "clock"
        if slot < campaign.first_slot:
            return "waiting"
        if slot > campaign.last_slot:
            return "ended"
        if start < ledger.spent_until:
            return "spent"
        if self._drew_at is None:
            if not policy.one_shot and now // DAY <= ledger.day and ledger.boots >= policy.boots_per_day:
                return "boots"
        elif policy.one_shot and self._drawn:
            return "one_shot"
        elif (self._ticks() - self._drew_at) & TICKS_MASK < 900 * campaign.slot_seconds:
            return "rate"
        period = start // policy.period_seconds
        if period < ledger.period or (period == ledger.period and ledger.used >= policy.reports_per_period):
            return "period"
        if self._stream is not None and campaign.stream is not None:
            # The counts are the current campaign's.
            return self._stream.obstacle(campaign, slot) if campaign is self.campaign else "ended"
        return None

    def _spend(self, campaign: "Campaign", slot: int) -> None:
        ledger = self._ledger
        end = (slot + 1) * campaign.slot_seconds
        ledger.spent_until = end
        period = (end - campaign.slot_seconds) // self.policy.period_seconds
        if period != ledger.period:
            ledger.period = period
            ledger.used = 0
            self._reserved_used = 0
        ledger.used += 1
        if self._drew_at is None:
            day = end // DAY
            if day > ledger.day:
                ledger.day = day
                ledger.boots = 0
            ledger.boots += 1
        self._drew_at = self._ticks()
        self._drawn = True

    def _release(self, campaign: "Campaign", slot: int, reading: "Sample") -> "bytes | None":
        try:
            self._entropy.refill()
            report = self._draw(campaign, slot, reading)
        except EntropyError:
            self.paused = "entropy"
            return None
        self._spend(campaign, slot)
        ledger = self._ledger
        self.dropped += ledger.outbox.append(report)
        if ledger.spent_until > self._reserved_until or ledger.used > self._reserved_used or ledger.urgent:
            seconds = campaign.slot_seconds
            ahead = (self.policy.write_seconds + seconds - 1) // seconds - 1
            try:
                ledger.write(ledger.spent_until + ahead * seconds, ledger.used + ahead)
            except OSError:
                ledger.outbox.remove_newest()
                if self._stream is not None:
                    self._stream.forget()
                self.paused = "storage"
                return None
            self._reserved_until = ledger.spent_until + ahead * seconds
            self._reserved_used = ledger.used + ahead
        return report

    def _draw(self, campaign: "Campaign", slot: int, reading: "Sample") -> bytes:
        if campaign.stream is not None and self._stream is not None:
            point = reading if isinstance(reading, tuple) else (reading,) * self._dimension
            released, chain = self._stream.draw(campaign, slot, point)
            return pack(STREAM, campaign.fingerprint, slot, released, chain)
        if not isinstance(reading, int):
            raise Invalid("the reading is %r, expected an integer" % (reading,))
        cohort = campaign.cohort
        rule = campaign.report
        entropy = self._entropy
        if rule is None or in_cohort(cohort.seed, cohort.share, slot, self.device):
            kind = COHORT
            width = campaign.bound
            x = truncate(reading, campaign.offset, 0, width)
            mechanism: Mechanism = cohort.mechanism
        else:
            kind = REPORT
            width = rule.width
            x = truncate(reading, campaign.offset, rule.low, rule.theta)
            mechanism = rule.mechanism
        part = mechanism.choose(entropy)
        level = part.level(x, width, entropy)
        return pack(kind, campaign.fingerprint, slot, (part.draw(level, entropy),))


def _stream_state(policy: "Policy", ledger: Ledger, entropy: "Entropy") -> "StreamState | None":
    if policy.stream is None:
        return None
    # A board without streams never loads their code.
    from undertone_device.stream_state import StreamState

    return StreamState(ledger, entropy)


def _check_name(campaign: "Campaign", name: "str | None") -> None:
    if name is not None and campaign.name != name:
        raise Refused("topic", "the campaign is %s, its topic says %s" % (campaign.name, name))


def _kept(campaign: "Campaign") -> "tuple[str, bool]":
    """What two campaigns must share for the open slot's accumulator to go on."""
    return campaign.measure, campaign.stream is None


def _slot_value(campaign: "Campaign", modulus: int, dimension: int) -> "SlotValue | VectorValue":
    if campaign.stream is None or dimension == 1:
        return SlotValue(campaign.measure, modulus)
    from undertone_device.stream_state import VectorValue

    return VectorValue([SlotValue(campaign.measure, modulus) for _ in range(dimension)])

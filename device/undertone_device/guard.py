"""What keeps every measured interval to at most one draw: the caps and the ledger behind them.

The ledger's ``spent_until`` moves forward before a report leaves, and draws are limited on the monotonic tick counter,
whatever server, broker or clock say. Nothing here ever depends on a reading.
"""

from undertone_device.slot_value import TICKS_MASK
from undertone_shared.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from undertone_device.ledger import Ledger, Storage
    from undertone_device.seams import Carried
    from undertone_shared.campaign import Campaign
    from undertone_shared.policy import Policy

DAY = 86400


class Guard:
    """One sensor's caps and what its ledger counts against them. ``carried``: by kind of rule."""

    def __init__(
        self,
        policy: "Policy",
        storage: "Storage",
        ledger: "Ledger",
        ticks: "Callable[[], int]",
        asleep: "int | None",
        carried: "dict[str, Carried]",
    ):
        self._policy = policy
        self._storage = storage
        self._ledger = ledger
        self._ticks = ticks
        self._carried = carried
        # What the file already counts as spent; further than what is spent when slots are reserved in blocks.
        self._reserved_until = ledger.spent_until
        self._reserved_used = ledger.used
        self._drew_at: int | None = None
        if asleep is not None:
            self._drew_at = (ticks() - asleep) & TICKS_MASK
        self._drawn = False

    def start(self, now: int) -> None:
        """Begin a ledger that is new or lost. Raises Refused if it cannot be written."""
        ledger = self._ledger
        if not ledger.lost:
            return
        try:
            for carried in self._carried.values():
                carried.begin(self._storage, now, self._policy)
        except OSError as error:
            raise Refused("storage", "the ledger could not be begun: %s" % error)
        # The lost file may have counted as many reports as slots fit into this period so far.
        period = now // self._policy.period_seconds
        elapsed = now - period * self._policy.period_seconds
        ledger.start(now, period, elapsed // self._policy.slot_seconds)
        self._reserved_until = now
        self._reserved_used = ledger.used

    def restart(self) -> None:
        """Another campaign is the current one."""
        for carried in self._carried.values():
            carried.restart()

    def carried(self, campaign: "Campaign") -> "Carried | None":
        """What the campaign's kind of rule carries from report to report, if anything."""
        return self._carried.get(campaign.rule.kind)

    def obstacle(self, campaign: "Campaign", slot: int, now: int) -> "str | None":
        """One word why this slot must not be drawn, or None."""
        ledger = self._ledger
        policy = self._policy
        start = slot * campaign.slot_seconds
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
        carried = self.carried(campaign)
        return carried.obstacle(campaign, slot) if carried else None

    def spend(self, campaign: "Campaign", slot: int) -> None:
        """Count the slot's draw, in RAM."""
        ledger = self._ledger
        end = (slot + 1) * campaign.slot_seconds
        ledger.spent_until = end
        period = (end - campaign.slot_seconds) // self._policy.period_seconds
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

    def commit(self, campaign: "Campaign") -> bool:
        """Whether what was spent is on file; it is written at most once in the policy's ``write_seconds``."""
        ledger = self._ledger
        if ledger.spent_until <= self._reserved_until and ledger.used <= self._reserved_used and not ledger.urgent:
            return True
        seconds = campaign.slot_seconds
        ahead = (self._policy.write_seconds + seconds - 1) // seconds - 1
        try:
            ledger.write(ledger.spent_until + ahead * seconds, ledger.used + ahead)
        except OSError:
            for carried in self._carried.values():
                carried.forget()
            return False
        self._reserved_until = ledger.spent_until + ahead * seconds
        self._reserved_used = ledger.used + ahead
        return True

    def write(self) -> None:
        """Write the ledger with what is reserved already. Raises OSError."""
        self._ledger.write(self._reserved_until, self._reserved_used)

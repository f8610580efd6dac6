"""The guard of a sensor: its caps and its ledger.

The guard allows at most one draw per measured interval, and demands a minimum time between two draws.

The ledger's ``spent_until`` moves forward before a report leaves. If the policy's ``rest_by`` is "ticks", what the
clock allows must also be allowed by the monotonic tick counter. Nothing here ever depends on a reading.
"""

from undertone_device import unload
from undertone_device.core.ledger import PAUSE, in_ticks
from undertone_device.core.slot_value import TICKS_MASK
from undertone_shared.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from undertone_device.core.ledger import Ledger, Storage
    from undertone_device.core.pause_span import PauseSpan
    from undertone_device.core.protocols import RuleState
    from undertone_shared.campaign import Campaign
    from undertone_shared.policy import Policy

_DAY = 86400
# Name of the file that counts the ledgers begun. If this file exists and the ledger does not, the ledger was lost.
BEGUN = "begun"


class Guard:
    """One sensor's caps and the counts in its ledger. ``rule_states``: `RuleState` by kind of rule."""

    def __init__(
        self,
        policy: "Policy",
        storage: "Storage",
        ledger: "Ledger",
        ticks: "Callable[[], int]",
        asleep: "int | None",
        rule_states: "dict[str, RuleState]",
    ):
        self.policy = policy
        self.storage = storage
        self.ledger = ledger
        self.ticks = ticks
        self.rule_states = rule_states
        # The ledger's file counts everything before this second as spent. If slots are reserved in blocks, this
        # includes slots that have not been drawn yet.
        self._until = ledger.spent_until
        self._reserved = 0
        self._units = 0
        self._campaign: Campaign | None = None
        self._drew_at: int | None = None
        self._drawn = False
        self._span: PauseSpan | None = None
        self._wrote_at = ledger.uptime
        now = self._at = ticks()
        drew = ledger.sums.limit(policy.reports_per_period, ledger.spent_until, ledger.uptime)
        slept = 0
        if asleep is not None:
            self._drew_at = (now - asleep) & TICKS_MASK
            slept = asleep // 1000
            # ``asleep`` counts from the last draw, so it is added to that draw's uptime. The ledger's uptime may
            # already include part of it.
            ledger.uptime = max(ledger.uptime, drew + slept)
        # Uptime is counted in whole seconds, so the uptime since the last draw or boot may be up to one second too
        # large; adding 1 here corrects that.
        self._rest_from = ledger.uptime - slept + 1

    def start(self, now: int) -> None:
        """Begin a ledger that is new or lost. Raises Refused if it cannot be written."""
        ledger = self.ledger
        try:
            losses = self.storage.read(BEGUN)
            if ledger.lost:
                self._begin(now, losses is not None)
                self.write()
            elif losses is not None:
                return
            # The file ``begun`` is written after the ledger, because a power cut between the two writes would otherwise
            # make the new ledger look lost.
            self.storage.write(BEGUN, b"%d" % (int(losses or 0) + 1))
        except (OSError, ValueError) as error:
            raise Refused("storage", "the ledger could not be begun: %s" % error)

    def _begin(self, now: int, lost: bool) -> None:
        ledger = self.ledger
        ledger.lost = False
        ledger.spent_until = ledger.began = self._until = now
        if lost:
            # Assume the worst case: the lost ledger had used the whole cap of the last period and the whole lifetime
            # budget.
            policy = self.policy
            ledger.uptime += policy.period_seconds
            self._rest_from += policy.period_seconds
            ledger.sums.fill(now, ledger.uptime, policy.slot_seconds)
            ledger.ever = policy.lifetime
            for state in self.rule_states.values():
                state.lost(now)

    def advance(self) -> None:
        """Count uptime: to be called at least every twelve days, before the ticks wrap around."""
        seconds = ((self.ticks() - self._at) & TICKS_MASK) // 1000
        self._at = (self._at + seconds * 1000) & TICKS_MASK
        self.ledger.uptime += seconds

    def rested(self, opened: int) -> bool:
        """Return True if the uptime ``opened`` is at least a rest after both the last draw and the boot, by the ticks.

        Also return True if the policy has no rest, or counts it by the clock.
        """
        rest = self.policy.rest_seconds
        by_clock = not rest or self.policy.rest_by != "ticks"
        return by_clock or opened - self._rest_from >= in_ticks(rest)

    def begins(self, campaign: "Campaign", slot: int) -> int:
        """Return the Unix second from which readings enter a slot's value.

        The value of a counter starts from a reading in the slot before.
        """
        return (slot - 1 if campaign.measure == "counter" else slot) * campaign.slot_seconds

    def restart(self) -> None:
        """Reset the rule states, because another campaign becomes current."""
        for state in self.rule_states.values():
            state.restart()

    def rule_state(self, campaign: "Campaign") -> "RuleState | None":
        """Return the state that the campaign's kind of rule keeps from report to report, if any."""
        return self.rule_states.get(campaign.rule.kind)

    def obstacle(self, campaign: "Campaign", slot: int, now: int, opened: int) -> "str | None":
        """Return one word why this slot must not be drawn, or None.

        ``opened``: the uptime at which the slot's measurement began. The caller has checked that the device's clock
        agrees with the server's (`Acceptance.agrees`).
        """
        ledger = self.ledger
        policy = self.policy
        start = slot * campaign.slot_seconds
        if slot < campaign.first_slot:
            return "waiting"
        if slot > campaign.last_slot:
            return "ended"
        if start + campaign.slot_seconds > now:
            # The slot has ended, but not by the clock: the clock was ahead when it ended, and was set back since.
            return "ahead"
        if start < ledger.spent_until:
            self._return(now)
            return "spent"
        rest = policy.rest_seconds
        if rest and (self.begins(campaign, slot) < ledger.spent_until + rest or not self.rested(opened)):
            return "rest"
        if self._drew_at is None:
            if not policy.one_shot and now // _DAY <= ledger.day and ledger.boots >= policy.boots_per_day:
                return "boots"
        elif policy.one_shot and self._drawn:
            return "one_shot"
        elif (self.ticks() - self._drew_at) & TICKS_MASK < 900 * campaign.slot_seconds:
            return "rate"
        period = policy.period_seconds
        ticks = in_ticks(period) if policy.rest_by == "ticks" else 0
        # No campaign has shorter slots than the policy allows. If a period has at most as many of the shortest slots as
        # the cap has reports, no period of the clock can exceed the cap, and only the ticks are checked.
        by_clock = 0 if policy.reports_per_period * policy.slot_seconds >= period else period
        if not ledger.sums.permits(start, ledger.uptime, by_clock, ticks):
            return "period"
        # A report of a stream costs no ε: what streams may cost in a lifetime is checked when a campaign is accepted.
        cost = self._cost(campaign)
        if policy.lifetime and cost and ledger.ever + cost > policy.lifetime:
            return "lifetime"
        state = self.rule_state(campaign)
        return state.obstacle(campaign, slot) if state else None

    def _return(self, now: int) -> None:
        """Limit the ledger's times to ``now`` if a clock that was far ahead has been corrected.

        The clock was wrong if the ledger counts time as spent more than a day and a block of reserved slots after
        ``now``. Lowering that time is safe: nothing that was measured lies after ``now``, and by the tick counter the
        next draw still waits for nine tenths of a slot and for the rest. The ledger is not changed if rests are not
        counted in ticks, or if the policy allows streams, whose windows are numbered by the clock; the owner can then
        use `reset`.
        """
        ledger = self.ledger
        policy = self.policy
        if policy.rest_by != "ticks" or policy.stream or ledger.spent_until <= now + _DAY + policy.write_seconds:
            return
        from undertone_device.core import reset

        reset.clamp(ledger, policy, now)
        unload(reset.__name__)
        self._until = now
        self._reserved = 0
        # The rest before the next draw starts now, also if no report has been drawn since the boot.
        self._drew_at = self.ticks()
        self._rest_from = ledger.uptime + 1

    def paused(self, campaign: "Campaign", slot: int, now: int, opened: int) -> "str | None":
        """Return the word ``pause`` if the household's pause overlaps the slot, by clock or ticks.

        Call this in each slot. During a pause the ledger is written as often as if reports were drawn, so that after a
        restart the device knows which part of the pause has passed.
        """
        ledger = self.ledger
        try:
            pause = self.storage.read(PAUSE)
            if not pause:
                self._span = None
                return None
            if self._span is None:
                # Most boards never pause, so the code is loaded only now.
                from undertone_device.core.pause_span import PauseSpan

                self._span = PauseSpan(self.storage, self.policy.rest_by == "ticks")
            covered = self._span.covers(
                pause, self.begins(campaign, slot), (slot + 1) * campaign.slot_seconds, now, opened, ledger.uptime
            )
            if covered and ledger.uptime - self._wrote_at >= self.policy.write_seconds:
                self.write()
        except (OSError, ValueError, IndexError):
            # The file of the pause is damaged, or a file cannot be read or written: the slot counts as paused.
            covered = True
        return "pause" if covered else None

    def _cost(self, campaign: "Campaign") -> int:
        """Return the units of epsilon of one report; of several mechanisms, those of the most expensive one.

        Return 0 for a stream, which is charged in rho instead.
        """
        if campaign is not self._campaign:
            self._price(campaign)
        return self._units

    def _price(self, campaign: "Campaign") -> None:
        self._campaign = campaign
        # Draws that were reserved in advance were charged at the last campaign's ε, so they cannot be used any more.
        self._units = self._reserved = 0
        # The cost is computed once per campaign, so the code for it is not kept in a board's memory.
        from undertone_device.core import units

        for _, mechanism in campaign.rule.mechanisms:
            self._units = max(self._units, units.epsilon_units(*mechanism.certificate()))
        unload(units.__name__)

    def spend(self, campaign: "Campaign", slot: int) -> None:
        """Count the slot's draw, in memory alone."""
        ledger = self.ledger
        start = slot * campaign.slot_seconds
        units = self._cost(campaign)
        ledger.spent_until = start + campaign.slot_seconds
        ledger.sequence += 1
        ledger.ever += units
        ledger.sums.spend(start // _DAY, units)
        ledger.sums.add(start, ledger.uptime)
        if self._drew_at is None:
            day = ledger.spent_until // _DAY
            if day > ledger.day:
                ledger.day = day
                ledger.boots = 0
            ledger.boots += 1
        self._drew_at = self.ticks()
        self._drawn = True
        self._rest_from = ledger.uptime + 1

    def commit(self, campaign: "Campaign") -> bool:
        """Write the ledger, unless its file counts the draw already; return True if the spent draws are on file.

        One write reserves draws for the policy's ``write_seconds``. The first report of a stream's chain is written at
        once.
        """
        ledger = self.ledger
        if ledger.spent_until <= self._until and self._reserved and not ledger.urgent:
            self._reserved -= 1
            return True
        apart = campaign.slot_seconds + self.policy.rest_seconds
        ahead = (self.policy.write_seconds + apart - 1) // apart - 1
        try:
            ledger.write(ledger.spent_until + ahead * apart, ahead, self._units)
        except OSError:
            for state in self.rule_states.values():
                state.forget()
            return False
        self._until = ledger.spent_until + ahead * apart
        self._reserved = ahead
        return True

    def write(self) -> None:
        """Write the ledger with the draws that are already reserved. Raises OSError."""
        self.ledger.write(self._until, self._reserved, self._units)
        self._wrote_at = self.ledger.uptime

"""The chains of a stream: each chain's last clipped reading, in RAM only, and the numbers of reports and chains, which
the ledger keeps.

The state of a chain contains the household's reading, so no byte of it is stored, and a reboot starts a new chain.
"""

from undertone_device.core.ledger import in_ticks
from undertone_device.core.slot_value import SlotValue
from undertone_shared.checks import check_sample
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN, LARGEST_RHO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertone_device.core.ledger import Ledger
    from undertone_device.core.protocols import Sample
    from undertone_shared.campaign import Campaign
    from undertone_shared.entropy import Entropy
    from undertone_shared.policy import Policy
    from undertone_shared.stream import Point, StreamRule


class Chain:
    """The last report of a chain: ``index``, its number i from 1; clipped ``point``; ``released`` X_i; its ``slot``."""

    def __init__(self, index: int, point: "Point", released: "Point", slot: int):
        self.index = index
        self.point = point
        self.released = released
        self.slot = slot


class StreamState:
    """The chains of the current campaign, one per slot modulo the rule's lag; the ledger has counts and charges.

    It implements `RuleState` (``protocols.py``).
    """

    def __init__(self, policy: "Policy", ledger: "Ledger", entropy: "Entropy"):
        assert policy.stream is not None
        self._stream = policy.stream
        self._by_ticks = policy.rest_by == "ticks"
        self.ledger = ledger
        self.entropy = entropy
        self._chains: dict[int, Chain] = {}

    # Methods that count what the streams spent of the privacy budget.

    def lost(self, now: int) -> None:
        """Count the stream budgets of the current period and of the whole life as spent: the ledger was lost."""
        ledger = self.ledger
        ledger.rho = LARGEST_RHO
        ledger.rho_period = now // self._stream.period_seconds
        ledger.rho_since = ledger.uptime
        ledger.ever_rho = max(ledger.ever_rho, self._stream.lifetime)

    def charge(self, campaign: "Campaign", now: int) -> None:
        """Charge the whole campaign to the ledger, whose ``rho`` bounds the charge of any period up to ``rho_period``.

        The sum ``rho`` restarts from zero when the clock or the campaign's beginning is past that period and, if the
        policy counts by ticks, the ticks have counted 31/32 of a period since the last sum began. Raises Refused if the
        sum is above the period's cap, or the total of all streams above the lifetime limit.
        """
        rule: StreamRule = campaign.rule  # type: ignore[assignment]
        ledger = self.ledger
        seconds = self._stream.period_seconds
        cost = self._stream.charge(campaign, rule)
        total = cost
        last = max((campaign.end - 1) // seconds, ledger.rho_period)
        short = self._by_ticks and ledger.rho and ledger.uptime - ledger.rho_since < in_ticks(seconds)
        goes_on = short or max(campaign.epoch, now) // seconds <= ledger.rho_period
        if goes_on:
            total += ledger.rho
        self._stream.check_total(total, rule)
        ever = ledger.ever_rho + rule.charge() * rule.windows_of(campaign.last_slot - campaign.first_slot + 1)
        self._stream.check_lifetime(ever)
        ledger.rho = total
        ledger.rho_period = last
        ledger.ever_rho = ever
        if not goes_on:
            ledger.rho_since = ledger.uptime

    def restart(self) -> None:
        """Reset the counts, because another campaign becomes current."""
        self.ledger.window = self.ledger.window_until = self.ledger.reports = self.ledger.chains = 0
        self.forget()

    def forget(self) -> None:
        """End all chains, so that the next report of each starts a new one."""
        self._chains = {}

    def obstacle(self, campaign: "Campaign", slot: int) -> "str | None":
        """Return one word why the slot must not be drawn, or None.

        Reasons: the campaign is not the current one, the window's reports or chains are used up, the window is early.
        """
        rule: StreamRule = campaign.rule  # type: ignore[assignment]
        ledger = self.ledger
        if campaign.fingerprint != ledger.current:
            return "ended"  # The ledger's counts belong to the current campaign only.
        window = _window(rule, campaign, slot)
        reports, chains = (ledger.reports, ledger.chains) if window <= ledger.window else (0, 0)
        if reports >= rule.reports:
            return "reports"
        length = rule.renewal * campaign.slot_seconds
        if self._by_ticks and window > ledger.window and ledger.window_until > ledger.uptime + in_ticks(length):
            return "window"
        if chains >= rule.chains and self._chain(rule, window, slot) is None:
            return "chains"
        return None

    # Methods that draw reports.

    def draw(self, campaign: "Campaign", slot: int, reading: "Point") -> "tuple[Point, int]":
        """Return (perturbed point X_i, its index i in the chain) for a slot without ``obstacle``. Raises EntropyError.

        The noise is drawn here, with the report, so that no earlier copy of the memory contains noise that is still to
        be used.
        """
        rule: StreamRule = campaign.rule  # type: ignore[assignment]
        entropy = self.entropy
        ledger = self.ledger
        window = _window(rule, campaign, slot)
        chain = self._chain(rule, window, slot)
        noise = rule.draw_noise(chain is None, entropy) if rule.law == GAUSSIAN else ()
        entropy.refill()
        point = rule.point(reading, campaign.offset, entropy)
        if window != ledger.window:
            ledger.window = window
            ledger.reports = ledger.chains = 0
            self.forget()
        if not ledger.reports:
            # The tick counter lets a new window begin up to the length of a window early: a device that joined in the
            # middle of a day can thus begin its next window at the start of the next day. In the long run no more than
            # one window begins per window length.
            length = rule.renewal * campaign.slot_seconds
            ledger.window_until = max(ledger.window_until, ledger.uptime) + length
        if chain is None:
            released = rule.first(point, noise, entropy)
            index = 1
            ledger.chains += 1
            ledger.urgent = True
        else:
            point = rule.clip(point, chain.point)
            released = rule.later(point, chain.point, chain.released, noise, entropy)
            index = chain.index + 1
        ledger.reports += 1
        self._chains[slot % rule.lag] = Chain(index, point, released, slot)
        return released, index

    def _chain(self, rule: "StreamRule", window: int, slot: int) -> "Chain | None":
        """Return the chain that the slot continues, None if the slot starts a new one."""
        chain = self._chains.get(slot % rule.lag)
        if chain is None or window != self.ledger.window:
            return None
        missed = (slot - chain.slot) // rule.lag - 1
        return None if rule.restart and missed >= rule.restart else chain


def _window(rule: "StreamRule", campaign: "Campaign", slot: int) -> int:
    return (slot - campaign.first_slot) // rule.renewal if rule.renewal else 0


class VectorValue:
    """The slot values of a reading's coordinates, each accumulated separately."""

    def __init__(self, parts: "list[SlotValue]"):
        self.measure = parts[0].measure
        self.parts = parts

    def add(self, sample: "Sample", ticks: int) -> None:
        """Take one sample, a tuple of coordinates. Raises Invalid."""
        self.add_many([sample], ticks)

    def add_many(self, samples: "Sequence[Sample]", ticks: int) -> None:
        """Take a list of samples. Raises Invalid; no sample is counted then."""
        if not isinstance(samples, list):
            raise Invalid("samples are of type %s, expected a tuple, or a list of tuples" % type(samples).__name__)
        for sample in samples:
            if not isinstance(sample, tuple) or len(sample) != len(self.parts):
                raise Invalid("a sample has another form, expected a tuple of %d integers" % len(self.parts))
            for coordinate in sample:
                check_sample(coordinate)
        for sample in samples:
            for i in range(len(self.parts)):
                self.parts[i].add(sample[i], ticks)

    def close(self, ticks: int) -> "tuple[int, ...] | None":
        """Return the slot's values, None if a coordinate has none; later samples belong to the next slot."""
        values = [part.close(ticks) for part in self.parts]
        return None if [value for value in values if value is None] else tuple([value or 0 for value in values])

"""A stream's chains: the last clipped readings, in RAM alone, and what the ledger counts of them.

A chain's slew state is the household's reading: no byte of it reaches the storage, so a reboot starts a new chain.
"""

from undertone_device.slot_value import SlotValue, check_sample
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN, LARGEST_RHO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertone_device.ledger import Ledger, Storage
    from undertone_device.slot_value import Sample
    from undertone_shared.campaign import Campaign
    from undertone_shared.entropy import Entropy
    from undertone_shared.policy import Policy
    from undertone_shared.stream import Point, StreamRule

# Written once, before anything is charged: a ledger that is missing beside it was lost, not new.
FILE = "streams"


class Chain:
    """One chain's end: its length, the last clipped point, what was released for it, and its slot."""

    def __init__(self, index: int, point: "Point", released: "Point", slot: int):
        self.index = index
        self.point = point
        self.released = released
        self.slot = slot


class StreamState:
    """The chains of the current campaign, one per slot modulo the rule's lag; counts and charges go to the ledger.

    How a campaign with a stream collects; see `seams.Collecting`.
    """

    def __init__(self, ledger: "Ledger", entropy: "Entropy"):
        self._ledger = ledger
        self._entropy = entropy
        self._chains: dict[int, Chain] = {}

    # Budget

    def begin(self, storage: "Storage", now: int, policy: "Policy") -> None:
        """The ledger is new, or it was lost and this period counts as spent. Raises OSError."""
        assert policy.stream is not None
        if storage.read(FILE) is None:
            storage.write(FILE, b"1")
            return
        self._ledger.rho = LARGEST_RHO
        self._ledger.rho_period = now // policy.stream.period_seconds

    def charge(self, campaign: "Campaign", policy: "Policy", now: int) -> None:
        """Add the whole campaign to the ledger: ``rho`` bounds what any period up to ``rho_period`` is charged.

        Raises Refused where that is above the cap.
        """
        rule = campaign.stream
        if rule is None or policy.stream is None:
            return
        ledger = self._ledger
        seconds = policy.stream.period_seconds
        total = policy.stream.charge(campaign, rule)
        last = (campaign.end - 1) // seconds
        if max(campaign.epoch, now) // seconds <= ledger.rho_period:
            total += ledger.rho
            last = max(last, ledger.rho_period)
        policy.stream.check_total(total, rule)
        ledger.rho = total
        ledger.rho_period = last

    def restart(self) -> None:
        """Another campaign is the current one: its counts start at nothing."""
        self._ledger.window = self._ledger.reports = self._ledger.chains = 0
        self.forget()

    def forget(self) -> None:
        """End all chains."""
        self._chains = {}

    def obstacle(self, campaign: "Campaign", slot: int) -> "str | None":
        """``reports`` or ``chains`` if the window's budget of them is spent."""
        rule = campaign.stream
        assert rule is not None
        ledger = self._ledger
        if campaign.fingerprint != ledger.current:
            return "ended"  # the counts are the current campaign's
        window = _window(rule, campaign, slot)
        reports, chains = (ledger.reports, ledger.chains) if window <= ledger.window else (0, 0)
        if reports >= rule.reports:
            return "reports"
        if chains >= rule.chains and self._chain(rule, window, slot) is None:
            return "chains"
        return None

    # Reports

    def draw(self, campaign: "Campaign", slot: int, reading: "Point") -> "tuple[Point, int]":
        """(X_i, chain index i) of a slot for which there is no ``obstacle``. Raises EntropyError.

        The noise is drawn here, with the report: a copy of the memory from before holds none that is used twice.
        """
        rule = campaign.stream
        assert rule is not None
        entropy = self._entropy
        ledger = self._ledger
        window = _window(rule, campaign, slot)
        chain = self._chain(rule, window, slot)
        noise = rule.draw_noise(chain is None, entropy) if rule.law == GAUSSIAN else ()
        entropy.refill()
        point = rule.point(reading, campaign.offset, entropy)
        if window != ledger.window:
            ledger.window = window
            ledger.reports = ledger.chains = 0
            self.forget()
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
        """The chain that the slot continues, None if it starts one."""
        chain = self._chains.get(slot % rule.lag)
        if chain is None or window != self._ledger.window:
            return None
        missed = (slot - chain.slot) // rule.lag - 1
        return None if rule.restart and missed >= rule.restart else chain


def _window(rule: "StreamRule", campaign: "Campaign", slot: int) -> int:
    return (slot - campaign.first_slot) // rule.renewal if rule.renewal else 0


class VectorValue:
    """The slot values of a reading's coordinates, each accumulated alone."""

    def __init__(self, parts: "list[SlotValue]"):
        self.measure = parts[0].measure
        self._parts = parts

    def add(self, sample: "Sample", ticks: int) -> None:
        """Take one sample, a tuple of coordinates. Raises Invalid."""
        if not isinstance(sample, tuple) or len(sample) != len(self._parts):
            raise Invalid("a sample is %r, expected a tuple of %d integers" % (sample, len(self._parts)))
        for coordinate in sample:
            check_sample(coordinate)
        for i in range(len(sample)):
            self._parts[i].add(sample[i], ticks)

    def add_many(self, samples: "Sequence[Sample]", ticks: int) -> None:
        """Take samples one by one. Raises Invalid."""
        for sample in samples:
            self.add(sample, ticks)

    def close(self, ticks: int) -> "tuple[int, ...] | None":
        """The slot's values, None if a coordinate has none; the next slot starts empty."""
        values = [part.close(ticks) for part in self._parts]
        return None if [value for value in values if value is None] else tuple([value or 0 for value in values])

"""What an operator should look at, seen from a campaign's counters: pure, one alarm for each thing that begins."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from undertone_aggregator.campaign.state import OVER, CampaignState
from undertone_aggregator.counts.seen import CONFLICT
from undertone_aggregator.ingest.admission import REASONS
from undertone_aggregator.store.store import RECEIVED

# Slots without a report, beyond those that may still be under way.
_SILENT_SLOTS = 3
# Refusals of one look: so many, and so large a share of what came.
_REFUSED = 20
_REFUSED_SHARE = 0.2
_LEAST_FREE = 200 << 20
# Several batches of `undertone spark run`.
_PATIENCE_SECONDS = 600.0
# A step of the wall clock.
CLOCK_SECONDS = 60.0

# (event, sentence)
Ringing = tuple[str, str]


@dataclass(frozen=True)
class Look:
    """One look: ``now`` in Unix seconds, ``ticks`` of a monotonic clock, ``free`` bytes where the store is."""

    now: float
    ticks: float
    outcomes: Mapping[str, int]
    free: int
    state: CampaignState
    # How long the oldest landed file has waited for the engine that counts; None where the server counts.
    waiting: float | None = None


@dataclass
class Watch:
    """Feed it looks, a minute apart or so; each alarm rings when its trouble begins, and again after it was gone."""

    slot_seconds: int
    settle_slots: int
    # How long a landed file may wait for the engine that counts.
    patience: float = _PATIENCE_SECONDS
    _last: Look | None = None
    _ringing: set[str] = field(default_factory=set)

    def look(self, look: Look) -> list[Ringing]:
        """The alarms that begin with this look."""
        ringing = dict(self._found(look))
        self._last = look
        new = [(event, sentence) for event, sentence in ringing.items() if event not in self._ringing]
        self._ringing = set(ringing)
        return new

    def _found(self, look: Look) -> Iterator[Ringing]:
        yield from self._silence(look)
        if look.free < _LEAST_FREE:
            yield "disk", f"{look.free >> 20} MB are free where the store is"
        if look.state.state == OVER:
            yield "ended", "the campaign is over: its last slot has ended, and devices are silent"
        last = self._last
        if last is None:
            return
        off = (look.now - last.now) - (look.ticks - last.ticks)
        if abs(off) > CLOCK_SECONDS:
            yield "clock", f"this machine's clock moved by {off:+.0f} s: reports may be refused as future or late"
        came = look.outcomes.get(RECEIVED, 0) - last.outcomes.get(RECEIVED, 0)
        refused = {name: look.outcomes.get(name, 0) - last.outcomes.get(name, 0) for name in REASONS}
        total = sum(refused.values())
        if total >= _REFUSED and total > _REFUSED_SHARE * came:
            worst = max(refused, key=lambda name: refused[name])
            yield "refused", f"{total} of the last {came} deliveries were refused, most as {worst}: {REASONS[worst]}"
        if refused.get(CONFLICT, 0):
            yield "conflict", f"{refused[CONFLICT]} reports contradict others of the same device and slot"

    def _silence(self, look: Look) -> Iterator[Ringing]:
        if look.waiting is not None and look.waiting > self.patience:
            # Reports come; what is silent is the one who counts them.
            minutes = look.waiting / 60
            yield (
                "uncounted",
                f"the oldest landed file has waited for {minutes:.0f} minutes: does undertone spark run run?",
            )
            return
        # The first slot has to end before a report of it can come.
        slots = self.settle_slots + _SILENT_SLOTS + (look.state.newest is None)
        if look.state.silence(look.now) > slots * self.slot_seconds:
            before = "since the campaign began" if look.state.newest is None else "for several slots"
            yield "silent", f"no report has come {before}"

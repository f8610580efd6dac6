"""Alarms for the operator, from snapshots of a campaign's counters and state: one alarm for each new problem."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from undertone_aggregator.base.endings import notice, time_left
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import RETIRED
from undertone_aggregator.campaign.state import OVER, STRAYS, CampaignState
from undertone_aggregator.counts.seen import CONFLICT
from undertone_aggregator.ingest.admission import REASONS
from undertone_aggregator.mqtt.certificates import cure
from undertone_aggregator.store.store import RECEIVED

# An alarm is raised after this number of slots without a report, not counting slots whose reports may still be under
# way.
_SILENT_SLOTS = 3
# An alarm is raised if at least this number of deliveries were refused between two snapshots, and they were more than
# this share of all deliveries between them.
_REFUSED = 20
_REFUSED_SHARE = 0.2
_LEAST_FREE = 200 << 20
# Seconds that a landed file may wait for Spark before an alarm, long enough for several batches of `undertone spark
# run`.
_PATIENCE_SECONDS = 600.0
# A jump of the wall clock by more than this number of seconds raises an alarm.
CLOCK_SECONDS = 60.0
# Events that happen at one moment. Such an event is absent from the next snapshot, but that is not the end of a
# problem.
_MOMENTARY = frozenset(("clock", "conflict"))

# An alarm as (name of the event, sentence for the log).
Alarm = tuple[str, str]


@dataclass(frozen=True)
class Look:
    """A snapshot: ``now`` in Unix seconds, ``ticks`` of a monotonic clock, ``free`` bytes on the store's disk."""

    now: float
    ticks: float
    outcomes: Mapping[str, int]
    free: int
    state: CampaignState
    # Seconds for which the oldest landed file has waited for Spark to count it; None if the server itself counts.
    waiting: float | None = None
    # Path of each certificate of the server's folder -> Unix second at which it ends.
    certificates: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Watch:
    """Finds alarms in snapshots half a minute apart; each alarm is raised when its problem begins, or begins again."""

    slot_seconds: int
    settle_slots: int
    # Seconds that a landed file may wait until Spark counts it.
    patience: float = _PATIENCE_SECONDS
    _last: Look | None = None
    # Event of the last snapshot -> its sentence. An event is a name, and further words if several events have the same
    # name.
    _active: dict[str, str] = field(default_factory=dict)
    # Sentences of the problems that had ended by the last snapshot.
    over: list[str] = field(default_factory=list)
    _noticed: set[str] = field(default_factory=set)

    def look(self, look: Look) -> list[Alarm]:
        """Return the alarms that begin with this snapshot."""
        active = dict(self._found(look))
        self._last = look
        new = [(_name(event), sentence) for event, sentence in active.items() if event not in self._active]
        self.over = [
            sentence
            for event, sentence in self._active.items()
            if event not in active and _name(event) not in _MOMENTARY
        ]
        self._active = active
        return new

    @property
    def lasting(self) -> frozenset[str]:
        """Names of the problems that the last snapshot showed, without those of a single moment."""
        return frozenset(map(_name, self._active)) - _MOMENTARY

    def notices(self, look: Look) -> list[Alarm]:
        """Return the notices (no alarms) that begin with this snapshot: the campaign ends soon, or has ended."""
        found = {}
        if look.state.state == OVER:
            found["ended"] = "the campaign is over: its last slot has ended"
        elif sentence := look.state.ending(look.now):
            found[f"ending {look.state.notice(look.now)}"] = sentence
        new = [(_name(event), sentence) for event, sentence in found.items() if event not in self._noticed]
        self._noticed = set(found)
        return new

    def _found(self, look: Look) -> Iterator[Alarm]:
        # Nothing is expected of a retired campaign's devices.
        retired = look.state.state == RETIRED
        if not retired:
            yield from self._silence(look)
            if look.state.strays:
                yield STRAYS, look.state.straying()
        if look.free < _LEAST_FREE:
            yield "disk", f"the disk with the server's data has only {look.free >> 20} MB of free space"
        for path, end in look.certificates.items():
            if (days := notice(end, look.now)) is not None:
                ends = "has ended" if end <= look.now else f"ends in {time_left(end, look.now)}"
                yield f"certificate {path} {days}", f"the certificate in {path} {ends}: {cure(path)}"
        last = self._last
        if last is None or retired:
            return
        off = (look.now - last.now) - (look.ticks - last.ticks)
        if abs(off) > CLOCK_SECONDS:
            slept = ", or the machine slept" if off > 0 else ""
            yield (
                "clock",
                f"this machine's clock moved by {off:+.0f} s{slept}: reports may be refused as future or late",
            )
        received = look.outcomes.get(RECEIVED, 0) - last.outcomes.get(RECEIVED, 0)
        refused = {name: look.outcomes.get(name, 0) - last.outcomes.get(name, 0) for name in REASONS}
        total = sum(refused.values())
        if total >= _REFUSED and total > _REFUSED_SHARE * received:
            worst = max(refused, key=lambda name: refused[name])
            yield (
                "refused",
                f"{total} of the last {received} deliveries were refused, most often as {worst}: {REASONS[worst]}",
            )
        if refused.get(CONFLICT, 0):
            told = many(refused[CONFLICT], "report contradicts another", "reports contradict others")
            yield "conflict", f"{told} of the same device and slot"

    def _silence(self, look: Look) -> Iterator[Alarm]:
        if look.waiting:
            # Reports have arrived in landed files, and Spark has not counted them yet, so devices are not silent.
            if look.waiting > self.patience:
                minutes = look.waiting / 60
                yield (
                    "uncounted",
                    f"the oldest landed file has waited for {minutes:.0f} minutes: is undertone spark run running?",
                )
            return
        # The first slot must end before a report of it can arrive.
        slots = self.settle_slots + _SILENT_SLOTS + (look.state.newest is None)
        if look.state.silence(look.now) > slots * self.slot_seconds:
            before = "since the campaign began" if look.state.newest is None else "for several slots"
            yield "silent", f"no report has come {before}, although the server takes them in: look at the devices"


def _name(event: str) -> str:
    return event.partition(" ")[0]

"""Alerts about a server's problems: which message is due and what it says, from the problems and the times alone.

A message consists of the sentences below, of campaigns' names and of times. The sentence of an alarm in the log may
name devices or files and is therefore not sent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.plural import many
from undertone_aggregator.base.room import CROWD
from undertone_aggregator.campaign.binding import RETIRED
from undertone_aggregator.campaign.state import OVER, STRAYS, ServerState

# Name of a problem that lasts until it is mended -> what a message says of it.
LASTING = {
    "hangs": "the server hangs: start it again",
    "broker": "the broker cannot be reached: reports wait at the broker or on devices, and nothing is published",
    "full": "a disk that the campaign writes to is full: reports wait at the broker and on devices, and nothing is lost"
    " while they have room; make room on the disk",
    "disk": "little space is left on the disk with the server's data, or it cannot be read: make room, or mend it",
    CROWD: "devices are turned away, because there is no room for more connections: undertone doctor says why, and how"
    " to make room",
    "certificate": "a certificate of the server ends soon, or has ended: undertone doctor says which one, and what to"
    " do",
    "failed": "the campaign does not run: the log has the reason",
    "not-ready": "the campaign takes in no reports, or not all: undertone doctor has the reason",
    STRAYS: "the server refuses the reports of some devices, because it does not know their epoch, or"
    " this epoch has ended: undertone doctor says what to do",
    "unsigned": "the signing key is missing, so devices that verify signatures refuse this campaign: put the key back",
    "silent": "no report has come for several slots, although the server takes them in: look at the devices and their"
    " network",
    "uncounted": "landed files wait for Spark: is undertone spark run running?",
    "refused": "more than a fifth of the deliveries are refused: the log says why",
    "ends": "the campaign ends soon: undertone campaign succeed starts the next one",
    "ended": "the campaign is over: undertone campaign succeed starts the next one",
}
# Name of an event -> what a message says of it. Other events have a general sentence.
MOMENTARY = {
    "conflict": "reports contradict others of the same device and slot: the log names the devices, unless Spark counts",
    "clock": "the clock of the server's machine jumped, or the machine slept: reports may be refused as future or late",
    "files": "the server ran out of open files: raise LimitNOFILE in its systemd unit, or ulimit -Hn before its start",
    "dropped": "the broker dropped messages: acknowledged reports may be among them",
    "restored": "the database is older than what the server has published: some slots get no number",
    "stale": "theta no longer fits the readings: undertone query says by how much",
    "foreign": "another program broadcasts the campaign: find out who else may publish at the broker",
    "take_over": "this server replaced a campaign that its store does not know: if another server issued it, that"
    " server loses its devices",
    "groups": "the changed file of groups is not in use, the old groups stay: the log says why",
    "plan": "the changed plan is not in use: undertone campaign apply checks it and puts it in use",
    "handover": "the hand-over of the campaign's devices is not sent: the log says why",
}
_OTHER = 'the log has another alarm ({event}): look there for "alarm:"'
# Least seconds between two messages about the same momentary event.
_AGAIN_SECONDS = 3600.0
# Seconds until the first attempt after a failure. Each further failure doubles them, up to the second number.
_RETRY_SECONDS, _LARGEST_WAIT_SECONDS = 30.0, 3600.0

# Campaign ("" for the whole server) and name of the problem.
Problem = tuple[str, str]


class Message(NamedTuple):
    """A message. ``good``: True if it only tells that problems have ended."""

    title: str
    body: str
    good: bool


def lasting_problems(state: ServerState, seen: Mapping[str, Iterable[str]], now: float) -> dict[Problem, int]:
    """Return a map: problem that exists at Unix second ``now`` -> its level. A higher level is worth a new message.

    ``seen``: campaign -> the problems that its counters show (`undertone_aggregator.campaign.watch.Watch.lasting`). The
    level of a campaign's end is minus the days of its notice; the level of every other problem is 0.
    """
    found: dict[Problem, int] = {("", name): 0 for name in (*state.common_problems(now), *state.crowd())}
    for campaign, status in state.campaigns.items():
        found |= {(campaign, name): 0 for name in state.own_problems(campaign)}
        for name in seen.get(campaign, ()):
            # Disk and certificates belong to the whole server.
            found["" if name in ("disk", "certificate") else campaign, name] = 0
        days = status.notice(now)
        if days is not None:
            found[campaign, "ends"] = -days
        if status.state == OVER:
            found[campaign, "ended"] = 0
        if status.signed is False and status.state != RETIRED:
            found[campaign, "unsigned"] = 0
    return found


@dataclass
class _Begun:
    """A problem that exists: its level, and when it began."""

    level: int
    ticks: float
    time: float


@dataclass
class Alerts:
    """Decides which message to one address is due.

    ``wait``: seconds for which a problem must last before a message says so, and for which it must be over before a
    message says that; also the least time between messages. ``sent``: problem -> the level that was delivered; a server
    that starts again passes it in. All ``ticks`` are of a monotonic clock.
    """

    wait: float
    sent: dict[Problem, int] = field(default_factory=dict)
    _now: dict[Problem, _Begun] = field(default_factory=dict)
    _over: dict[Problem, float] = field(default_factory=dict)
    _events: Counter[Problem] = field(default_factory=Counter)
    _quiet: dict[Problem, float] = field(default_factory=dict)
    _next: float = 0.0
    _failures: int = 0

    def note(self, lasting: Mapping[Problem, int], events: Mapping[Problem, int], now: float, ticks: float) -> None:
        """Note the problems that exist at Unix second ``now``, and how often each event happened since the last note.

        Events that announce a lasting problem are skipped.
        """
        for problem, level in lasting.items():
            begun = self._now.get(problem)
            if begun is None or begun.level != level:
                self._now[problem] = _Begun(level, ticks, now)
        for problem in [problem for problem in self._now if problem not in lasting]:
            del self._now[problem]
        self._over = {problem: self._over.get(problem, ticks) for problem in self.sent if problem not in lasting}
        self._events.update({event: n for event, n in events.items() if n and event[1] not in LASTING})

    def message(self, ticks: float) -> Message | None:
        """Return the message that is due, or None. Call `delivered` or `failed` next."""
        begun, over, events = self._due(ticks)
        if ticks < self._next or not (begun or over or events):
            return None
        lines = [f"Problem: {_said(each)} (since {utc(self._now[each].time)})" for each in begun]
        lines += [f"Alarm: {_said(each)} ({many(self._events[each], 'time')})" for each in events]
        lines += [f"Over: {_said(each).partition(': ')[0]}" for each in over]
        still = [each for each in self._now if each in self.sent and each not in begun]
        lines += [f"Still: {_said(each)}" for each in sorted(still)]
        n = len(begun) + len(events)
        title = f"{n} new problem{'s' * (n > 1)}" if n else f"{len(over)} problem{'s' * (len(over) > 1)} over"
        return Message(f"Undertone: {title}", "\n".join(lines), not n)

    def delivered(self, ticks: float) -> None:
        """Note that the message due at ``ticks`` was delivered."""
        begun, over, events = self._due(ticks)
        self.sent |= {problem: self._now[problem].level for problem in begun}
        for problem in over:
            del self.sent[problem], self._over[problem]
        for event in events:
            del self._events[event]
            self._quiet[event] = ticks + _AGAIN_SECONDS
        self._next, self._failures = ticks + self.wait, 0

    def failed(self, ticks: float) -> None:
        """Note that the message was not delivered. The next attempt sends what is true at that time."""
        self._next = ticks + min(_RETRY_SECONDS * 2**self._failures, _LARGEST_WAIT_SECONDS)
        self._failures = min(self._failures + 1, 32)

    def _due(self, ticks: float) -> tuple[list[Problem], list[Problem], list[Problem]]:
        begun = [
            problem
            for problem, each in self._now.items()
            if self.sent.get(problem) != each.level and ticks >= each.ticks + self.wait
        ]
        over = [problem for problem, since in self._over.items() if ticks >= since + self.wait]
        events = [event for event in self._events if ticks >= self._quiet.get(event, ticks)]
        return sorted(begun), sorted(over), sorted(events)


def _said(problem: Problem) -> str:
    campaign, event = problem
    sentence = LASTING.get(event) or MOMENTARY.get(event) or _OTHER.format(event=event)
    return f"[{campaign}] {sentence}" if campaign else sentence

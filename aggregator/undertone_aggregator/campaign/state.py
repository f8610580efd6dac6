"""The state of a server and of its campaigns: one object that every command, page, metric and probe reads.

The server's own loop makes the state and writes it, with the time, to a file in the server's folder. A reader that
finds an old state concludes that the server has died or hangs.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.endings import notice, time_left
from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.plural import many
from undertone_aggregator.base.room import CROWD, Room
from undertone_aggregator.campaign.binding import PAUSED, RETIRED, RUNNING

STARTING, CHOOSING, OVER, FAILED, STOPPING = "starting", "choosing", "over", "failed", "stopping"
# States of a campaign that a running server reports.
STATES = (STARTING, RUNNING, CHOOSING, PAUSED, RETIRED, OVER, FAILED, STOPPING)
# States of a campaign without a running server: it was served before, or never.
STOPPED, NEW = "stopped", "new"
# Name of the problem that devices follow another version of a campaign.
STRAYS = "strays"
# States in which reports are accepted.
_OPEN = (RUNNING, CHOOSING, PAUSED)
# A state older than this many seconds is that of a server that is dead or hangs.
STALE_SECONDS = 30.0
# Free space in bytes below which the next reports cannot be stored.
LEAST_FREE_BYTES = 16 << 20


@dataclass(frozen=True)
class CampaignState:
    """State of one campaign: its ``state`` of `STATES`, and the ``reason`` for it if there is one.

    ``ready``: every worker has its session at the broker and can write to the store. ``newest``: the Unix second at
    which the newest slot with a report ended. ``due``: the Unix second from which reports are expected. ``end``: the
    Unix second at which the campaign's last slot ends. ``due`` and ``end`` are None before an epoch is issued, but
    ``due`` is known earlier if the plan gives a start that is ahead. ``signed``: whether the campaign's signing key
    exists; None if that is not known yet.

    ``quiet``: seconds without a report that are normal, because devices take turns. ``spent``: the Unix second until
    which a stream's devices are silent because their budget is spent, None while some is left. ``since``: the Unix
    second since which the server takes in reports without a break. ``full``: whether the disk of the store is full.
    ``strays``: number of devices whose reports are refused because they are for another version of the campaign, see
    `undertone_aggregator.campaign.strays`.
    """

    state: str
    reason: str = ""
    ready: bool = False
    newest: int | None = None
    due: int | None = None
    end: int | None = None
    signed: bool | None = None
    quiet: int = 0
    spent: int | None = None
    since: int | None = None
    full: bool = False
    strays: int = 0

    def silence(self, now: float) -> float:
        """Return the seconds for which reports are overdue at Unix second ``now``, or 0 if none is overdue.

        No report is expected between the turns of the same devices, from a stream whose budget is spent, or while the
        server itself takes in no reports.
        """
        if self.state not in _OPEN or self.due is None or (self.end is not None and now > self.end):
            return 0.0
        known = [each for each in (self.due, self.newest, self.spent, self.since) if each is not None]
        return max(now - max(known) - self.quiet, 0.0)

    def notice(self, now: float) -> int | None:
        """Return within how many days the campaign ends, if a notice of its end is due at Unix second ``now``.

        See `undertone_aggregator.base.endings.notice`. Return None if no notice is due.
        """
        if self.state not in _OPEN or self.end is None or self.due is None or now > self.end:
            return None
        return notice(self.end, now, self.due)

    def starts(self, now: float) -> int | None:
        """Return the Unix second at which the first slot begins if that is still ahead, else None."""
        return self.due if self.state in _OPEN and self.due is not None and now < self.due else None

    def beginning(self, now: float) -> str:
        """Return a sentence about when the first slot begins if that is still ahead, else ""."""
        starts = self.starts(now)
        if starts is None:
            return ""
        return f"its first slot begins at {utc(starts)}"

    def note(self, now: float) -> str:
        """Return a sentence about something that is normal but worth knowing; "" if there is nothing.

        It is about a beginning that is still ahead, a budget that is spent, or an end that is near.
        """
        if self.state in _OPEN and self.spent is not None and now < self.spent:
            last = self.end is not None and self.spent >= self.end
            when = "until the campaign ends" if last else f"before {utc(self.spent)}"
            return f"devices that reported in every slot have spent their budget: few or no reports are due {when}"
        return self.beginning(now) or self.ending(now)

    def ending(self, now: float) -> str:
        """Return a sentence about the campaign's end if a `notice` of it is due, else ""."""
        if self.end is None or self.notice(now) is None:
            return ""
        when = utc(self.end)
        return (
            f"the campaign ends at {when}, in {time_left(self.end, now)}: undertone campaign extend sets a"
            " later end (not for a stream), undertone campaign succeed starts the next campaign"
        )

    def straying(self) -> str:
        """Return a sentence about the devices that follow another version of the campaign, and what to do."""
        return (
            f"the server refuses the reports of {many(self.strays, 'device')}, because it does not know their epoch,"
            " or this epoch has ended. If you restored a backup from before an extension, extend the campaign again"
            " (undertone campaign extend): the devices then come back by themselves. If the campaign is a stream, or is"
            " over, start the next one (undertone campaign succeed)"
        )

    def sentence(self) -> str:
        """Return the state, with its reason in brackets."""
        return f"{self.state} ({self.reason})" if self.reason else self.state


@dataclass(frozen=True)
class ServerState:
    """State of a server.

    ``time``: Unix second of its loop's last pass. ``started``: Unix second of its start. ``reachable``: the broker
    answers, or the direct endpoint listens. ``free``: free bytes on the disk of the stores. ``room``: how many devices
    may be connected to the endpoint at once, None with a broker. ``turned_away``: number of devices that logged in and
    found no room.
    """

    time: float
    started: float
    reachable: bool
    free: int
    campaigns: Mapping[str, CampaignState] = field(default_factory=dict)
    room: Room | None = None
    turned_away: int = 0

    def alive(self, now: float) -> bool:
        """Return True if the server's loop makes progress at Unix second ``now``."""
        return now - self.time <= STALE_SECONDS

    def problems(self, now: float) -> list[str]:
        """Return a sentence for each reason why reports are not accepted; empty if there is none."""
        found = list(self.common_problems(now).values())
        if not self.campaigns:
            found.append("there is no campaign")
        return found + [problem for name in sorted(self.campaigns) for problem in self.own_problems(name).values()]

    def problems_of(self, name: str, now: float) -> list[str]:
        """Return a sentence for each reason why reports of campaign ``name``, or of some devices, are not accepted."""
        return [*self.common_problems(now).values(), *self.crowd().values(), *self.own_problems(name).values()]

    def common_problems(self, now: float) -> dict[str, str]:
        """Return a map: name of a problem of the whole server -> sentence."""
        found = {}
        if not self.alive(now):
            found["hangs"] = f"the server is dead or hangs: no progress for {now - self.time:.0f} s; start it again"
        if not self.reachable:
            found["broker"] = (
                "the broker cannot be reached: reports wait at the broker or on devices, and nothing is published"
            )
        if self.free < LEAST_FREE_BYTES:
            # A disk that cannot be read counts as having no space.
            left = f"has only {self.free >> 20} MB of free space" if self.free else "is full, or cannot be read"
            found["disk"] = f"the disk with the server's data {left}: make room there"
        return found

    def crowd(self) -> dict[str, str]:
        """Return a map: name of the alarm -> sentence about devices that find no room, and about what makes room.

        It is empty if there are no such devices. The server takes in the reports of all others, so it counts as ready.
        """
        if self.room is None or not self.turned_away:
            return {}
        fix = self.room.fix_for(self.room.connections + self.turned_away)
        return {CROWD: f"{self.room.crowd(self.turned_away)}. For more room: {fix}"}

    def own_problems(self, name: str) -> dict[str, str]:
        """Return a map: name of a problem of campaign ``name`` alone -> sentence."""
        campaign = self.campaigns.get(name)
        if campaign is not None and campaign.full:
            why = f"campaign {name} waits, because a disk is full: {campaign.reason}"
            return {"full": f"{why}. Make room there, and the campaign goes on by itself"}
        if campaign is not None and campaign.state in (FAILED, STARTING):
            return {"failed": f"campaign {name} {'has' if campaign.state == FAILED else 'is'} {campaign.sentence()}"}
        if campaign is not None and campaign.state in _OPEN and not campaign.ready:
            why = campaign.reason or "a worker has no session at the broker, or cannot write to the store"
            return {"not-ready": f"campaign {name} takes in no reports, or not all: {why}"}
        if campaign is not None and campaign.strays and campaign.state in (*_OPEN, OVER):
            return {STRAYS: f"campaign {name}: {campaign.straying()}"}
        return {}

    def row(self, now: float) -> dict[str, Any]:
        """Return the state as a JSON object, with the problems at Unix second ``now``."""
        problems = self.problems(now)
        return {"ready": not problems, "problems": problems, **asdict(self)}

    def write(self, path: Path) -> None:
        """Replace the file in one step. Raises OSError."""
        write_private(path, json.dumps(asdict(self)), durable=False)


def read_state(path: Path) -> ServerState | None:
    """Read the state that a server wrote last; None if there is none, or if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        row = json.loads(path.read_text(encoding="utf-8"))
        campaigns = {name: CampaignState(**campaign) for name, campaign in row.pop("campaigns").items()}
        room = row.pop("room")
        return ServerState(**row, campaigns=campaigns, room=None if room is None else Room(**room))
    return None


def state_of(served: ServerState | None, name: str, life: str | None, now: float) -> CampaignState:
    """Return the state of campaign ``name`` from its server, or without a running server from its store.

    ``life``: the state that an operator set last (`undertone_aggregator.campaign.binding.STATES`), None before the
    campaign has begun.
    """
    if served is not None and served.alive(now) and name in served.campaigns:
        campaign = served.campaigns[name]
        found = replace(served, campaigns={name: campaign}).problems(now)
        hidden = found and campaign.state in _OPEN and not campaign.reason
        return replace(campaign, reason=found[0]) if hidden else campaign
    why = "no server runs"
    if served is not None:
        why = "the server has not started the campaign yet" if served.alive(now) else served.problems(now)[0]
    if life in (PAUSED, RETIRED):
        return CampaignState(life, why)
    return CampaignState(NEW if life is None else STOPPED, why)

"""The supervisor of `undertone serve`: runs all campaigns in one process, from one source of reports.

If a campaign fails, the others go on. The server's folder holds the campaigns, see
`undertone_aggregator.server.folder`.
"""

import math
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from undertone_aggregator.base.lock import locked
from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.open_files import FILES, none_left, ran_out
from undertone_aggregator.base.systemd import Watchdog, notify
from undertone_aggregator.campaign.binding import changes
from undertone_aggregator.campaign.election import Held
from undertone_aggregator.campaign.runner import Running, RunOptions, Slots
from undertone_aggregator.campaign.state import CHOOSING, FAILED, STARTING, STOPPING, CampaignState, ServerState
from undertone_aggregator.mqtt.sessions import slots_of
from undertone_aggregator.mqtt.source import Outgoing, Source, enter_source
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.disk_space import retry_while_full
from undertone_aggregator.store.store import DiskFull, StoreError, open_store
from undertone_shared.errors import Invalid

_LOOK_SECONDS = 1.0
# Seconds until a campaign that failed is started again.
_RETRY_SECONDS = 30.0
# A campaign counts as hanging if its loop has made no progress for this number of seconds. The choice of θ reports
# progress every few seconds.
_HANG_SECONDS = 600.0
# Interval in seconds at which the state's file is written. It is also written when the state of a campaign changes, or
# when the broker becomes reachable or unreachable.
_WRITE_SECONDS = 5.0
# Seconds from the first device that is turned away to the alarm, which says how many there are; and least seconds from
# one such alarm to the next.
_CROWD_SECONDS = 10.0
_CROWD_AGAIN_SECONDS = 60.0
# Seconds that a new server waits for the previous one to end.
_LOCK_SECONDS = 1.0


class Member:
    """One campaign that runs in its own thread."""

    def __init__(self, name: str, server: "Server") -> None:
        self.name = name
        self.failure = ""
        # A message for the operator about a problem that does not stop the campaign.
        self.note = ""
        self.running: Running | None = None
        self.text = b""
        self.journal = server.journal.of(name)
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"campaign {name}", daemon=True)
        self._thread.start()

    @property
    def state(self) -> CampaignState:
        """Current state of the campaign."""
        running = self.running
        if self.failure:
            return CampaignState(FAILED, self.failure)
        if running is None:
            return CampaignState(STARTING)
        if self.hangs:
            return CampaignState(FAILED, f"it has made no progress for {running.idle:.0f} s")
        state = running.state
        return state if state.reason else replace(state, reason=self.note)

    @property
    def lasting(self) -> frozenset[str]:
        """Names of the lasting problems that the campaign's counters show."""
        return frozenset() if self.running is None or self.failure else self.running.lasting

    @property
    def hangs(self) -> bool:
        """True if the campaign's loop makes no progress."""
        return self.running is not None and self.running.idle > _HANG_SECONDS

    @property
    def ended(self) -> bool:
        """True if the campaign's thread has ended."""
        return not self._thread.is_alive()

    def ask_to_stop(self) -> None:
        """Ask the campaign to stop soon; does not wait."""
        self._stop.set()

    def join(self) -> None:
        """Stop the campaign and wait until everything it has read is committed and acknowledged."""
        self.ask_to_stop()
        self._thread.join()

    def _run(self) -> None:
        server = self._server
        while not self._stop.is_set():
            try:
                self.text = server.home.text(self.name)
                config = server.home.config(self.name)
                options = replace(server.options, slots=server.slots)
                self.running = Running(config, server.source, self.journal, options)
                self.failure = ""
                self.running.run(server.outlet, self._stop)
            except Exception as wrong:
                # The other campaigns go on after any exception.
                self.failure = str(wrong) or repr(wrong)
                self.journal.alarm("failed", f"campaign {self.name} does not run: {self.failure}")
                self._wait_for_a_change()

    def _wait_for_a_change(self) -> None:
        until = time.monotonic() + _RETRY_SECONDS
        while time.monotonic() < until and not self._stop.wait(_LOOK_SECONDS):
            if self._server.home.text(self.name) not in (b"", self.text):
                return


class Server:
    """The server of all campaigns of a folder. ``members``: name -> campaign."""

    def __init__(self, home: Home, source: Source, outlet: Outgoing, journal: Journal, options: RunOptions) -> None:
        self.home = home
        self.source = source
        self.outlet = outlet
        self.journal = journal
        self.options = options
        self.started = time.time()
        self.disk = home.disk
        self.slots = Slots({}, threading.Lock())
        self.members: dict[str, Member] = {}
        # Campaigns that were asked to stop and end in their own time; the loop does not wait for them.
        self._leaving: dict[str, Member] = {}
        self._watchdog = Watchdog()
        self._written_at = -math.inf
        self._crowd_at = math.inf
        self._written: ServerState | None = None
        self._state: ServerState | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set: campaigns start when their file appears, and end when it is removed."""

        def wait_for_room(trouble: str) -> None:
            self._pass()
            self.journal.say_once("room", trouble)

        try:
            retry_while_full(lambda: self._note_slots(stop), wait_for_room, stop)
            while not stop.is_set():
                self._look()
                self._pass()
                stop.wait(_LOOK_SECONDS)
        finally:
            notify("STOPPING=1")
            members = (*self.members.values(), *self._leaving.values())
            for member in members:
                member.ask_to_stop()
            for member in members:
                member.join()
            # Remove the state's file when the server stops, because an old state would mean that the server hangs.
            self.home.state.unlink(missing_ok=True)

    @property
    def ready(self) -> bool:
        """True if every campaign that has not failed accepts reports."""
        states = [member.state for member in tuple(self.members.values())]
        return bool(states) and all(state.ready or state.state == FAILED for state in states)

    def state(self) -> ServerState:
        """Return the state at the loop's last pass. Any thread may call this."""
        return self._state or self._measure()

    def _measure(self) -> ServerState:
        campaigns = {name: CampaignState(STOPPING) for name in tuple(self._leaving)}
        campaigns |= {name: member.state for name, member in sorted(self.members.items())}
        try:
            free = shutil.disk_usage(self.disk).free
        except OSError:
            # A disk that cannot be read counts as having no space.
            free = 0
        facts = self.source.facts()
        return ServerState(
            time.time(),
            self.started,
            self.outlet.connected,
            free,
            campaigns,
            facts.get("room"),
            facts.get("turned_away", 0),
        )

    def _pass(self) -> None:
        """Finish a pass of the loop: notify systemd's watchdog unless a campaign hangs, and write the state."""
        if not any(member.hangs for member in self.members.values()):
            self._watchdog.beat()
        state, before = self._measure(), self._written
        if before is None or state.campaigns != before.campaigns:
            self._tell(state, before)
            due = True
        else:
            due = state.reachable != before.reachable or time.monotonic() >= self._written_at + _WRITE_SECONDS
        self._heed(state)
        if due:
            self._written, self._written_at = state, time.monotonic()
            try:
                state.write(self.home.state)
            except OSError as wrong:
                self.journal.say_once("state", f"alarm: the server's state cannot be written: {wrong}")
        # Change the state only after its file is written. So a reader of both finds each change of a campaign's state
        # in the file, too.
        self._state = state

    def _heed(self, state: ServerState) -> None:
        """Raise an alarm about devices that are turned away, once all of them have had the time to try.

        While devices are turned away, further alarms follow, one each minute.
        """
        now, found = time.monotonic(), state.crowd()
        if not found:
            self._crowd_at = now + _CROWD_SECONDS
        elif now >= self._crowd_at:
            self._crowd_at = now + _CROWD_AGAIN_SECONDS
            for event, sentence in found.items():
                self.journal.say_once(event, f"alarm: {sentence}")

    def _tell(self, state: ServerState, before: ServerState | None) -> None:
        """Log each campaign whose state has changed."""
        for name, campaign in state.campaigns.items():
            was = None if before is None else before.campaigns.get(name)
            if was is None or was.state != campaign.state:
                since = "" if was is None else f"; it was {was.state} before"
                verb = "has" if campaign.state == FAILED else "is"
                what = " its threshold" if campaign.state == CHOOSING else ""
                sentence = f"campaign {name} {verb} {campaign.state}{what}{since}"
                self.journal.of(name).say("state", sentence, state=campaign.state)

    def _look(self) -> None:
        names = set(self.home.names())
        self.source.serve(names | set(self._leaving))
        for name in [name for name, member in self._leaving.items() if member.ended]:
            del self._leaving[name]
        for name in sorted(names - set(self.members) - set(self._leaving)):
            self.members[name] = Member(name, self)
        for name in names & set(self.members):
            self._look_at(self.members[name])
        for name in set(self.members) - names:
            self.journal.say("removed", f"the plan of campaign {name} is gone: the campaign stops")
            self._dismiss(name)

    def _dismiss(self, name: str) -> None:
        """Ask a campaign to end, but do not wait: choosing θ takes minutes, and this loop serves the other campaigns,
        too.
        """
        member = self._leaving[name] = self.members.pop(name)
        member.ask_to_stop()

    def _look_at(self, member: Member) -> None:
        """Restart a campaign whose changed plan was applied.

        A changed plan that was not applied yet is logged, and the campaign continues.
        """
        text = self.home.text(member.name)
        if member.failure or not member.text or text in (b"", member.text):
            return
        member.text = text
        try:
            config = self.home.config(member.name)
            with open_store(config.store_url, campaign=member.name, read_only=True) as store:
                unapplied = changes(store.meta(), config.campaign, config.stream)
        except (Invalid, OSError) as wrong:
            member.note = f"the changed plan is not in use: {wrong}"
            member.journal.alarm("plan", member.note)
            return
        if unapplied:
            changed = "; ".join(map(str, unapplied))
            member.note = f"the plan was changed without undertone campaign apply; the change is not in use: {changed}"
            member.journal.alarm("plan", member.note)
            return
        member.journal.say("plan", f"campaign {member.name} takes up its changed plan")
        self._dismiss(member.name)

    def _note_slots(self, stop: threading.Event) -> None:
        """Note the broker users of each campaign's sessions, before any campaign chooses users for new ones (`Slots`).

        Waits for a database that cannot be reached. Raises DiskFull.
        """
        for name, url in self.home.stores().items():
            while not stop.is_set():
                try:
                    # The store is opened for writing, so that a store of an earlier version is migrated. Otherwise it
                    # could not be read.
                    with open_store(url, campaign=name) as store:
                        self.slots.held[name] = slots_of(store)
                    break
                except DiskFull:
                    raise
                except StoreError as wrong:
                    self._pass()
                    self.journal.say_once("store", f"the store cannot be used, trying again: {wrong}")
                    if none_left():
                        self.journal.say_once(FILES, ran_out())
                    stop.wait(_LOOK_SECONDS)
                except Invalid:
                    # The store is invalid. The campaign opens it, too, and reports the error when it starts.
                    break


class Stopped(Exception):
    """The server was asked to stop while it waited for a campaign or for disk space, before anything ran."""


@contextmanager
def alone(home: Home) -> Iterator[None]:
    """Hold the lock that the folder's server holds. Raises Invalid if another server keeps it for a second."""
    with locked(home.lock, home.folder, _LOCK_SECONDS, f"another server serves {home.folder}: stop it first"):
        yield


@contextmanager
def open_server(home: Home, stop: threading.Event, journal: Journal, options: RunOptions) -> Iterator[Server]:
    """Open the source and the outlet, and yield the server. Waits for the first campaign. The caller holds `alone`.

    Raises Invalid. Raises Stopped if ``stop`` is set during a wait.
    """
    with ExitStack() as opened:
        config = _first(home, stop, journal)
        source = enter_source(opened, config, journal, stop)
        if source is None:
            raise Stopped

        def made() -> Outgoing:
            return source.outlet(config.broker.prefix, lambda sentence: journal.say_once("outlet", sentence))

        outlet: Outgoing = Held(made) if config.shares else made()
        outlet.start()
        try:
            server = Server(home, source, outlet, journal, options)
            watch_hang_up(source, journal, stop, lambda: server.ready and outlet.settled)
            yield server
        finally:
            outlet.stop()


def _first(home: Home, stop: threading.Event, journal: Journal) -> Config:
    """Return the first readable campaign's configuration, for the settings that all campaigns share."""
    watchdog = Watchdog()
    while not home.names():
        folder = shlex.quote(str(home.folder))
        journal.say_once(
            "waiting",
            "the server waits, because there is no campaign yet. Make one, for example: undertone campaign create"
            f" {folder} load --sensor load --unit Wh --bound 10000 --epsilon 1; add devices: undertone devices add 20"
            f" --home {folder}; the server starts the campaign by itself",
        )
        # The server counts as ready while it waits for a campaign, however long. Otherwise systemd would restart it.
        notify("READY=1")
        watchdog.beat()
        if stop.wait(_LOOK_SECONDS):
            raise Stopped
    failures: list[Exception] = []
    for name in home.names():
        try:
            return home.config(name)
        except (Invalid, OSError) as wrong:
            failures.append(wrong)
    raise failures[0] if failures else Invalid(f"there is no campaign in {home.folder} any more")

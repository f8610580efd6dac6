"""`undertone serve`: any number of campaigns in one process, over one source of reports; one that fails stops alone."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from undertone_aggregator.binding import changes
from undertone_aggregator.broker_options import DIRECT
from undertone_aggregator.collect.room import until_room
from undertone_aggregator.collect.sessions import slots_of
from undertone_aggregator.collect.store import NoRoom, StoreError, open_store
from undertone_aggregator.config import Config
from undertone_aggregator.home import Home
from undertone_aggregator.journal import Journal
from undertone_aggregator.notify import notify
from undertone_aggregator.running import Options, Running, Slots
from undertone_aggregator.server import watch_hang_up
from undertone_aggregator.source import Outgoing, Source, enter_source
from undertone_shared.errors import Invalid

_LOOK_SECONDS = 1.0
# A campaign that failed is tried again after so long.
_RETRY_SECONDS = 30.0


class Member:
    """One campaign in a thread of its own."""

    def __init__(self, name: str, server: "Server") -> None:
        self.name = name
        self.failure = ""
        self.running: Running | None = None
        self.text = b""
        self.journal = server.journal.of(name)
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"campaign {name}", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether it takes in reports."""
        return not self.failure and self.running is not None and self.running.ready

    def ask_to_stop(self) -> None:
        """It ends soon."""
        self._stop.set()

    def join(self) -> None:
        """Wait until everything it read is committed and acknowledged."""
        self._stop.set()
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
                # Whatever it is, the other campaigns go on.
                self.failure = str(wrong) or repr(wrong)
                self.journal.alarm("failed", f"campaign {self.name} does not run: {self.failure}")
                self._wait_for_a_change()

    def _wait_for_a_change(self) -> None:
        until = time.monotonic() + _RETRY_SECONDS
        while time.monotonic() < until and not self._stop.wait(_LOOK_SECONDS):
            if self._server.home.text(self.name) not in (b"", self.text):
                return


class Server:
    """All campaigns of a folder. ``members`` by name."""

    def __init__(self, home: Home, source: Source, outlet: Outgoing, journal: Journal, options: Options) -> None:
        self.home = home
        self.source = source
        self.outlet = outlet
        self.journal = journal
        self.options = options
        self.started = time.time()
        self.disk = home.disk
        self.slots = Slots({}, threading.Lock())
        self.members: dict[str, Member] = {}

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set: campaigns begin when their file appears, and end when it goes."""
        try:
            until_room(lambda: self._note_slots(stop), lambda said: self.journal.say_once("room", said), stop)
            while not stop.is_set():
                self._look()
                stop.wait(_LOOK_SECONDS)
        finally:
            for member in self.members.values():
                member.ask_to_stop()
            for member in self.members.values():
                member.join()

    @property
    def ready(self) -> bool:
        """Whether every campaign that runs takes in reports."""
        members = tuple(self.members.values())
        return bool(members) and all(member.ready or member.failure for member in members)

    def status(self) -> dict[str, Any]:
        """What runs, for health and metrics."""
        return {
            name: {
                "state": "failed" if member.failure else "starting" if member.running is None else member.running.state,
                "ready": member.ready,
                "failure": member.failure,
            }
            for name, member in sorted(self.members.items())
        }

    def _look(self) -> None:
        names = set(self.home.names())
        for name in sorted(names - set(self.members)):
            self.members[name] = Member(name, self)
        for name in names & set(self.members):
            self._look_at(self.members[name])
        for name in set(self.members) - names:
            self.journal.say("removed", f"the plan of campaign {name} is gone: it stops")
            self.members.pop(name).join()

    def _look_at(self, member: Member) -> None:
        """A plan that was applied is taken up; one that was only written is told, and the campaign goes on."""
        text = self.home.text(member.name)
        if member.failure or not member.text or text in (b"", member.text):
            return
        member.text = text
        try:
            config = self.home.config(member.name)
            with open_store(config.store_url, campaign=member.name, read_only=True) as store:
                unapplied = changes(store.meta(), config.campaign, config.stream)
        except (Invalid, OSError) as wrong:
            member.journal.alarm("plan", f"the changed plan is not taken up: {wrong}")
            return
        if unapplied:
            said = "; ".join(map(str, unapplied))
            member.journal.alarm("plan", f"the plan was changed and not applied, nothing changes: {said}")
            return
        member.journal.say("plan", f"campaign {member.name} takes up its changed plan")
        member.join()
        self.members[member.name] = Member(member.name, self)

    def _note_slots(self, stop: threading.Event) -> None:
        """Whose sessions wait at the broker, before any campaign takes a slot. Raises NoRoom.

        Waits for a database that cannot be reached.
        """
        for name, url in self.home.stores().items():
            while not stop.is_set():
                try:
                    # An earlier version's store is brought up to date: read only, it could not be read.
                    with open_store(url, campaign=name) as store:
                        self.slots.held[name] = slots_of(store)
                    break
                except NoRoom:
                    raise
                except StoreError as wrong:
                    self.journal.say_once("store", f"the store cannot be reached, trying again: {wrong}")
                    stop.wait(_LOOK_SECONDS)
                except Invalid:
                    # It says so itself when it starts.
                    break


@contextmanager
def open_server(home: Home, stop: threading.Event, journal: Journal, options: Options) -> Iterator[Server]:
    """The broker or endpoint runs, the way out is open. Waits for the first campaign. Raises Invalid."""
    config = _first(home, stop, journal)
    with ExitStack() as opened:
        source = enter_source(opened, config, journal, stop)
        if source is None:
            raise Invalid("it was stopped while it waited for room")
        if config.broker.mode == DIRECT and len(home.names()) > 1:
            raise Invalid("broker.mode is 'direct', which serves one campaign, but there are more: use a broker")
        outlet = source.outlet(config.broker.prefix, lambda sentence: journal.say_once("outlet", sentence))
        outlet.start()
        try:
            server = Server(home, source, outlet, journal, options)
            watch_hang_up(source, journal, stop, lambda: server.ready and outlet.settled)
            yield server
        finally:
            outlet.stop()


def _first(home: Home, stop: threading.Event, journal: Journal) -> Config:
    """What all campaigns share, as the first one that can be read has it."""
    while not home.names():
        journal.say_once("waiting", f"no campaign yet: undertone campaign create {home.folder} NAME")
        # All is well, however long it lasts: systemd would start it again.
        notify("READY=1")
        if stop.wait(_LOOK_SECONDS):
            raise Invalid(f"there is no campaign in {home.folder}")
    failures: list[Exception] = []
    for name in home.names():
        try:
            return home.config(name)
        except (Invalid, OSError) as wrong:
            failures.append(wrong)
    raise failures[0] if failures else Invalid(f"there is no campaign in {home.folder} any more")

"""A broker, and in this process a fleet and a server, which share a clock that a test may give."""

import asyncio
import importlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.ports import free_port as next_free_port
from support.serving import serve
from undertone_aggregator.base.log import Journal
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.read_devices import read_provisioned
from undertone_simulator.mosquitto import Mosquitto
from undertone_simulator.readings.populations import households
from undertone_simulator.site import LocalHome, make_site
from undertone_simulator.wire.clock import Clock
from undertone_simulator.wire.commons import Wire
from undertone_simulator.wire.fleet import Fleet
from undertone_simulator.wire.ledger import FleetLedger, read_ledgers
from undertone_simulator.wire.playback import Playback
from undertone_simulator.wire.verify import Accounts, reconcile

HOST = "127.0.0.1"


@dataclass
class World:
    """All that a test over the wire needs, in one folder."""

    site: LocalHome
    broker: Mosquitto
    clock: Clock
    journal: Path
    ledger_path: Path
    failures: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        return self.site.folder

    @property
    def config(self) -> Config:
        return self.site.config

    @property
    def names(self) -> list[str]:
        return self.site.names

    @property
    def store_path(self) -> Path:
        return self.folder / "stores" / f"{self.config.campaign.name}.sqlite"

    def password(self, user: str) -> str:
        if user in self.names:
            return (self.site.device(user) / "password").read_text(encoding="utf-8").strip()
        return (self.folder / f"{user}.password").read_text(encoding="utf-8").strip()

    def start_aggregator(self, failpoint: Callable[[str], None] = lambda place: None) -> None:
        self._stop = threading.Event()

        def work() -> None:
            try:
                with self.journal.open("a", encoding="utf-8") as stream:
                    serve(
                        self.config,
                        self._stop,
                        Journal(stream, as_json=True),
                        clock=self.clock.now,
                        failpoint=failpoint,
                    )
            except BaseException as failure:
                self.failures.append(failure)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def stop_aggregator(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def fleet(self, state: Path | None = None, **options: object) -> Fleet:
        """A fleet of all devices. Its ledger continues that of an earlier fleet."""
        earlier = read_ledgers([self.ledger_path]) if self.ledger_path.exists() else None
        config = self.config
        wire = Wire(
            HOST,
            self.broker.port,
            config.broker.prefix,
            config.campaign.name,
            self.clock,
            FleetLedger(self.ledger_path),
            on_campaign=lambda message: None,
        )
        return Fleet(
            read_provisioned(self.site.fleet),
            households(len(self.names), 6, 1),
            Playback(48, 4),
            wire,
            state=state,
            earlier=earlier,
            **options,
        )

    def accounts(self, *, seconds: float = 60.0, ledgers: tuple[Path, ...] = ()) -> Accounts:
        """Wait until the accounts hold or the time is up; return them."""
        deadline = time.monotonic() + seconds
        while True:
            with open_store(self.store_path, read_only=True) as store:
                accounts = reconcile(read_ledgers([self.ledger_path, *ledgers]), store)
            if accounts.holds or time.monotonic() > deadline:
                return accounts
            time.sleep(0.1)


@pytest.fixture(autouse=True, scope="session")
def ports_of_their_own():
    """Programs that choose a port themselves start their server seconds later.

    Here, no other program gets that port meanwhile.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("undertone_simulator.demo.run", "undertone_simulator.load.run"):
            patch.setattr(importlib.import_module(name), "free_port", next_free_port)
        yield


@pytest.fixture
def make_world(tmp_path, mosquitto_binary, topic_prefix, monkeypatch, free_port):
    """A function that makes a world.

    `campaign` has lines of the table [campaign], `policy` has fields of the devices' policy. With `direct`, the devices
    connect to the server itself, and the broker is never started.
    """
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    worlds = []

    def make(
        devices: int, campaign: str = "", clock: Clock | None = None, direct: bool = False, **policy: object
    ) -> World:
        folder = tmp_path / f"world-{len(worlds)}"
        # The design of a table takes seconds, during which a fast clock would go on.
        mechanism = "" if "mechanism" in campaign else 'mechanism = "hybrid"'
        plan = f"""
[campaign]
name = "load"
sensor = "load"
unit = "Wh"
bound = 10000
{mechanism}
{campaign}
"""
        server = {"prefix": topic_prefix}
        # Devices without signers accept what anybody broadcasts. The attacks of these tests need that.
        policy = {"signers": [], **policy}
        site = make_site(folder, plan, "load", devices, free_port(), direct=direct, server=server, **policy)
        broker = site.mosquitto(autosave_seconds=1)
        if not direct:
            broker.start()
        world = World(site, broker, clock or Clock(), folder / "journal", folder / "ledger")
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.stop_aggregator()
        world.broker.stop()
        assert not world.failures


def run(coroutine):
    """Run a coroutine for at most two minutes."""
    return asyncio.run(asyncio.wait_for(coroutine, 120))

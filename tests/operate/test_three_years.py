"""Three simulated years of one server, in minutes: what docs/years.md tells an operator to do, on a fast clock.

Real: `undertone serve` and every command, each in a process of its own; stores on disk; MQTT over TLS through sockets
to the server's own endpoint; the devices' shipped client, reporter, policy and files. Simulated: the time, which stands
still while devices and server exchange messages, and then goes on; the readings; the devices' flash, which is memory;
the older versions, whose stores are today's with the older tables. OpenSSL has its own clock, so that it checks who
signed the server's certificate and for which name, and the test checks its dates.
"""

import json
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from support.fast_clock import FastClock
from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store
from undertone_device.core.reporter import Reporter
from undertone_device.core.units import epsilon_units
from undertone_device.mqtt.client import Client
from undertone_device.mqtt.packets import MESSAGE
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_device.mqtt.socket_connection import SocketConnection, opener
from undertone_device.setup import assembly
from undertone_device.setup.config import read_config
from undertone_operate.fleet.lifetimes import allowed_reports
from undertone_shared.campaign import header
from undertone_shared.entropy import Entropy
from undertone_shared.off_board.intake import unpack
from undertone_shared.topics import config_topic
from undertone_simulator.wire.clock import TICKS_MASK, real_ticks
from undertone_simulator.wire.fleet_process import verify_once
from undertone_simulator.wire.ledger import FleetLedger
from undertone_simulator.wire.memory import MemoryStorage
from undertone_simulator.wire.verify import BROKER_KILLED, BROKER_STARTED

DAY = 86400
SLOT = 5 * DAY
YEAR = 365 * DAY
# The first second of a slot, in January 2027.
START = 1_800_000_000 // SLOT * SLOT
PATIENCE_SECONDS = 300
# OpenSSL's flag X509_V_FLAG_NO_CHECK_TIME.
NO_CHECK_TIME = 0x200000
PLAN = (
    *("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1", "--slot-seconds", SLOT),
    *("--set", "cycle=7", "--set", "rounds=[7]", "--set", "epoch_slots=14", "--set", "report_slots=96"),
    *("--set", "mechanism=hybrid", "--set", "blocks=1", "--set", "lead_slots=1", "--set", "settle_slots=1"),
)
DEVICES = 200
REPLACED = 20
# These devices get policies that allow so many reports in a life, fewer than the three years take.
SHORT_LIVED, SHORT_LIFE = 5, 60


class Transport(SessionTransport):
    """The transport of boards, which notes when each campaign was heard last, and checks the certificate's dates."""

    def __init__(self, clock: FastClock, places: list[tuple[str, int]], context: ssl.SSLContext, *who: Any) -> None:
        self.heard: dict[str, int] = {}
        self.certificates: set[int] = set()
        open_stream = opener(places, context, 10_000)

        def open_checked() -> SocketConnection:
            connection = open_stream()
            shown = connection._socket.getpeercert()
            begin, end = (ssl.cert_time_to_seconds(shown[name]) for name in ("notBefore", "notAfter"))
            if not begin <= clock.now() <= end:
                connection.close()
                raise OSError("TLS: the certificate is not valid at this time")
            self.certificates.add(int(shown["serialNumber"], 16))
            return connection

        super().__init__(open_checked, real_ticks, *who, places)

    def poll(self, milliseconds: int) -> list[Any]:
        events: list[Any] = super().poll(milliseconds)
        for event in events:
            if event[0] == MESSAGE and len(event[2]):
                self.heard[event[1]] = header(event[2])[0]
        return events


class Life:
    """The server's folder, its process, its clock, and its devices in the field."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.clock = FastClock(folder / "clock", START + 100)
        self.devices: dict[str, Client] = {}
        # Devices that are lost.
        self.gone: set[str] = set()
        self.ledgers: dict[str, FleetLedger] = {}
        self.sent: dict[str, int] = {}
        self.acknowledged: list[tuple[float, str]] = []
        self.campaigns = ["power"]
        self._server: subprocess.Popen[bytes] | None = None
        self._environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONHASHSEED": "0"}

    # The server and its commands.

    def undertone(self, *words: object, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "support.fast_clock", str(self.clock.path), *map(str, words)],
            env=self._environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def serve(self) -> None:
        with (self.folder / "serve.log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "support.fast_clock", str(self.clock.path), "serve", str(self.home)],
                env=self._environment, stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(how)
            server.wait(PATIENCE_SECONDS)

    # The devices.

    def install(self) -> None:
        """Start simulated devices from copies of their files, because the server's folder is lost later in the test."""
        for path in sorted(Home(self.home).fleet("power").glob("devices/*/device.json")):
            if path.parent.name not in self.devices and path.parent.name not in self.gone:
                self.devices[path.parent.name] = self._client(path)

    def _client(self, path: Path) -> Client:
        config = read_config(str(path))
        policy = assembly.read_policy(config)
        context = assembly.tls_context(config.broker, policy)
        context.verify_flags |= NO_CHECK_TIME
        name, broker = config.name, config.broker
        transport = Transport(
            self.clock, broker.places, context, name, broker.user, assembly.read_password(broker), broker.keepalive
        )
        entropy, chance = Entropy(), random.Random(name)

        def ticks() -> int:
            return int(self.clock.now() * 1000) & TICKS_MASK

        client = Client(
            Reporter(name, policy, MemoryStorage(), entropy, ticks, config.counter_modulus, config.outbox),
            transport,
            entropy,
            config.prefix,
            config.campaigns,
            lambda: int(self.clock.now()),
            ticks,
            lambda _: None,
            lambda _: chance.randrange(100, 500),
            spread_percent=0,
            in_flight=config.in_flight,
            handed_over=lambda report: self._sent(client, report),
            acknowledged=lambda report: self._acked(client, report),
        )
        return client

    def _ledger(self, client: Client, report: bytes) -> FleetLedger:
        campaign = client.reporter.campaign_of(report) or client.campaigns[0]
        if campaign not in self.ledgers:
            path = self.folder / f"{campaign}.ledger"
            self.ledgers[campaign] = FleetLedger(path, lambda: int(self.clock.now() * 1000))
        return self.ledgers[campaign]

    def _sent(self, client: Client, report: bytes) -> None:
        self._ledger(client, report).sent(client.reporter.device, report)
        name = client.reporter.device
        self.sent[name] = max(self.sent.get(name, 0), unpack(report).sequence)

    def _acked(self, client: Client, report: bytes) -> None:
        self._ledger(client, report).acked(client.reporter.device, report)
        self.acknowledged.append((self.clock.now(), client.reporter.device))

    # The time.

    def until(self, done: Callable[[Client], bool]) -> None:
        """Let all devices exchange messages, a second at a time, until ``done`` holds for each."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        waiting = list(self.devices.values())
        while waiting:
            for client in waiting:
                client.step(0)
            waiting = [client for client in waiting if not done(client)]
            states = [(client.reporter.device, client.trouble, client.reporter.paused) for client in waiting[:5]]
            assert time.monotonic() < deadline, (len(waiting), states, self._log())
            self.clock.set(self.clock.now() + 1)
            time.sleep(0.005)

    def _log(self) -> str:
        return (self.folder / "serve.log").read_text()[-3000:]

    def until_slot(self, number: int, each: Callable[[], None] = lambda: None) -> None:
        """Live until so many slots after the start: in each, devices hear the server, and their reports arrive."""
        while self.clock.now() < START + number * SLOT:
            self.clock.set((int(self.clock.now()) // SLOT + 1) * SLOT + 10)
            self.settle()
            each()

    def settle(self) -> None:
        """Wait until each device has heard each campaign in this slot, and no report is under way."""
        began = int(self.clock.now()) // SLOT * SLOT
        prefix = next(iter(self.devices.values())).prefix
        topics = [config_topic(prefix, name) for name in self.campaigns]

        def settled(client: Client) -> bool:
            heard = client.transport.heard
            return not len(client.reporter.outbox) and all(heard.get(topic, 0) >= began for topic in topics)

        self.until(settled)
        for ledger in self.ledgers.values():
            ledger.flush()

    def slot(self) -> int:
        return (int(self.clock.now()) - START) // SLOT

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        for client in self.devices.values():
            client.transport.close()


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from undertone_shared import ed25519

    monkeypatch.setattr(ed25519, "verify", ed25519.verify)
    verify_once()
    lived = Life(tmp_path)
    yield lived
    lived.close()


def begin(life: Life) -> list[str]:
    """Make the server's folder with 200 devices, and start both; return the devices whose lifetime is short."""
    home = life.home
    life.undertone("init", home, "--host", "localhost", "--tls", "--port", free_port(), "--websocket-port", 0,
                   "--health", f"127.0.0.1:{free_port()}", "--audit")  # fmt: skip
    life.undertone("campaign", "create", home, "power", *PLAN)
    life.undertone("devices", "add", DEVICES, "--home", home, "--successors", 2)
    short = [f"power-{number:03d}" for number in range(1, SHORT_LIVED + 1)]
    for name in short:
        path = home / f"fleets/power/devices/{name}/policy.json"
        policy = json.loads(path.read_text())
        path.write_text(json.dumps(policy | {"lifetime": SHORT_LIFE * epsilon_units(*policy["cap"])}))
    life.serve()
    life.install()
    life.settle()
    return short


def upgrade(life: Life, number: int) -> None:
    """Stop the server and start it again as a new version is: with a backup before, and a check of its stores."""
    life.undertone("backup", life.home, life.folder / f"before-{number}.tar")
    life.stop()
    assert life.undertone("upgrade", life.home, "--check") == "nothing would change\n"
    life.undertone("upgrade", life.home)
    life.serve()
    life.settle()


def replace_devices(life: Life) -> None:
    for number in range(DEVICES - REPLACED + 1, DEVICES + 1):
        name = f"power-{number:03d}"
        life.undertone("devices", "revoke", name, "--home", life.home)
        life.devices.pop(name).transport.close()
        life.gone.add(name)
    life.undertone("devices", "add", REPLACED, "--home", life.home, "--successors", 2)
    life.install()
    life.settle()
    assert len(life.devices) == DEVICES


def renew(life: Life) -> None:
    """Renew the server's certificate while it runs; then every device connects anew."""
    life.undertone("authority", "renew", life.home)
    new, port = (life.home / "broker/server.crt").read_text(), Home(life.home).broker_options.port
    # Nothing passes the certificate on: the endpoint reads its file within a second.
    wait_for(lambda: pem(ssl.get_server_certificate(("127.0.0.1", port))) == pem(new), what="the new certificate")
    for client in life.devices.values():
        client.finish(0)
    serial = x509.load_pem_x509_certificate(new.encode()).serial_number
    life.until(lambda client: serial in client.transport.certificates)


def pem(certificate: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.strip())


def extend(life: Life) -> None:
    """Give the campaign a later end, although five devices may draw too few reports for it."""
    words = ("campaign", "extend", life.home, "power", "--by", "30d")
    refused = life.undertone(*words, code=2)
    assert f"{SHORT_LIVED} of {DEVICES + REPLACED} known policies refuse it (lifetime" in refused
    life.undertone(*words, "--although-refused")


def move(life: Life) -> None:
    port = free_port()
    life.undertone("move", life.home, f"127.0.0.1:{port}")
    life.until(lambda client: client.transport.places[0][1] == port)
    life.stop()
    life.serve()
    life.settle()


def succeed(life: Life) -> None:
    assert Home(life.home).config("power").campaign.report_slots == 102
    said = life.undertone("campaign", "succeed", life.home, "power", "power-2")
    folders = DEVICES + REPLACED
    assert f"{folders} of {folders} devices move to the new campaign by themselves" in said
    life.campaigns = ["power", "power-2"]


def lose_the_disk(life: Life) -> tuple[float, float]:
    """Kill the server some time after a backup, and restore that; return the seconds of the backup and of the kill."""
    life.undertone("backup", life.home, life.folder / "night.tar")
    backed_up = life.clock.now()
    life.until_slot(152)
    life.stop(signal.SIGKILL)
    life.ledgers["power-2"].fault(BROKER_KILLED)
    died = life.clock.now()
    life.home.rename(life.folder / "dead")
    life.undertone("restore", life.folder / "night.tar", life.home)
    life.serve()
    life.settle()
    life.ledgers["power-2"].fault(BROKER_STARTED)
    return backed_up, died


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(3600)
def test_a_server_lives_three_years(life: Life) -> None:
    short = begin(life)
    life.until_slot(18)
    upgrade(life, 1)
    life.until_slot(36)
    replace_devices(life)
    life.until_slot(55)
    renew(life)
    life.until_slot(72)
    extend(life)
    life.until_slot(80)
    move(life)
    life.until_slot(95)
    succeed(life)
    life.until_slot(125)
    current = {client.reporter.campaign.name for name, client in life.devices.items() if name not in short}
    assert current == {"power-2"}
    upgrade(life, 2)
    life.until_slot(150)
    backed_up, died = lose_the_disk(life)
    life.until_slot(180)
    renew(life)
    life.until_slot(3 * YEAR // SLOT)
    life.stop()
    check_accounts(life, backed_up, died)
    # No device exceeded its lifetime. Five had a short one, and spent it.
    for name, client in life.devices.items():
        ledger, policy = client.reporter.ledger, client.reporter.policy
        assert 0 < ledger.ever <= policy.lifetime
        assert life.sent[name] <= allowed_reports(policy)
        assert (client.reporter.paused == "lifetime", life.sent[name] == SHORT_LIFE) == (name in short,) * 2
    # The first certificate, the renewed ones, and between them that of the new address.
    (first, *_) = (client.transport.certificates for name, client in life.devices.items() if name not in short)
    assert len(first) == 4
    assert "Traceback" not in (life.folder / "serve.log").read_text()


def unknown_epochs(life: Life, name: str) -> set[bytes]:
    """Return the epochs that the dead disk's store has and the restored one has not."""
    known = []
    for folder in (life.folder / "dead", life.home):
        with open_store(folder / f"stores/{name}.sqlite", campaign=name, read_only=True) as store:
            known.append({epoch.campaign.fingerprint for epoch in store.epochs()})
    return known[0] - known[1]


def check_accounts(life: Life, backed_up: float, died: float) -> None:
    """Every report is accounted for: nothing is lost but what the dead disk had acknowledged since its backup."""
    unsaved = sum(backed_up < when <= died for when, _ in life.acknowledged)
    counted = 0
    for name in life.campaigns:
        life.ledgers[name].flush()
        words = ("--store", life.home / f"stores/{name}.sqlite", "--ledger", life.folder / f"{name}.ledger")
        window = ("--broker-window", died - backed_up - 1)
        accounts = json.loads(life.undertone("verify", *words, *window, "--json"))
        assert accounts["unexplained"] == {}
        # The restored server knows no epoch that was issued after its backup, and rejects the reports under it.
        rejected = accounts["reports"]["rejected"]
        assert set(rejected) <= ({"other_campaign"} if unknown_epochs(life, name) else set())
        assert accounts["reports"]["lost"] == ({BROKER_KILLED: unsaved} if name == "power-2" else {})
        counted += accounts["reports"]["counted"] + sum(rejected.values())
        with open_store(life.home / f"stores/{name}.sqlite", campaign=name, read_only=True) as store:
            assert {device.state for device in store.devices().values()} == {"active", "revoked"}
    assert counted == len(life.acknowledged) - unsaved

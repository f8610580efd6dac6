"""Three simulated years of one server, on a fast clock: the blocks of docs/operator.md that no walk runs, in order.

The line before a block says on which day it runs, and what happens to the machine before: ``<!-- day N -->``, ``<!--
day N: a new machine -->`` or ``<!-- day N: the disk dies; a new machine -->``.

These parts are real: every command in a shell, `undertone serve` as its unit would start it, and the stores on disk;
MQTT over TLS through sockets to the server's own endpoint; the devices' own client, reporter, policy and files; all
plans and policies, as the page makes them. Three parts are simulated: the time, the readings, and the devices' flash,
which is memory. `systemctl`, `sudo` and `pip` are scripts here. OpenSSL has its own clock, so it checks only who signed
the server's certificate and for which name, and the test checks the dates.

The clock moves on when the server says that it has done what was due. Devices report in each slot of the first days,
and in some slots around each later block; the clock stops in each of these slots. In between, the devices are switched
off.
"""

import contextlib
import copy
import http.server
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.fast_clock import FastClock
from support.micropython import REPO
from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.campaign.status import STATUS_SECONDS
from undertone_aggregator.store.store import open_store
from undertone_device.core import handover
from undertone_device.mqtt.client import Client, Platform
from undertone_device.mqtt.packets import CONNECTED, MESSAGE
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_device.mqtt.socket_connection import SocketConnection, opener
from undertone_device.setup import assembly
from undertone_device.setup.config import DeviceConfig, read_config
from undertone_operate.fleet.lifetimes import allowed_reports
from undertone_shared.policy import Policy
from undertone_simulator.wire.clock import TICKS_MASK, real_ticks
from undertone_simulator.wire.fleet_process import verify_once
from undertone_simulator.wire.ledger import FleetLedger
from undertone_simulator.wire.memory import MemoryStorage
from undertone_simulator.wire.verify import BROKER_KILLED, BROKER_STARTED

DAY = 86400
SLOT = 1800
# Midnight of a day in January 2027.
START = 1_800_057_600
# Devices report in each of the first slots, which are the threshold rounds and some more. From then on, they report in
# this many slots around each block.
FIRST_SLOTS = 3 * 48 + 8
AROUND = 2
PATIENCE_SECONDS = 300
DIES = "the disk dies; a new machine"
# The flag X509_V_FLAG_NO_CHECK_TIME of OpenSSL.
NO_CHECK_TIME = 0x200000
# Numbers of devices in the page's commands -> the numbers that the test uses.
FEWER = {"add 20000": "add 8", "add 50": "add 2", "add 100": "add 3", "--devices 20 ": "--devices 2 "}


class Block(NamedTuple):
    """A block of shell commands, the day on which it runs, and what happens to the machine before."""

    day: int
    event: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of shell commands on a page that no walk runs. Raises AssertionError if one of them has no day."""
    found = []
    for match in re.finditer(r"(?:<!-- (?P<note>[^>]*) -->\n)?```sh\n(?P<text>.*?)```", page, re.DOTALL):
        note = match["note"] or ""
        if "tests/docs/test_walks.py runs docs/walk/" in note:
            continue
        when = re.fullmatch(r"day (\d+)(?:: ([a-z; ]+))?", note)
        assert when, f"{note!r} does not say when this runs: {match['text']}"
        found.append(Block(int(when[1]), when[2] or "", match["text"]))
    # Every fenced block of the page is found, either here or by a walk.
    assert page.count("```") == 2 * (len(found) + page.count("tests/docs/test_walks.py runs docs/walk/"))
    return found


class Transport(SessionTransport):
    """The transport of boards. It notes topics of messages, and checks and notes the server's certificates."""

    def __init__(
        self,
        clock: FastClock,
        certificates: set[int],
        places: list[tuple[str, int]],
        context: ssl.SSLContext,
        *who: Any,
    ) -> None:
        self.heard: set[str] = set()
        self.certificates = certificates
        self._clock = clock
        open_stream = opener(places, context, 10_000)

        def open_line() -> SocketConnection:
            self._connection = open_stream()
            return self._connection

        super().__init__(open_line, real_ticks, *who, places)

    def poll(self, milliseconds: int) -> list[Any]:
        events: list[Any] = super().poll(milliseconds)
        for event in events:
            if event[0] == CONNECTED:
                shown = self._connection._socket.getpeercert()
                begin, end = (ssl.cert_time_to_seconds(shown[name]) for name in ("notBefore", "notAfter"))
                assert begin <= self._clock.now() <= end, "the certificate is not valid at this time"
                self.certificates.add(int(shown["serialNumber"], 16))
            elif event[0] == MESSAGE and len(event[2]):
                self.heard.add(event[1])
        return events


class Life:
    """The server's machine, its clock, and its devices in the field."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = folder / "machine-1"
        self.machine.mkdir()
        self.clock = FastClock(folder / "clock", START)
        self.devices: dict[str, Client] = {}
        # What devices keep: their files (device.json, policy, password), and their flash.
        self.files: dict[str, tuple[DeviceConfig, Policy, str]] = {}
        self.storages: dict[str, MemoryStorage] = {}
        self.certificates: dict[str, set[int]] = defaultdict(set)
        self.ledgers: dict[str, FleetLedger] = {}
        # (device, report) -> the Unix second of the first acknowledgement, and the campaign.
        self.acknowledged: dict[tuple[str, bytes], tuple[float, str]] = {}
        # Campaigns that were retired. Their devices stay switched on but get no more messages.
        self.ended: set[str] = set()
        self.said = ""
        self.alerts: list[bytes] = []
        self.words: dict[str, str] = {}
        self.health = free_port()
        self._programs()

    @property
    def home(self) -> Path:
        return self.machine / "home"

    # --- the machine

    def _programs(self) -> None:
        """Make the programs that the page's commands call.

        `undertone` runs with the fast clock; systemd, sudo and pip are stand-ins.
        """
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        scripts = {
            "undertone": f'exec {sys.executable} -m support.fast_clock {self.clock.path} "$@"',
            "sudo": 'exec "$@"',
            "pip": '[[ "$*" == *undertone-ldp[[]* ]]',
            "systemctl": SYSTEMCTL,
        }
        for name, text in scripts.items():
            (self.programs / name).write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{text}\n", encoding="utf-8")
            (self.programs / name).chmod(0o755)

    def run(self, text: str) -> str:
        """Run commands of the page on this machine; return their output."""
        for shown, here in self.words.items():
            text = text.replace(shown, here)
        text = re.sub(r"load-00(\d{3})", r"load-\1", text)
        environment = os.environ | {
            "PATH": os.pathsep.join([str(self.programs), os.environ["PATH"]]),
            "PYTHONPATH": str(REPO / "tests"),
            "PYTHONHASHSEED": "0",
            "COLUMNS": "120",
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.machine, env=environment, capture_output=True, encoding="utf-8", timeout=600, check=False,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        print(self.said, flush=True)
        assert done.returncode == 0, (text, self.said, self._log())
        assert "Traceback" not in self.said, (text, self.said)
        return self.said

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        pid = self.machine / "server.pid"
        if pid.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text(encoding="utf-8")), how)
            wait_for(lambda: not runs(int(pid.read_text(encoding="utf-8"))))
            pid.unlink()

    def new_machine(self) -> None:
        """Go on with a new machine that has only the backups."""
        before, number = self.machine, int(self.machine.name[-1]) + 1
        self.machine = self.folder / f"machine-{number}"
        self.machine.mkdir()
        for backup in before.glob("*.tar"):
            shutil.copy(backup, self.machine)

    def _log(self) -> str:
        log = self.machine / "serve.log"
        return log.read_text(encoding="utf-8")[-3000:] if log.exists() else "no log"

    # --- the devices

    def install(self) -> None:
        """Install the files of each device that is new or has a new password, and switch the device on."""
        for path in sorted(self.home.glob("fleets/*/devices/*/device.json")):
            name, config = path.parent.name, read_config(str(path))
            password = assembly.read_password(config.broker) or ""
            if name not in self.files or self.files[name][2] != password:
                self.files[name] = config, assembly.read_policy(config), password
                self.boot(name)

    def remove(self, name: str) -> None:
        if name in self.devices:
            self.devices.pop(name).transport.close()

    def boot(self, name: str) -> None:
        """Switch a device on. It goes on from what its flash has."""
        self.remove(name)
        config, policy, password = self.files[name]
        storage = self.storages.setdefault(name, MemoryStorage())
        config = copy.copy(config)
        handover.apply(config, storage)
        config.spread_percent = 0
        context = assembly.tls_context(config.broker, policy)
        context.verify_flags |= NO_CHECK_TIME
        broker, chance = config.broker, random.Random(name)
        who = (name, broker.user, password, broker.keepalive)
        platform = Platform(
            lambda: int(self.clock.now()), lambda: int(self.clock.now() * 1000) & TICKS_MASK, lambda _: None
        )
        platform.read = lambda _: chance.randrange(100, 500)
        platform.handed_over = lambda report: self._ledger(client, report).sent(name, report)
        platform.acknowledged = lambda report: self._acked(client, report)
        client = assembly.make_client(
            config,
            policy,
            Transport(self.clock, self.certificates[name], broker.places, context, *who),
            platform,
            storage=storage,
        )
        self.devices[name] = client

    def _campaign(self, client: Client, report: bytes) -> str:
        return client.reporter.campaign_of(report) or client.config.campaigns[0]

    def _ledger(self, client: Client, report: bytes) -> FleetLedger:
        campaign = self._campaign(client, report)
        if campaign not in self.ledgers:
            path = self.folder / f"{campaign}.ledger"
            self.ledgers[campaign] = FleetLedger(path, lambda: int(self.clock.now() * 1000))
        return self.ledgers[campaign]

    def _acked(self, client: Client, report: bytes) -> None:
        self._ledger(client, report).acked(client.reporter.device, report)
        key, now = (client.reporter.device, bytes(report)), self.clock.now()
        self.acknowledged.setdefault(key, (now, self._campaign(client, report)))

    # --- the time

    def until(self, done: Callable[[Client], bool]) -> None:
        """Let all devices exchange messages until ``done`` holds for each.

        In each round a second passes, but the clock stops in the last second of the slot, so that no slot ends.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        waiting = list(self.devices.values())
        slot = int(self.clock.now()) // SLOT
        while waiting:
            for client in waiting:
                client.step(0)
            waiting = [client for client in waiting if not done(client)]
            states = [(client.reporter.device, client.trouble, client.reporter.paused) for client in waiting[:5]]
            assert time.monotonic() < deadline, (len(waiting), states, self._log())
            self.clock.set(max(self.clock.now(), min(self.clock.now() + 1, (slot + 1) * SLOT - 1)))
            time.sleep(0.005)

    def settle(self) -> None:
        """Wait until each device has heard its campaign, if that has not ended, and no report is under way."""
        self.until(
            lambda client: (
                (bool(client.transport.heard) or self.ended.issuperset(client.config.campaigns))
                and not len(client.reporter.outbox)
            )
        )
        for ledger in self.ledgers.values():
            ledger.flush()

    def looked(self) -> None:
        """Wait until the server has read its files as they are now.

        In a pass, the server looks at the files and then notes the time. A pass with a time after now may have looked
        at the files before now, but the pass after it has seen them. The clock moves so little that no slot can end.
        """
        for _ in range(2):
            self.clock.set(self.clock.now() + 0.001)
            wait_for(lambda: self._passed() >= self.clock.now(), PATIENCE_SECONDS, "a pass of the server")

    def _passed(self) -> float:
        """The Unix time of the server's newest pass. A server with problems reports this time, too."""
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=PATIENCE_SECONDS)
        except urllib.error.HTTPError as problems:
            answer = problems
        with answer:
            return float(json.load(answer)["time"])

    def caught_up(self) -> None:
        """Wait until each campaign has done what is due in this slot, and has then written its status."""
        begin = int(self.clock.now()) // SLOT * SLOT
        # A status comes at least STATUS_SECONDS after the one before it.
        self.clock.set(max(self.clock.now(), begin + STATUS_SECONDS))
        for store in sorted(self.home.glob("stores/*.sqlite")):
            wait_for(lambda store=store: self._done(store) >= begin, PATIENCE_SECONDS, f"the status of {store.stem}")

    @staticmethod
    def _done(path: Path) -> int:
        with open_store(path, campaign=path.stem, read_only=True) as store:
            return int(json.loads(store.meta("status").get("status", '{"time": 0}'))["time"])

    def slots(self, number: int) -> None:
        """Let so many slots pass, in which the devices report."""
        for _ in range(number):
            self.clock.set((int(self.clock.now()) // SLOT + 1) * SLOT + 10)
            self.settle()
            self.caught_up()

    def until_day(self, day: int) -> None:
        """Go on to that day. Devices report in each of the first slots, and later only in some slots before the day."""
        end = START + day * DAY
        while self.clock.now() < min(end, START + FIRST_SLOTS * SLOT):
            self.slots(1)
        if end - AROUND * SLOT > self.clock.now():
            self.clock.set(end - AROUND * SLOT)
            for name in list(self.devices):
                self.boot(name)
            self.caught_up()
            self.settle()
        while self.clock.now() < end:
            self.slots(1)

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        for client in self.devices.values():
            client.transport.close()


# A systemctl that knows `enable --now UNIT`, `start`, `stop` and `restart` of a unit whose server is $PWD/home.
SYSTEMCTL = """
runs() { grep -q . "/proc/$(cat server.pid)/cmdline" 2>/dev/null; }
ready() { grep -q '"ready": true' home/state.json && ! grep -q '"ready": false' home/state.json; } 2>/dev/null
stop() { kill "$(cat server.pid)"; while runs; do sleep 0.1; done; rm server.pid; }
start() {
    setsid undertone serve "$PWD/home" >> serve.log 2>&1 < /dev/null &
    echo $! > server.pid
    for _ in $(seq 1200); do
        if ready; then return; fi
        runs || break
        sleep 0.1
    done
    cat serve.log; false
}
case "$*" in
    "enable --now $PWD/home/undertone.service") grep -q "^ExecStart=.* serve .*home" home/undertone.service; start ;;
    "start undertone") start ;;
    "stop undertone") stop ;;
    "restart undertone") stop; start ;;
    *) echo "no such words: $*" >&2; false ;;
esac
"""


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@contextlib.contextmanager
def hook(life: Life) -> Iterator[int]:
    """A web hook for alerts on a port of this machine."""

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            life.alerts.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    from undertone_shared import ed25519

    monkeypatch.setattr(ed25519, "verify", ed25519.verify)
    verify_once()
    lived = Life(tmp_path)
    with hook(lived) as port:
        lived.words = FEWER | {
            "--host meters.example.org": f"--host localhost --tls --port {free_port()} --websocket-port 0"
            # Only the check of all accounts at the end needs the audit.
            f" --health 127.0.0.1:{lived.health} --audit",
            "--page 127.0.0.1:8080": f"--page 127.0.0.1:{free_port()}",
            "--join-port 8444": f"--join-port {free_port()}",
            "jsons://hooks.example.org": f"json://127.0.0.1:{port}",
            "new.example.org": f"127.0.0.1:{free_port()}",
        }
        yield lived
        lived.close()


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(3600)
def test_the_operators_page_is_followed_through_three_years(life: Life) -> None:
    lost: list[tuple[float, float]] = []
    backed_up = 0.0
    page = blocks((REPO / "docs/operator.md").read_text("utf-8"))
    for part, _ in SHOWN:
        assert any(part in block.text for block in page), part
    for block in page:
        life.until_day(block.day)
        if block.event == DIES:
            life.stop(signal.SIGKILL)
            for ledger in life.ledgers.values():
                ledger.fault(BROKER_KILLED)
            lost.append((backed_up, life.clock.now()))
            life.new_machine()
        elif block.event == "a new machine":
            life.new_machine()
        else:
            assert block.event == ""
        print(f"day {block.day}: {block.text}", flush=True)
        said = life.run(block.text)
        if "undertone backup home backup-" in block.text:
            backed_up = life.clock.now()
        check(life, block, said)
        life.ended.update(re.findall(r"campaign retire home (\S+)", block.text))
        if (life.machine / "server.pid").exists():
            for name in re.findall(r"devices revoke load-00(\d+)", block.text):
                life.remove(f"load-{name}")
            life.looked()
            life.install()
            life.settle()
            if block.event == DIES:
                for ledger in life.ledgers.values():
                    ledger.fault(BROKER_STARTED)
            life.slots(AROUND)
    life.until_day(3 * 365)
    current = {client.reporter.campaign.name for name, client in life.devices.items() if name.startswith("load")}
    assert current == {"load-3"}
    life.stop()
    check_accounts(life, *lost[0])
    for client in life.devices.values():
        ledger, policy = client.reporter.ledger, client.reporter.policy
        assert ledger.ever <= policy.lifetime, client.reporter.device
        # A device of heat has one turn a day, which may be in none of the slots in which devices are switched on.
        assert ledger.ever > 0 or client.config.campaigns == ("heat",), client.reporter.device
        assert client.reporter.ledger.sequence <= allowed_reports(policy)
    # The three are the first certificate, the one for the new address, and the renewed one.
    assert len(life.certificates["load-001"]) == 3
    for log in life.folder.glob("machine-*/serve.log"):
        assert "Traceback" not in log.read_text(encoding="utf-8")


# Where the page says what its commands print: (a part of the block, a pattern that the output must have).
SHOWN = (
    ("undertone plan", r"a slot +\S+ +\S+ +\S+ Wh +2\.3%"),
    ("undertone plan", r"a day +\S+ +\S+ +\S+ Wh +1\.2%"),
    ("undertone capacity", r"disk after three years +0\.0\d+ GB"),
    ("undertone capacity", r"open files +20,256"),
    ("--preview --devices 20000", r"privacy: .*\nthe last slot ends at .*(?s:.*)a slot .*(?s:.*)nothing was written\n"),
    ("undertone query", r"(?s:(│ 2027.*){3})"),
    ("--group north --successors", r"load-009 to load-010, group north\n"),
    ("devices move load-00007", r"load-007 is in group north from now on"),
    ("--window 24h", r"ε = 1 for any 24 hours"),
    ("undertone join list", r"(?s:( load +open .*){2})"),
    ("--alert-test", r"took the test message"),
    ("undertone restore", r"load: no number is published for the time from 20\S+ .* to 20\S+ "),
    ("devices revoke", r"load-003 is revoked(?s:.*)holds the new password of load-004(?s:.*)load-003 is forgotten"),
    ("upgrade home --check", r"nothing would change\n"),
    ("campaign extend", r"nothing was written\nthe plan was changed; version 2 is in force:\n"),
    ("campaign succeed home load load-2\n", r"10 of 10 devices move to the new campaign by themselves\n"),
    ("campaign log", r"created: .*(?s:.*)version 2: .*(?s:.*)succeeded by load-2\n"),
    ("undertone move", r"has a new certificate for .*\n13 of 13 devices move to "),
    ("authority renew", r"the server has a new certificate for .*, valid until 20\S+\n"),
    ("campaign diff", r"campaign\.cohort_share 0\.05 -> 0\.1\n.*\nthe plan was changed; version 2 is in force:\n"),
    ("campaign retire", r"campaign heat is set to retired; before, it was set to running\n"),
)


def check(life: Life, block: Block, said: str) -> None:
    """Check what a block prints, where the page says what it prints."""
    for part, pattern in SHOWN:
        if part in block.text:
            assert re.search(pattern, said), (pattern, said)
    if "--alert-test" in block.text:
        assert any(b"test" in alert for alert in life.alerts), life.alerts
    if "--silent 12h" in block.text:
        # All devices have reported within the last half hour, so none of them is listed.
        assert not re.search(r"^load-\d+ ", said, re.MULTILINE), said


def check_accounts(life: Life, backed_up: float, died: float) -> None:
    """Check that every report has an outcome.

    Only reports that were acknowledged between the last backup and the death of the disk may be lost.
    """
    for name, ledger in life.ledgers.items():
        ledger.flush()
        unsaved = sum(backed_up < when <= died and which == name for when, which in life.acknowledged.values())
        words = f"verify --store home/stores/{name}.sqlite --ledger {life.folder / name}.ledger --json"
        accounts = json.loads(life.run(f"undertone {words} --broker-window {died - backed_up - 1}"))
        assert accounts["unexplained"] == {}, (name, accounts)
        assert set(accounts["reports"]["rejected"]) <= {"other_campaign"}, (name, accounts)
        assert accounts["reports"]["lost"] == ({BROKER_KILLED: unsaved} if unsaved else {}), (name, accounts)
        with open_store(life.home / f"stores/{name}.sqlite", campaign=name, read_only=True) as store:
            assert {device.state for device in store.devices().values()} <= {"active", "revoked", "forgotten"}

"""A server is killed at failpoints or at random moments, or the broker goes away: each report is counted exactly once.

Tests with the fixture `site` run with a broker, and with devices that connect to the server itself, each without and
with TLS. Some servers have several workers.
"""

import contextlib
import random
import signal
import sqlite3
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support import deliveries
from support.child_server import PREFIX, Server, external
from support.deliveries import Sender
from support.direct_sender import DirectSender
from support.paho_client import leave
from support.private_broker import TLS
from support.reports import expected, some_reports
from support.server import delivery
from support.waiting import wait_for
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.store.store import open_store
from undertone_operate.examine.recount import recount
from undertone_shared.campaign import Campaign
from undertone_simulator.mosquitto import Mosquitto

PLACES = ("before_commit", "after_commit", "during_acknowledgement", "after_acknowledgement")
PASSWORDS = {f"d{number}": f"the password of device {number}" for number in range(300)}


# The cases with a broker over TLS are among the slow tests.
OVER_TLS = pytest.mark.slow


@pytest.fixture
def mosquitto(mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)


@pytest.fixture(params=[False, pytest.param(True, marks=OVER_TLS)], ids=["plain", "tls"])
def broker(request: pytest.FixtureRequest, tmp_path: Path, mosquitto: None) -> Iterator[Mosquitto]:
    with deliveries.open_broker(tmp_path / "b", tls=request.param, autosave_seconds=1) as made:
        yield made


def direct(folder: Path, port: int, *, tls: bool = False) -> str:
    credentials.write_passwords(folder / "passwords", PASSWORDS)
    lines = f'mode = "direct"\nport = {port}\npasswords = "passwords"'
    return lines + (f'\ncertificate = "{TLS}/localhost.pem"\nkey = "{TLS}/localhost.key"' if tls else "")


@pytest.fixture
def server(tmp_path: Path, broker: Mosquitto) -> Iterator[Server]:
    yield from running(tmp_path, external(broker))


@pytest.fixture
def sender(broker: Mosquitto) -> Iterator[Sender]:
    with contextlib.closing(Sender(broker)) as made:
        yield made


@dataclass
class Site:
    """A server and its sender.

    ``asynchronous``: devices connect to the server itself, which acknowledges after its commit.
    """

    server: Server
    sender: Any
    asynchronous: bool


class Listener:
    """A reader that connects again whenever it can. ``heard_in``: its newest connection that heard something."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self.connections = self.heard_in = 0
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.username_pw_set(user, password)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.connect_async("127.0.0.1", port)
        self._client.loop_start()

    def _on_connect(self, client: mqtt.Client, *_: object) -> None:
        self.connections += 1
        client.subscribe(f"{PREFIX}/+/aggregate/#", 1)

    def _on_message(self, *_: object) -> None:
        self.heard_in = self.connections

    def close(self) -> None:
        leave(self._client)


@pytest.fixture(params=["external", pytest.param("external-tls", marks=OVER_TLS), "direct", "direct-tls"])
def site(request: pytest.FixtureRequest, tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Site]:
    tls = request.param.endswith("tls")
    if request.param.startswith("external"):
        request.getfixturevalue("mosquitto")
        with (
            deliveries.open_broker(tmp_path / "b", tls=tls, autosave_seconds=1) as broker,
            contextlib.closing(Sender(broker)) as to_broker,
        ):
            for server in running(tmp_path, external(broker)):
                yield Site(server, to_broker, False)
        return
    port = free_port()
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem")) if tls else None
    sender = DirectSender(port, PASSWORDS, context)
    for server in running(tmp_path, direct(tmp_path, port, tls=tls)):
        yield Site(server, sender, True)
    sender.close()


def running(folder: Path, broker: str) -> Iterator[Server]:
    made = Server(folder, broker)
    yield made
    if made.running:
        made.end(signal.SIGKILL)


def finish(server: Server, campaign: Campaign, sent: list[tuple[str, bytes]], own_only: bool = False) -> int:
    """Wait until reports have their expected outcomes, end the server, check the counts; return how many came twice."""
    with open_store(server.store, read_only=True) as store:
        partial, outcomes = expected(campaign, Timeline(store.epochs()), sent, own_only)

        def complete() -> bool:
            return {(device, code): outcome for device, code, outcome in store.audit()} == outcomes

        wait_for(complete, what="the last outcome")
        assert server.end() == 0, server.log()
        outcomes = store.outcomes()
        same = store.partial() == partial
        assert same, server.log()
        assert outcomes["counted"] == partial.reports
        assert outcomes["received"] == sum(n for outcome, n in outcomes.items() if outcome != "received")
        return outcomes["duplicate"] + outcomes["duplicate_unverified"]


@pytest.mark.slow_but("external")
@pytest.mark.long
def test_killed_at_twenty_random_points(site: Site) -> None:
    chance = random.Random(20)
    server, sender = site.server, site.sender
    campaign = server.begin_campaign()
    killed = dict.fromkeys(PLACES, 0)
    repeated = 0
    made = []
    for number in range(22):
        place = PLACES[number % 4]
        passages = chance.randrange(1, 6)
        server.start(place, passages)
        batch = some_reports(campaign, chance, number, 120)
        repeated += len(batch) - len(set(batch))
        made += sender.send(batch)
        if not site.asynchronous:
            sender.flush(made)
        wait_for(lambda: not server.running, what=f"the end at {place} {passages}")
        killed[place] += 1
    assert sum(killed.values()) >= 20
    assert min(killed.values()) >= 5
    server.start()
    sender.flush(made)
    duplicates = finish(server, campaign, sender.sent, site.asynchronous)
    if site.asynchronous:
        repeated -= sender.merged
    assert duplicates > repeated, "no delivery came twice: the kills hit nothing"


@pytest.mark.slow_but("direct")
@pytest.mark.long
def test_killed_at_any_moment_under_load(site: Site) -> None:
    """There is no failpoint: a signal ends the server, whatever it is doing then."""
    kill_at_random(site, kills=6, devices=60)


@pytest.mark.slow
def test_killed_a_hundred_times_under_load(site: Site) -> None:
    kill_at_random(site, kills=100, devices=300)


def kill_at_random(site: Site, kills: int, devices: int, readers: Sequence[Listener] = ()) -> None:
    server, sender = site.server, site.sender
    campaign = server.begin_campaign()
    made = under_fire(server, sender, campaign, kills, devices)
    before = server.log().count("resuming campaign")
    connections = [reader.connections for reader in readers]
    server.start()
    sender.flush(made)
    wait_for(lambda: server.log().count("resuming campaign") > before)
    for reader, number in zip(readers, connections, strict=True):
        wait_for(lambda reader=reader, number=number: reader.heard_in > number, what="a reader's return")  # type: ignore[misc]
    finish(server, campaign, sender.sent, site.asynchronous)


@pytest.mark.slow
@pytest.mark.long
def test_killed_with_readers_connected(tmp_path: Path, free_port: Callable[[], int]) -> None:
    kill_with_readers(tmp_path, (free_port(), free_port()), kills=4, devices=60, readers=10)


@pytest.mark.slow
def test_killed_a_hundred_times_with_readers_connected(tmp_path: Path, free_port: Callable[[], int]) -> None:
    kill_with_readers(tmp_path, (free_port(), free_port()), kills=100, devices=300, readers=50)


def kill_with_readers(folder: Path, ports: tuple[int, int], kills: int, devices: int, readers: int) -> None:
    """Kill a server whose devices report over TCP and over WebSocket, at these ports."""
    port, websocket = ports
    lines = direct(folder, port) + f'\naccess = "access"\nwebsocket = "127.0.0.1:{websocket}"'
    credentials.write_access_rules(folder / "access", PREFIX, {name: ["meters"] for name in PASSWORDS})
    credentials.write_readers(folder / "access", PREFIX, ["grafana"])
    credentials.write_passwords(folder / "passwords", {**PASSWORDS, "grafana": "a reader's password"})
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(contextlib.closing(DirectSender(port, PASSWORDS, None, websocket)))
        server = stack.enter_context(contextlib.contextmanager(running)(folder, lines))
        listeners = [
            stack.enter_context(contextlib.closing(Listener(port, "grafana", "a reader's password")))
            for _ in range(readers)
        ]
        kill_at_random(Site(server, sender, True), kills, devices, listeners)
        assert {member.port for member in sender._members.values()} == set(ports)


def under_fire(
    server: Server, sender: Any, campaign: Campaign, kills: int, devices: int, *, awake: bool = False
) -> list[Any]:
    """Send reports while the server is killed again and again; return their handles, for `flush`.

    ``awake``: kill it only after it has resumed the campaign.
    """
    chance = random.Random(kills)
    made: list[Any] = []
    reported = 0
    for _ in range(kills):
        before = server.log().count("resuming campaign")
        server.start()
        if awake:
            wait_for(lambda begun=before: server.log().count("resuming campaign") > begun)
        until = time.monotonic() + chance.uniform(0.3, 2.0)
        while time.monotonic() < until:
            # The clock stands still. Each device reports at most once for each of the 40 slots of the threshold epoch,
            # fewer slots than the 96 for which a device keeps reports.
            symbols = campaign.cohort.mechanism.symbols
            slot, device = reported // devices % 40, reported % devices
            batch = [delivery(campaign, f"d{device}", campaign.first_slot + slot, reported // 7 % symbols)]
            if reported < devices * 40:
                made += sender.send(batch)
            reported += 1
            time.sleep(chance.uniform(0, 0.004))
        server.end(signal.SIGKILL)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_is_killed_each_report_has_landed(server: Server, sender: Sender, workers: int) -> None:
    server.configure(workers, '[landing]\nfolder = "landing"\nseconds = 1\ncounts = "spark"\n')
    campaign = server.begin_campaign()
    # The first kill certainly comes after the files are written and before the reports are acknowledged.
    server.start("after_landing", 1)
    sender.flush(sender.send(some_reports(campaign, random.Random(7), 39, 60)))
    wait_for(lambda: not server.running or "starting it again" in server.log())
    if server.running:
        server.end(signal.SIGKILL)
    sender.flush(under_fire(server, sender, campaign, kills=20, devices=50, awake=True))
    before = server.log().count("resuming campaign")
    server.start()
    wait_for(lambda: server.log().count("resuming campaign") > before)
    with open_store(server.store, read_only=True) as store:
        epochs = store.epochs()
        assert store.outcomes()["received"] == 0
    partial, _ = expected(campaign, Timeline(epochs), sender.sent)
    wait_for(lambda: recount(server.folder / "landing", epochs).partial == partial, what="the last landed report")
    assert server.end() == 0, server.log()
    again = recount(server.folder / "landing", epochs)
    assert again.partial == partial
    # Six reports come twice in any case, because the sender itself sends them twice.
    assert again.outcomes["duplicate"] > 6, "no delivery came twice: the kills hit nothing"
    assert not list((server.folder / "landing" / ".pending").rglob("*.parquet")), "all is gathered at the end"


@pytest.mark.parametrize("site", ["direct", "direct-tls"], indirect=True)
def test_the_password_file_is_read_again_at_sighup(site: Site) -> None:
    server, sender = site.server, site.sender
    campaign = server.begin_campaign()
    server.start()
    sender.flush(sender.send([delivery(campaign, "d1", campaign.first_slot)]))
    credentials.write_passwords(server.folder / "passwords", {"d2": PASSWORDS["d2"]})
    assert server._process is not None
    server._process.send_signal(signal.SIGHUP)
    wait_for(lambda: "were read again" in server.log())
    sender.flush(sender.send([delivery(campaign, "d2", campaign.first_slot)]))
    kept = sender.send([delivery(campaign, "d1", campaign.first_slot + 1)])
    wait_for(lambda: sender.refused("d1") > 0, what="the refusal of the old password")
    # The server also looks at the file by itself, and must not find it empty while it is being written.
    (server.folder / "passwords.new").write_text("nonsense:1\n", encoding="utf-8")
    (server.folder / "passwords.new").replace(server.folder / "passwords")
    server._process.send_signal(signal.SIGHUP)
    wait_for(lambda: "has an invalid entry for 'nonsense'" in server.log())
    sender.flush(sender.send([delivery(campaign, "d2", campaign.first_slot + 1)]))
    assert server.end() == 0
    assert not set(kept) & sender.acknowledged


@pytest.mark.slow
@pytest.mark.long
def test_two_workers_killed_again_and_again_count_what_one_counts(
    tmp_path: Path, server: Server, sender: Sender
) -> None:
    chance = random.Random(2)
    server.configure(workers=2)
    campaign = server.begin_campaign()
    server.start("after_commit", 6)
    for number in range(4):
        sender.flush(sender.send(some_reports(campaign, chance, number, 100)))
    finish(server, campaign, sender.sent)
    assert server.log().count("starting it again") >= 2
    with contextlib.closing(sqlite3.connect(server.store)) as store:
        workers = {row[0] for row in store.execute("SELECT DISTINCT worker FROM partials")}
    assert workers == {"0of2", "1of2"}


@pytest.mark.slow
@pytest.mark.waits
def test_the_number_of_workers_may_change_while_reports_wait(server: Server, sender: Sender) -> None:
    chance = random.Random(3)
    campaign = server.begin_campaign()
    for number, workers in enumerate((2, 3, 1)):
        sender.flush(sender.send(some_reports(campaign, chance, number, 60)))
        server.configure(workers)
        server.start()
        finish(server, campaign, sender.sent)


def test_the_broker_restarts_in_the_middle(server: Server, sender: Sender, broker: Mosquitto) -> None:
    chance = random.Random(4)
    campaign = server.begin_campaign()
    server.start()
    for number in range(3):
        made = sender.send(some_reports(campaign, chance, number, 100))
        if number == 1:
            broker.stop()
            broker.start()
        sender.flush(made)
    finish(server, campaign, sender.sent)


def test_retained_reports_are_refused_over_the_wire(server: Server, sender: Sender) -> None:
    campaign = server.begin_campaign()
    topic, payload = delivery(campaign, "d1", campaign.first_slot)
    # The report comes twice: once as an ordinary delivery, and once as the retained copy for a new subscription.
    sender.flush(sender.send([(topic, payload)], retain=True))
    server.start()
    wait_for(lambda: server.deliveries() >= 2)
    server.end()
    with open_store(server.store, read_only=True) as store:
        assert store.outcomes() == {"counted": 1, "retained": 1, "received": 2}
        assert store.partial().reports == 1


def test_a_store_in_use_is_refused(site: Site) -> None:
    server = site.server
    server.begin_campaign()
    server.start()
    wait_for(lambda: "resuming campaign" in server.log())
    code, said = server.second()
    assert code != 0
    # A server with its own endpoint takes its port first, and so finds the port in use.
    expected = "is in use already" if site.asynchronous else "another server uses the store"
    assert expected in said
    assert server.running

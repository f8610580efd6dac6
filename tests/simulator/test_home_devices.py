"""Devices of a server's folder are made by commands alone, for two campaigns on one TLS broker of the operator."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.command import undertone
from support.many import Running
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.mqtt.link import worker_password
from undertone_aggregator.mqtt.mosquitto import running_pid
from undertone_aggregator.store.store import open_store
from undertone_shared.topics import report_topic

PREFIX = "undertone/v2"
CAMPAIGNS = {"electricity": "load", "water": "flow"}


def said(*words: str, code: int = 0) -> str:
    done = undertone(*words)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def worker_secret(folder: Path, slot: int) -> str:
    return worker_password((folder / "aggregator.password").read_text(encoding="utf-8").strip(), f"aggregator-{slot}")


def connected(folder: Path, port: int, name: str, password: str) -> paho.Client | None:
    """A client that the broker has let in, or None."""
    answered, answers = threading.Event(), []
    made = paho.Client(CallbackAPIVersion.VERSION2, name, reconnect_on_failure=False)
    made.username_pw_set(name, password)
    made.tls_set_context(ssl.create_default_context(cafile=str(folder / "tls/ca.crt")))
    made.on_connect = lambda _c, _d, _f, code, _p: (answers.append(code), answered.set())
    made.connect("localhost", port)
    made.loop_start()
    assert answered.wait(30)
    if answers[0].is_failure:
        leave(made)
        return None
    return made


def accepted(folder: Path, port: int, name: str, password: str, topic: str | None = None) -> bool:
    """Whether the broker lets the client in.

    With a topic: whether a message to the topic reaches a worker of the server.
    """
    device = connected(folder, port, name, password)
    if device is None or topic is None:
        if device is not None:
            leave(device)
        return device is not None
    worker = connected(folder, port, "aggregator-50", worker_secret(folder, 50))
    assert worker is not None
    heard, subscribed = threading.Event(), threading.Event()
    worker.on_subscribe = lambda *_: subscribed.set()
    worker.on_message = lambda *_: heard.set()
    worker.subscribe(topic, 1)
    assert subscribed.wait(30)
    device.publish(topic, b"x", qos=1).wait_for_publish(30)
    # If the broker passes on a message that it has acknowledged, it does so before it answers the next request.
    subscribed.clear()
    worker.subscribe(f"{topic}/after", 1)
    assert subscribed.wait(30)
    leave(worker)
    leave(device)
    return heard.is_set()


@dataclass
class Place:
    """A server's folder, the mosquitto with the folder's files, and, if a test asks for it, the server."""

    folder: Path
    port: int
    mosquitto: str
    broker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.mosquitto, "-c", str(self.folder / "broker/mosquitto.conf")]
        self.broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(self._listens)
        assert running_pid(self.folder / "broker") == self.broker.pid

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        assert self.broker is not None
        self.broker.terminate()
        self.broker.wait(60)

    def password(self, campaign: str, name: str) -> str:
        return (self.folder / "fleets" / campaign / "devices" / name / "password").read_text(encoding="utf-8").strip()


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int], mosquitto_binary: str) -> Iterator[Place]:
    place = Place(tmp_path / "home", free_port(), mosquitto_binary)
    said("init", str(place.folder), "--broker", f"mqtts://localhost:{place.port}")
    for name, sensor in CAMPAIGNS.items():
        said("campaign", "create", str(place.folder), name, "--sensor", sensor, "--unit", "u", "--bound", "100",
             "--epsilon", "1", "--slot-seconds", "2")  # fmt: skip
    place.start()
    yield place
    place.stop()


@pytest.mark.slow
@pytest.mark.broker
def test_two_campaigns_get_devices_of_one_broker(home: Place) -> None:
    folder, port = home.folder, home.port
    assert "expected one of" in said("devices", "add", "1", "--home", str(folder), code=2), "the campaign is missing"
    for name in CAMPAIGNS:
        told = said("devices", "add", "2", "--home", str(folder), "--campaign", name)
        assert f"{name}-001 to {name}-002" in told
    # When a server starts, the broker also reads what was changed while no server ran.
    running = Running(folder)
    try:
        password = home.password("electricity", "electricity-001")
        own, other = (report_topic(PREFIX, name, "electricity-001") for name in CAMPAIGNS)
        wait_for(lambda: accepted(folder, port, "electricity-001", password), 60)
        assert accepted(folder, port, "electricity-001", password, own)
        assert not accepted(folder, port, "electricity-001", password, other), "the rules name a topic of one campaign"

        at = ("--home", str(folder), "--campaign", "electricity")
        said("devices", "rotate", "electricity-001", *at)
        renewed = home.password("electricity", "electricity-001")
        wait_for(lambda: not accepted(folder, port, "electricity-001", password))
        assert accepted(folder, port, "electricity-001", renewed, own)
        revoked = home.password("electricity", "electricity-002")
        assert accepted(folder, port, "electricity-002", revoked)
        said("devices", "revoke", "electricity-002", *at)
        wait_for(lambda: not accepted(folder, port, "electricity-002", revoked))
        assert "electricity-003" in said("devices", "add", "1", *at)
        assert "user water-002" in (folder / "broker/access").read_text(encoding="utf-8"), (
            "the other campaign's devices stay"
        )
    finally:
        running.end()


@pytest.mark.slow
@pytest.mark.broker
def test_what_waits_for_the_server_outlives_its_new_password(home: Place) -> None:
    """If mosquitto got a SIGHUP with the new password, it would drop the session's rights and then its messages.

    So no SIGHUP is sent.
    """
    folder, port = home.folder, home.port
    said("devices", "add", "1", "--home", str(folder), "--campaign", "water")
    running = Running(folder)
    try:
        wait_for(lambda: bool(running.port) and running.get("/readyz")[0] == 200, 60)
        device, before = home.password("water", "water-001"), worker_secret(folder, 0)
        wait_for(lambda: accepted(folder, port, "water-001", device))
        assert "a SIGHUP would lose" in said("broker", "rotate", str(folder))
        wait_for(lambda: "own password was changed" in running.log.getvalue())
        assert accepted(folder, port, "aggregator-60", worker_secret(folder, 60)) is False, "the broker was not told"
        home.stop()
        home.start()
        # The server is refused until it starts again. Meanwhile, reports wait for it.
        assert not accepted(folder, port, "aggregator-0", before)
        with_device = connected(folder, port, "water-001", device)
        with_device.publish(report_topic(PREFIX, "water", "water-001"), b"x" * 24, qos=1).wait_for_publish(30)
        leave(with_device)
    finally:
        running.end()
    running = Running(folder)
    try:

        def received() -> int:
            with open_store(folder / "stores/water.sqlite", read_only=True) as store:
                return store.outcomes()["received"]

        wait_for(lambda: received() == 1, 60)
    finally:
        running.end()


@pytest.mark.broker
def test_who_refuses_a_changed_plan_is_asked_of_the_campaigns_own_devices(home: Place) -> None:
    said("devices", "add", "3", "--home", str(home.folder), "--campaign", "water")
    from undertone_aggregator.campaign.binding import refusals_of
    from undertone_aggregator.counts.epochs import Timeline
    from undertone_aggregator.server.folder import Home

    opened = Home(home.folder)
    text = opened.file("water").read_text(encoding="utf-8")
    assert "0 of 3 known policies" in str(refusals_of(opened.config("water", text), Timeline(()), int(time.time())))
    dearer = opened.config("water", text.replace('epsilon = "1"', 'epsilon = "2"'))
    assert "3 of 3 known policies" in str(refusals_of(dearer, Timeline(()), int(time.time())))


def test_devices_of_a_campaign_whose_plan_is_gone_keep_their_topics(tmp_path: Path) -> None:
    """Mosquitto acknowledges what its rules forbid, and drops it.

    So without the topics in the rules, reports would be lost until the plan came back.
    """
    folder = tmp_path / "home"
    said("init", str(folder))
    for name, sensor in CAMPAIGNS.items():
        said(
            "campaign", "create", str(folder), name, "--sensor", sensor, "--unit", "u", "--bound", "9", "--epsilon", "1"
        )
        said("devices", "add", "1", "--home", str(folder), "--campaign", name)
    (folder / "campaigns/water.toml").rename(tmp_path / "aside.toml")
    said("devices", "add", "1", "--home", str(folder))
    rules = (folder / "broker/access").read_text(encoding="utf-8")
    for name, number in (("electricity", "001"), ("electricity", "002"), ("water", "001")):
        assert f"topic write {report_topic(PREFIX, name, f'{name}-{number}')}\n" in rules

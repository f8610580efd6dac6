"""What a device's credentials allow at the broker, tried at a real mosquitto with the generated configuration."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.ingest.ingest import IngestPlan, Sessions
from undertone_aggregator.ingest.intake import Delivery, Intake
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.link import DROPPED_TOPIC, Address, Outlet
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic, report_topic
from undertone_simulator.mosquitto import Mosquitto

PREFIX = "u"
DEVICES = ["d1", "d2"]
PASSWORDS = {"d1": "c", "d2": "d", "reader": "b"}
PLAN = IngestPlan(PREFIX, "meters", 1, cells_of)
Make = Callable[..., Mosquitto]


@pytest.fixture
def make(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A function that starts a broker for two devices, with the files that provisioning writes."""
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    passwords, access = tmp_path / "passwords", tmp_path / "access"
    credentials.write_passwords(passwords, {**credentials.server_users("a"), **PASSWORDS})
    credentials.write_access_rules(access, PREFIX, {name: ["meters"] for name in DEVICES})
    running: list[Mosquitto] = []

    def start(**options: int) -> Mosquitto:
        broker = Mosquitto(tmp_path / "broker", free_port(), passwords=passwords, access=access, **options)
        broker.start()
        running.append(broker)
        return broker

    yield start
    for broker in running:
        broker.stop()


def server(broker: Mosquitto, **options: bool) -> Address:
    return Address(broker.host, broker.port, "aggregator", "a", **{"worker_users": True, **options})


class Device:
    """A client with a device's password, and with any client identifier and will."""

    def __init__(self, broker: Mosquitto, name: str, client_id: str = "", will: str | None = None) -> None:
        self.heard: list[str] = []
        self.lost = threading.Event()
        connected = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id or name, clean_session=True)
        self.client.username_pw_set(name, PASSWORDS[name])
        self.client.on_connect = lambda *_: connected.set()
        self.client.on_disconnect = lambda *_: self.lost.set()
        self.client.on_message = lambda _c, _d, message: self.heard.append(message.topic)
        if will is not None:
            self.client.will_set(will, b"x", qos=1, retain=True)
        self.client.connect(broker.host, broker.port)
        self.client.loop_start()
        assert connected.wait(60)

    def publish(self, topic: str, payload: bytes = b"x" * 24, *, retain: bool = False, wait: bool = True) -> None:
        info = self.client.publish(topic, payload, qos=1, retain=retain)
        if wait:
            info.wait_for_publish(60)

    def subscribe(self, *topics: str) -> None:
        done = threading.Event()
        self.client.on_subscribe = lambda *_: done.set()
        self.client.subscribe([(topic, 1) for topic in topics])
        assert done.wait(60)

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        leave(self.client)


def begin(address: Address, plan: IngestPlan = PLAN) -> None:
    """Begin the worker's session, and let the worker go away."""
    intake = open_intake([address], plan, lambda _: None)
    wait_for(lambda: bool(intake.take(0.05)) or intake.ready)
    intake.close()


def drain(address: Address, expected: int, plan: IngestPlan = PLAN, linger: float = 0.5) -> list[Delivery]:
    """Wait up to 60 s for ``expected`` deliveries, then ``linger`` seconds more; return all deliveries that came."""
    intake = open_intake([address], plan, lambda _: None)
    taken: list[Delivery] = []
    deadline = time.monotonic() + 60
    while (len(taken) < expected or not intake.ready) and time.monotonic() < deadline:
        taken += _take(intake)
    quiet = time.monotonic() + linger
    while time.monotonic() < quiet:
        taken += _take(intake)
    intake.close()
    return taken


def _take(intake: Intake) -> Sequence[Delivery]:
    batch = intake.take(0.1)
    intake.acknowledge(batch)
    return batch


def own(device: str) -> str:
    return report_topic(PREFIX, "meters", device)


def test_a_device_cannot_wipe_the_queue_under_the_sessions_name(make: Make) -> None:
    broker = make()
    begin(server(broker))
    with Device(broker, "d1") as honest, Device(broker, "d2", client_id=PLAN.client_id):
        for _ in range(10):
            honest.publish(own("d1"))
    with Device(broker, "d2", client_id="aggregator-0"):
        pass
    assert len(drain(server(broker), 10)) == 10


def test_the_theft_works_at_a_broker_without_that_rule_if_the_name_is_known(make: Make) -> None:
    """The two defences: a device may use no other client id than its own, and the session's name has a secret.

    Without the first defence, the theft works only if the name is known.
    """
    broker = make(own_client_ids=True)
    for plan, kept in ((PLAN, 0), (IngestPlan(PREFIX, "meters", 1, cells_of, sessions=Sessions(secret="8c1f")), 10)):
        begin(server(broker), plan)
        with Device(broker, "d1") as honest:
            for _ in range(10):
                honest.publish(own("d1"))
            with Device(broker, "d2", client_id=PLAN.client_id):
                pass
        assert len(drain(server(broker), kept, plan)) == kept


def test_a_device_cannot_throw_a_running_worker_or_another_device_off(make: Make) -> None:
    broker = make()
    said: list[str] = []
    intake = open_intake([server(broker)], PLAN, said.append)
    wait_for(lambda: bool(intake.take(0.05)) or intake.ready)
    with Device(broker, "d1") as honest:
        for _ in range(20):
            with Device(broker, "d2", client_id=PLAN.client_id):
                intake.take(0.01)
            with Device(broker, "d2", client_id="d1"):
                pass
        assert not honest.lost.is_set()
    assert (intake.ready, said) == (True, [])
    intake.close()


def test_a_session_that_is_taken_again_and_again_rings(make: Make) -> None:
    broker = make()
    said: list[str] = []
    intake = open_intake([server(broker)], PLAN, said.append)
    for _ in range(3):
        wait_for(lambda: bool(intake.take(0.05)) or intake.ready)
        begin(server(broker))
        wait_for(lambda: bool(intake.take(0.05)) or not intake.ready)
    wait_for(lambda: bool(intake.take(0.05)) or intake.ready)
    intake.close()
    assert any("connected again" in sentence for sentence in said)
    assert sum(sentence.startswith("alarm: ") and "aggregator-0" in sentence for sentence in said) == 1


@pytest.mark.waits
def test_what_the_queue_cannot_hold_is_told(make: Make) -> None:
    broker = make(queued_messages=100)
    begin(server(broker))
    with Device(broker, "d1") as flood:
        for _ in range(999):
            flood.publish(own("d1"), wait=False)
        flood.publish(own("d1"))
    outlet = Outlet(server(broker), "outlet")
    outlet.start()
    try:
        arrived = len(drain(server(broker), 100))
        assert 100 <= arrived < 1000
        # Every few seconds the broker tells how many messages it has dropped in all. The first such message may come
        # in the middle of the flood.
        wait_for(lambda: outlet.dropped is not None and arrived + outlet.dropped >= 1000)
        assert arrived + (outlet.dropped or 0) == 1000
    finally:
        outlet.stop()


def test_a_device_leaves_at_most_one_retained_message(make: Make) -> None:
    broker = make()
    with Device(broker, "d1") as liar:
        for shard in range(64):
            liar.publish(f"{PREFIX}/meters/{shard}/d1/report", b"x" * 16_000, retain=True)
        for topic in (f"{PREFIX}/other/5/d1/report", f"{PREFIX}/meters/x/d1/report", own("d2"), "anything"):
            liar.publish(topic, retain=True)
    assert len(drain(server(broker), 1)) == 1


def test_a_device_sends_nothing_large_and_hears_nothing_of_others(make: Make) -> None:
    broker = make()
    begin(server(broker))
    with Device(broker, "d1") as liar, Device(broker, "d2") as other:
        liar.subscribe("#", f"{PREFIX}/+/+/+/report", f"{PREFIX}/+/aggregate/#", DROPPED_TOPIC, "$SYS/#")
        other.publish(own("d2"))
        # The broker passed the report on before it acknowledged it, and so before it answers this subscription.
        liar.subscribe(config_topic(PREFIX, "meters"))
        assert liar.heard == []
        # Mosquitto acknowledges a message that is too large, and passes it on to nobody.
        liar.publish(own("d1"), b"x" * 20_000)
    assert [len(delivery.payload) for delivery in drain(server(broker), 1)] == [24]


def test_a_will_may_do_no_more_than_its_device(make: Make) -> None:
    broker = make()
    begin(server(broker))
    for topic in (config_topic(PREFIX, "meters"), own("d2"), own("d1")):
        with Device(broker, "d1", will=topic) as dying:
            dying.client.socket().shutdown(socket.SHUT_RDWR)
            assert dying.lost.wait(60)
            leave(dying.client)
    assert {delivery.topic for delivery in drain(server(broker), 1)} == {own("d1")}
    outlet = Outlet(server(broker), "outlet", watch=[config_topic(PREFIX, "+")])
    outlet.start()
    assert outlet.retained(config_topic(PREFIX, "meters"), threading.Event()) is None
    outlet.stop()


def test_who_was_refused_and_by_which_file_is_said(make: Make) -> None:
    broker = make()
    said: list[str] = []
    wrong = Address(broker.host, broker.port, "aggregator", "z", password_file=Path("/etc/u/aggregator.password"))
    intake = open_intake([wrong], PLAN, said.append)
    wait_for(lambda: bool(intake.take(0.05)) or bool(said))
    intake.close()
    assert "refused the user aggregator with the password of /etc/u/aggregator.password: " in said[0]


def test_a_port_of_another_program_is_not_a_broker(tmp_path: Path, mosquitto_binary: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Invalid, match="is another program's"):
        Mosquitto(tmp_path / "other", taken.getsockname()[1]).start()

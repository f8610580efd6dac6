"""amqtt in the place of mosquitto: who is let in, what arrives, and a small demonstration on it."""

import importlib.util
import threading
import time

import paho.mqtt.client as mqtt
import pytest

from support.ci import unavailable
from support.paho_client import leave
from undertone_aggregator import credentials
from undertone_shared.errors import Invalid
from undertone_simulator import amqtt_broker
from undertone_simulator.amqtt_broker import MOST_DEVICES, NOTICE, AmqttBroker, needs_amqtt
from undertone_simulator.demo import Options, run
from undertone_simulator.demo.run import _within_reach

with_amqtt = pytest.mark.usefixtures("amqtt")
PASSWORDS = {"aggregator": "right", "load-1": "its own"}
MESSAGES = 300


class Words:
    """A display that remembers its sentences."""

    def __init__(self):
        self.loud = []

    def say(self, sentence, *, loud=False):
        if loud:
            self.loud.append(sentence)

    def event(self, event):
        pass

    def progress(self, done, total, sent, acknowledged):
        pass


@pytest.fixture
def amqtt():
    if importlib.util.find_spec("amqtt") is None:
        unavailable("amqtt is not installed: pip install 'undertone-ldp[demo-broker]'")


@pytest.fixture
def no_mosquitto(monkeypatch):
    def missing():
        raise Invalid("no mosquitto was found")

    monkeypatch.delenv("UNDERTONE_MOSQUITTO", raising=False)
    monkeypatch.setattr(amqtt_broker, "find_mosquitto", missing)


@pytest.fixture
def broker(amqtt, tmp_path, free_port):
    credentials.write_passwords(tmp_path / "passwords", PASSWORDS)
    made = AmqttBroker(tmp_path, free_port(), tmp_path / "passwords")
    made.start()
    yield made
    made.stop()


class Client:
    """A paho client that has had its CONNACK."""

    def __init__(self, broker, user, password, *, keepalive=30, clean=True, topic=None):
        self.messages = []
        self.refused = None
        self._ready = threading.Event()
        self._subscribed = threading.Event()
        self.mqtt = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, user, clean_session=clean)
        self.mqtt.username_pw_set(user, password)
        self.mqtt.on_connect = self._on_connect
        self.mqtt.on_subscribe = lambda *_: self._subscribed.set()
        self.mqtt.on_message = lambda _client, _data, message: self.messages.append(message.payload)
        self.mqtt.connect(broker.host, broker.port, keepalive)
        self.mqtt.loop_start()
        assert self._ready.wait(20)
        if topic:
            self.mqtt.subscribe(topic, 1)
            assert self._subscribed.wait(20)

    def _on_connect(self, _client, _data, _flags, reason, _properties):
        self.refused = reason.is_failure
        self._ready.set()

    def publish(self, payloads):
        sent = [self.mqtt.publish("t/1/load-1/report", payload, qos=1) for payload in payloads]
        for one in sent:
            one.wait_for_publish(20)
        assert all(one.is_published() for one in sent)

    def wait(self, count):
        deadline = time.monotonic() + 20
        while len(self.messages) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return sorted(self.messages)

    def close(self):
        leave(self.mqtt)


def test_mosquitto_goes_first(monkeypatch):
    monkeypatch.setattr(amqtt_broker, "find_mosquitto", lambda: "/usr/sbin/mosquitto")
    assert needs_amqtt() is False


def test_amqtt_stands_in(no_mosquitto, monkeypatch):
    monkeypatch.setattr(amqtt_broker.importlib.util, "find_spec", lambda name: name)
    assert needs_amqtt() is True


def test_without_either_the_ways_to_get_one(no_mosquitto, monkeypatch):
    monkeypatch.setattr(amqtt_broker.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"no mosquitto was found; .*pip install 'undertone-ldp\[demo-broker\]'"):
        needs_amqtt()


def test_a_named_mosquitto_that_does_not_run_is_an_error(monkeypatch):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", "/nowhere")
    with pytest.raises(Invalid, match="UNDERTONE_MOSQUITTO"):
        needs_amqtt()


def test_a_killed_aggregator_would_lose_reports(no_mosquitto, monkeypatch, tmp_path):
    monkeypatch.setattr(amqtt_broker.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(Invalid, match="needs mosquitto"):
        run(Options(2, 2, kill_aggregator_at=1), tmp_path, Words())


def test_too_many_devices_become_fewer_and_that_is_said():
    words = Words()
    assert _within_reach(Options(MOST_DEVICES), words) == Options(MOST_DEVICES)
    assert words.loud == []
    assert _within_reach(Options(500, 7), words) == Options(MOST_DEVICES, 7)
    assert _within_reach(Options(200, collect="stream"), words).devices == MOST_DEVICES
    assert len(words.loud) == 2
    assert "500 devices: 50 take part" in words.loud[0]


@with_amqtt
def test_who_is_let_in(broker):
    for user, password, keepalive, refused in [
        ("load-1", "its own", 30, False),
        ("load-1", "right", 30, True),
        ("stranger", "right", 30, True),
        ("load-1", "its own", 0, True),
    ]:
        client = Client(broker, user, password, keepalive=keepalive)
        client.close()
        assert client.refused is refused, (user, password, keepalive)


@with_amqtt
def test_acknowledged_messages_arrive_also_after_an_absence(broker):
    payloads = [b"%05d" % number for number in range(MESSAGES)]
    device = Client(broker, "load-1", "its own")
    reader = Client(broker, "aggregator", "right", clean=False, topic="t/+/+/report")
    device.publish(payloads[:200])
    assert reader.wait(200) == payloads[:200]
    reader.close()
    time.sleep(0.5)
    device.publish(payloads[200:])
    again = Client(broker, "aggregator", "right", clean=False)
    assert again.wait(100) == payloads[200:]
    again.close()
    device.close()


@with_amqtt
def test_a_broker_that_cannot_start_says_why(tmp_path, free_port):
    with pytest.raises(Invalid, match="amqtt did not start on 127"):
        AmqttBroker(tmp_path, free_port(), tmp_path / "passwords").start()


@with_amqtt
@pytest.mark.slow
def test_a_small_demonstration(no_mosquitto, tmp_path):
    words = Words()
    result = run(Options(6, 4, "4", seed=3, kill_device_at=1, round_slots=2), tmp_path, words)
    assert words.loud.count(NOTICE) == 1
    assert result.accounts.holds, result.accounts.examples
    assert result.accounts.sent == result.accounts.counted > 6 * (6 + 4 - 2)
    # Four slots: false alarms below 1e-7.
    assert result.worst < 6


@with_amqtt
@pytest.mark.slow
def test_streams(no_mosquitto, tmp_path):
    words = Words()
    result = run(Options(collect="stream", devices=6, slots=4), tmp_path, words)
    assert words.loud.count(NOTICE) == 1
    assert result.accounts.holds

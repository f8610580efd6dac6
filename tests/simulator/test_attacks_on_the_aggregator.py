"""Devices that lie, over a real broker.

The broker refuses them, or the server does for a counted reason; other devices go on.
"""

import threading

import paho.mqtt.client as mqtt
import pytest

from support.paho_client import leave
from support.stepped import SteppedClock
from support.waiting import wait_for
from undertone_aggregator.ingest.admission import REASONS
from undertone_aggregator.store.store import open_store
from undertone_device.mqtt.packets import encode_publish
from undertone_shared.errors import Invalid
from undertone_shared.report import COHORT, REPORT, pack
from undertone_shared.topics import SHARDS, config_topic, report_topic, shard

SECONDS = """
slot_seconds = 1
cycle = 4
epsilon = 1
rounds = [1000]
report_slots = 1000
lead_slots = 1
settle_slots = 1
"""


class Liar:
    """An MQTT client with a device's credentials."""

    def __init__(self, world, name):
        self.name = name
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"liar-{name}")
        self._client.username_pw_set(name, world.password(name))
        connected = threading.Event()
        self.disconnected = threading.Event()
        self._client.on_connect = lambda *_: connected.set()
        self._client.on_disconnect = lambda *_: self.disconnected.set()
        self._client.connect("127.0.0.1", world.broker.port)
        self._client.loop_start()
        assert connected.wait(30)

    def publish(self, topic, payload, retain=False):
        self._client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(30)

    def raw(self, packet):
        self._client.socket().sendall(packet)

    def close(self):
        leave(self._client)


@pytest.fixture
def scene(make_world):
    """A campaign whose clock stands still a few slots after its first slot, so that no machine makes reports late."""
    world = make_world(3, SECONDS, SteppedClock(1_798_416_000))
    world.start_aggregator()
    liars = [Liar(world, name) for name in world.names]
    yield Scene(world, *liars)
    for liar in liars:
        liar.close()


class Scene:
    """The campaign as a device sees it, and how often each outcome was counted."""

    def __init__(self, world, *liars):
        self.world = world
        self.liar, self.other, self.honest = liars
        self.campaign = wait_for(self.epochs, what="the first epoch")[0].campaign
        world.clock.moment = self.campaign.epoch + 5.0

    def epochs(self):
        if not self.world.store_path.exists():
            return []
        try:
            with open_store(self.world.store_path, read_only=True) as store:
                return store.epochs()
        except Invalid:
            # The server has not made the store yet.
            return []

    def counts(self):
        with open_store(self.world.store_path, read_only=True) as store:
            return store.outcomes()

    def topic(self, liar):
        return report_topic(self.world.config.broker.prefix, "load", liar.name)

    def report(self, slot=0, symbol=3, kind=COHORT, fingerprint=None):
        return pack(kind, fingerprint or self.campaign.fingerprint, self.campaign.first_slot + slot, (symbol,), 1)

    def expect(self, outcome, before, more=1):
        wait_for(lambda: self.counts()[outcome] >= before[outcome] + more, what=f"the count of {outcome}")
        after = self.counts()
        assert {word: after[word] - before[word] for word in after if after[word] != before[word]} == {
            outcome: more,
            "received": more,
        }


def test_every_lie_is_counted_by_its_reason_and_the_honest_go_on(scene):
    liar, topic = scene.liar, scene.topic(scene.liar)
    prefix = scene.world.config.broker.prefix
    home = shard(liar.name)
    lies = [
        ("counted", topic, scene.report(0)),
        ("duplicate", topic, scene.report(0)),
        ("conflict", topic, scene.report(0, symbol=4)),
        ("wrong_kind", topic, scene.report(1, kind=REPORT)),
        ("other_campaign", topic, scene.report(1, fingerprint=b"\0\1\2\3\4\5\6\7")),
        ("other_campaign", topic, scene.report(-1)),
        ("symbol", topic, scene.report(1, symbol=1 << 20)),
        ("future", topic, scene.report(500)),
        ("malformed", topic, b""),
        ("malformed", topic, scene.report(1)[:15]),
        ("malformed", topic, scene.report(1) + b"\0" * 4),
        ("malformed", topic, b"\xff" * 16),
        ("malformed", topic, b"x" * 5000),
    ]
    for outcome, where, payload in lies:
        before = scene.counts()
        liar.publish(where, payload)
        scene.expect(outcome, before)
    before = scene.counts()
    for level in ((home + 1) % SHARDS, f"0{home}", 64, "x"):
        # The broker's rules allow the device only its own topic.
        liar.publish(f"{prefix}/test/{level}/{liar.name}/report", scene.report(1))
    scene.honest.publish(scene.topic(scene.honest), scene.report(1))
    scene.expect("counted", before)
    assert set(scene.counts()) <= {*REASONS, "counted", "received", "duplicate"}


def test_another_devices_name_is_stopped_by_the_broker(scene):
    before = scene.counts()
    scene.liar.publish(scene.topic(scene.other), scene.report(0))
    scene.liar.publish(scene.topic(scene.other).replace("/test/", "/other/"), scene.report(0))
    # This message is accepted, and arrives after the two that the broker stops.
    scene.liar.publish(scene.topic(scene.liar), scene.report(0))
    scene.expect("counted", before)


def test_names_with_wildcards_end_the_connection_and_reach_nobody(scene):
    before = scene.counts()
    prefix = scene.world.config.broker.prefix
    for liar, name in ((scene.liar, "+"), (scene.other, "#")):
        liar.raw(encode_publish(77, f"{prefix}/test/0/{name}/report", scene.report(0)))
        assert liar.disconnected.wait(30)
    scene.honest.publish(scene.topic(scene.honest), scene.report(0))
    scene.expect("counted", before)


def test_a_device_cannot_publish_a_campaign(scene):
    topic = config_topic(scene.world.config.broker.prefix, "load")
    seen = []
    arrived = threading.Event()
    reader = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="reader")
    reader.username_pw_set(scene.honest.name, scene.world.password(scene.honest.name))
    reader.on_message = lambda _c, _d, message: (seen.append(bytes(message.payload)), arrived.set())
    reader.on_connect = lambda client, *_: client.subscribe(topic)
    scene.liar.publish(topic, b"", retain=True)
    scene.liar.publish(topic, b"mine", retain=True)
    reader.connect("127.0.0.1", scene.world.broker.port)
    reader.loop_start()
    try:
        assert arrived.wait(30)
    finally:
        leave(reader)
    assert [message[12:-64] for message in seen] == [scene.campaign.body]


def test_a_retained_report_is_not_counted_again(scene):
    before = scene.counts()
    scene.liar.publish(scene.topic(scene.liar), scene.report(0), retain=True)
    scene.expect("counted", before)
    scene.world.stop_aggregator()
    before = scene.counts()
    scene.world.start_aggregator()
    scene.expect("retained", before)
    assert scene.counts()["counted"] == before["counted"]

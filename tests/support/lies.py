"""Somebody who may publish campaigns to a world's devices, and the campaigns that they invent."""

import threading

import paho.mqtt.client as mqtt

from support.factory import campaign_of
from support.paho_client import leave
from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import first_edges
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule
from undertone_shared.topics import config_topic

SPEED = 120.0
DAY = 86400
YEAR = 366 * DAY
SEED = bytes(range(16))
MINUTES = """
slot_seconds = 60
cycle = 4
epsilon = 2
rounds = [4]
report_slots = 2000
epoch_slots = 2000
"""
POLICY = {"theta": [100, 5000]}


class Server:
    """A client that may publish campaigns."""

    def __init__(self, world):
        self._topic = config_topic(world.config.broker.prefix, world.config.campaign.name)
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="liar")
        self._client.username_pw_set("aggregator", world.password("aggregator"))
        connected = threading.Event()
        self._client.on_connect = lambda *_: connected.set()
        self._client.connect("127.0.0.1", world.broker.port)
        self._client.loop_start()
        assert connected.wait(30)

    def publish(self, message):
        self._client.publish(self._topic, message, qos=1, retain=True)

    def close(self):
        leave(self._client)


def campaign(epoch, last, **changes):
    cohort = Cohort(square_wave(2, first_edges(10000)))
    fields = {"name": "test", "bound": 10000, "slot_seconds": 60, "cohort": cohort, "report": None, **changes}
    return campaign_of(epoch=epoch, last_slot=last, **fields)


def reporting(mechanism, theta=1000, low=0):
    return {
        "report": ReportRule(low, theta, mechanism),
        "cohort": Cohort(square_wave(2, first_edges(10000))),
        "schedule": Schedule(SEED, 1, 19),
    }


def begin(world):
    now = int(world.clock.now())
    first = now // 60 + 2
    # The campaign lasts longer than any machine needs for a test.
    return campaign(first * 60, first + 1000), now

"""The household's status over its own broker: discovery, state, availability. If the broker is away, nothing waits."""

import json
import math
import socket
import threading

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device.host import household
from undertone_device.host.home_assistant import FILE, open_card, seen_of
from undertone_device.setup.config import parse_config
from undertone_shared.errors import Invalid

STATUS = {
    "campaign": {"name": "load", "certificates": {"report": [2721, 1001]}, "stream": None},
    "cap": [2721, 1001],
    "most_a_day": 1,
    "month": 3 << 20,
    "ever": 5 << 20,
    "ever_rho": 0,
    "lifetime": 0,
    "losses": 0,
    "time": 1_800_000_000,
    "began": 1_790_000_000,
    "streams": None,
    "spent_until": 0,
    "sequence": 0,
    "paused": None,
    "refusals": {},
}


@pytest.fixture
def broker(mosquitto_binary, tmp_path, free_port):
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as running:
        yield running


@pytest.fixture
def config(tmp_path):
    fields = {"name": "meter-17", "broker": {"host": "h"}, "campaigns": ["load"], "policy": "p", "state": "s"}
    return parse_config(json.dumps(fields).encode(), str(tmp_path))


def name_broker(tmp_path, **fields):
    (tmp_path / FILE).write_text(json.dumps(fields), encoding="utf-8")


def show_until(home, condition):
    def holds():
        home.show(STATUS)
        return condition()

    wait_for(holds)


def test_what_streams_may_cost_is_no_zero():
    allowed = {"rho": 1 << 20, "period_seconds": 86400, "lifetime": 0}

    def seen(**changes):
        told = seen_of(STATUS | {"streams": allowed, "ever_rho": 1 << 19} | changes)
        return told["day"], told["month"], told["ever"]

    # Any 24 hours touch two periods of a day, which cost at most rho = 1 each. All streams so far have cost rho = 1/2.
    assert seen() == (
        round(math.log(2721 / 1001) + 2 + 2 * math.sqrt(2 * 20 * math.log(2)), 3),
        None,
        round(5.5 + 2 * math.sqrt(10 * math.log(2)), 3),
    )
    # If single reports have a cap and streams have none, a day has no bound, unless the whole life has one.
    assert seen(streams=dict(allowed, rho=None))[0] is None
    for rho in (None, 1 << 20):
        day = round(math.log(2721 / 1001) + 0.5 + 2 * math.sqrt(0.5 * 20 * math.log(2)), 3)
        assert seen(streams=dict(allowed, rho=rho, lifetime=1 << 19))[0] == day
    assert seen(streams=None, ever_rho=0) == (1.0, 3.0, 5.0)


def test_no_day_may_cost_more_than_a_whole_life():
    often = STATUS | {"most_a_day": 49}
    assert seen_of(often)["day"] == round(49 * math.log(2721 / 1001), 3)
    assert seen_of(often | {"lifetime": 10 << 20})["day"] == 10.0


def test_a_household_sees_how_much_of_its_lifetime_is_used():
    assert seen_of(STATUS)["life"] is None
    assert seen_of(STATUS | {"lifetime": 40 << 20})["life"] == 12.5


def test_streams_count_in_what_is_spent_for_life():
    state = STATUS | {"cap": [1, 1], "ever": 0, "ever_rho": 1 << 18}
    allowed = {"rho": 1 << 18, "period_seconds": 86400, "lifetime": 1 << 19}
    assert household.share_spent(state | {"streams": allowed}) == 0.5
    assert seen_of(state | {"streams": allowed})["life"] == 50.0
    assert household.epsilon_for_life(state | {"streams": allowed}) == household.at_delta(0.5)
    # Without one of the two limits, there is no limit for life.
    assert household.epsilon_for_life(state | {"streams": allowed | {"lifetime": 0}}) is None
    assert household.epsilon_for_life(STATUS | {"streams": allowed}) is None
    assert household.epsilon_for_life(STATUS | {"streams": None}) is None
    assert household.epsilon_for_life(STATUS | {"streams": None, "lifetime": 40 << 20}) == 40
    # Of two limits, the one of which a larger share is spent counts. In the first case, both shares are 5/40 = 1/8.
    assert household.share_spent(STATUS | {"streams": allowed, "lifetime": 40 << 20, "ever_rho": 1 << 16}) == 0.125
    assert household.share_spent(STATUS | {"streams": allowed, "lifetime": 40 << 20, "ever_rho": 1 << 17}) == 0.25


def test_what_a_lost_ledger_held_is_no_zero():
    lost = STATUS | {"losses": 1, "began": STATUS["time"] - 20 * 86400}
    assert (seen_of(lost)["month"], seen_of(lost)["ever"]) == (None, None)
    # With a lifetime, the lost ledger counts as all of it, so the total is known. The loss was 40 days ago, so the
    # month is known, too.
    later = lost | {"began": STATUS["time"] - 40 * 86400, "lifetime": 40 << 20}
    assert (seen_of(later)["month"], seen_of(later)["ever"]) == (3.0, 5.0)


def test_a_device_that_has_only_begun_its_ledger_has_no_last_report():
    begun = STATUS | {"spent_until": STATUS["began"]}
    assert seen_of(begun)["last_report"] == "never"
    assert seen_of(begun | {"sequence": 1})["last_report"] == "2026-09-21 14:13 UTC"


def test_without_a_file_there_is_no_home(config):
    assert open_card(config) is None


def test_a_file_that_is_wrong_is_refused_by_its_field(config, tmp_path):
    for fields, words in (({}, "'host'"), ({"host": "h", "hosts": 1}, "'hosts'"), ({"host": 1}, "host")):
        name_broker(tmp_path, **fields)
        with pytest.raises(Invalid, match=words):
            open_card(config)
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    with pytest.raises(Invalid, match="not JSON"):
        open_card(config)


def test_home_assistant_hears_of_the_device_and_of_its_end(config, broker, tmp_path):
    name_broker(tmp_path, host="localhost", tcp_port=broker.port)
    home = open_card(config)
    heard = {}
    watcher = paho.Client(CallbackAPIVersion.VERSION2, "home-assistant")
    watcher.on_message = lambda client, data, message: heard.update({message.topic: message.payload})
    watcher.connect("127.0.0.1", broker.port)
    watcher.subscribe("#", 1)
    watcher.loop_start()
    try:
        topic = "undertone/home/meter-17"
        config_topic = "homeassistant/device/undertone_device_meter-17/config"
        # A client that subscribes late gets retained messages in any order.
        show_until(home, lambda: {topic, f"{topic}/availability", config_topic} <= set(heard))
        device = json.loads(heard[config_topic])
        assert device["components"]["day"]["state_topic"] == topic
        assert heard[device["availability"][0]["topic"]] == b"online"
        assert json.loads(heard[topic])["day"] == pytest.approx(1.0, abs=0.001)
        home.close()
        wait_for(lambda: heard[f"{topic}/availability"] == b"offline")
    finally:
        leave(watcher)


def test_a_broker_that_cannot_be_reached_keeps_nobody_waiting(config, tmp_path, monkeypatch):
    answered = threading.Event()
    asked = []

    def getaddrinfo(*arguments):
        asked.append(arguments)
        assert answered.wait(60)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    name_broker(tmp_path, host="home.example")
    home = open_card(config)
    for _ in range(3):
        home.show(STATUS)
    assert home.trouble == ""
    wait_for(lambda: len(asked) == 1)
    home.close()
    home = open_card(config)
    answered.set()
    show_until(home, lambda: "no such name" in home.trouble)
    assert len(asked) == 2


def test_a_broker_that_is_away_is_said_and_found_later(config, tmp_path, mosquitto_binary, free_port, monkeypatch):
    monkeypatch.setattr("undertone_device.host.home_assistant._RETRY_SECONDS", 0)
    port = free_port()
    name_broker(tmp_path, host="localhost", tcp_port=port)
    home = open_card(config)
    show_until(home, lambda: "refused" in home.trouble)
    with PrivateBroker(mosquitto_binary, tmp_path, port):
        show_until(home, lambda: home._connected)
        assert home.trouble == ""
        home.close()

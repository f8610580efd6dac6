"""Mode direct with an outlet: estimates and status go to the outlet's broker, campaigns and reports do not."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from support import direct, server
from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.refusal import refused
from support.serving import serve
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.addresses import outlet_address
from undertone_aggregator.settings.config import parse_config
from undertone_shared.campaign import Campaign, body_of

OUTLET = '[outlet]\nhost = "127.0.0.1"\nuser = "aggregator"\npassword_file = "outlet.password"\n'
TEXT = """\
[broker]
mode = "direct"
port = {port}
passwords = "passwords"
prefix = "{prefix}"
{outlet}
[campaign]
name = "meters"
sensor = "load"
unit = "Wh"
bound = 1000
epsilon = 4
slot_seconds = 1
rounds = [600]
cells = 16
settle_slots = 1
min_reports = 1
"""


class Listener:
    """A broker's client that keeps the last message of each topic that it hears, retained or not."""

    def __init__(self, port: int) -> None:
        self.heard: dict[str, bytes] = {}
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self._client.on_message = lambda _client, _data, message: self.heard.update({message.topic: message.payload})
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def close(self) -> None:
        leave(self._client)


@pytest.fixture
def site(tmp_path: Path, mosquitto_binary: str, free_port: Callable[[], int]) -> Iterator[Any]:
    port, outside = free_port(), free_port()
    direct.write_passwords(tmp_path / "passwords", ["d1"])
    (tmp_path / "outlet.password").write_text("any\n", encoding="utf-8")
    text = TEXT.format(port=port, prefix=direct.PREFIX, outlet=OUTLET + f"port = {outside}\n")
    stop, said = threading.Event(), io.StringIO()
    with PrivateBroker(mosquitto_binary, tmp_path, outside) as broker:
        running = threading.Thread(target=serve, args=(parse_config(text, tmp_path), stop, Journal(said)))
        running.start()
        listener = Listener(outside)
        yield SimpleNamespace(port=port, broker=broker, listener=listener, said=said)
        stop.set()
        running.join(120)
        listener.close()
        assert not running.is_alive()


@pytest.mark.waits
def test_estimates_and_status_reach_the_broker_campaigns_and_reports_do_not(site: Any) -> None:
    wait_for(lambda: _connects(site.port), what="the endpoint")
    device = direct.Device(site.port, "d1")
    device.wait("connected")
    device.subscribe()
    ((_, topic, message, _),) = device.wait("message")
    assert topic == direct.CONFIG
    campaign = Campaign(bytes(body_of(message)))
    expected = {f"{direct.PREFIX}/meters/aggregate/{name}" for name in ("all/raw", "status")}

    def told() -> bool:
        slot = int(time.time()) - 1
        if slot >= campaign.first_slot:
            device.publish([server.delivery(campaign, "d1", slot, 0, slot - campaign.first_slot + 1)[1]])
            device.wait("acked")
        time.sleep(1.0)
        return expected <= set(site.listener.heard)

    wait_for(told, what="an estimate and the status")
    before = set(site.listener.heard)
    # A broker that was away gets all messages again.
    site.broker.stop()
    site.broker.start()
    again = Listener(site.broker.port)
    wait_for(lambda: before <= set(again.heard), what="what was published before")
    again.close()
    aggregates = {topic for topic in before if topic.startswith(f"{direct.PREFIX}/meters/aggregate/")}
    assert expected <= aggregates
    assert {topic for topic in before if topic.startswith(direct.PREFIX)} == aggregates
    device.close()


def _connects(port: int) -> bool:
    try:
        direct.raw(port, b"").close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("outlet", "facts"),
    [
        ('[outlet]\nhost = "h"\n', ("[outlet]", "user", "missing")),
        ('[outlet]\nhost = "h"\nuser = "u"\n', ("[outlet]", "password_file", "missing")),
        ('[outlet]\nuser = "u"\npassword_file = "p"\n', ("[outlet]", "host", "missing")),
        ('[outlet]\nca_file = "c"\n', ("[outlet]", "host", "missing")),
        (OUTLET + "port = 70000\n", ("outlet.port", 70000, 0, 65535)),
        (OUTLET + 'ca_file = "c"\ninsecure = true\n', ("outlet.insecure", "outlet.ca_file", "TLS")),
        (OUTLET.replace("aggregator", "a b"), ("outlet.user", "'a b'")),
    ],
)
def test_an_outlet_that_is_not_whole_is_refused(outlet: str, facts: tuple[object, ...]) -> None:
    with refused(*facts):
        parse_config(TEXT.format(port=0, prefix="t", outlet=outlet), Path())


def test_a_broker_of_ones_own_needs_no_outlet() -> None:
    text = TEXT.format(port=0, prefix="t", outlet=OUTLET)
    text = text.replace('"direct"', '"external"').replace('passwords = "passwords"', 'password_file = "p"')
    with refused("[outlet]", "broker.mode", "'direct'", "'external'"):
        parse_config(text, Path())


def test_tls_is_on_but_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "outlet.password").write_text("secret\n", encoding="utf-8")
    for host, more, tls, port in (
        ("127.0.0.1", "", False, 1883),
        ("broker.example", "", True, 8883),
        ("broker.example", "insecure = true\n", False, 1883),
        ("broker.example", "port = 99\n", True, 99),
    ):
        text = TEXT.format(port=0, prefix="t", outlet=OUTLET.replace("127.0.0.1", host) + more)
        address = outlet_address(parse_config(text, tmp_path))
        assert address is not None
        assert (address.host, address.port, address.tls, address.password) == (host, port, tls, "secret")
    assert outlet_address(parse_config(TEXT.format(port=0, prefix="t", outlet=""), tmp_path)) is None

"""The direct endpoint over real sockets: sessions, acknowledgements, the campaign."""

import gc
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from support.direct import CONFIG, PREFIX, Device, OneCampaign, open_endpoint, password, topic, write_passwords
from support.paho_client import leave
from support.private_broker import TLS
from support.refusal import refused, told
from support.waiting import wait_for
from undertone_aggregator.mqtt.credentials import change_passwords
from undertone_aggregator.mqtt.endpoint import roster
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_shared.report import LENGTH

USERS = ["load-1", "load-2", "aggregator", "aggregator-3"]


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    return write_passwords(tmp_path / "passwords", USERS)


@pytest.fixture
def endpoint(passwords: Path) -> Iterator[OneCampaign]:
    with open_endpoint(passwords) as made:
        yield made


@pytest.fixture
def device(endpoint: OneCampaign) -> Iterator[Device]:
    made = Device(endpoint.port, "load-1")
    made.wait("connected")
    yield made
    made.close()


def take(endpoint: OneCampaign, count: int) -> list[Any]:
    taken: list[Any] = []
    deadline = time.monotonic() + 60
    while len(taken) < count and time.monotonic() < deadline:
        taken += endpoint.take(0.1)
    assert len(taken) == count
    return taken


def test_a_report_is_acknowledged_only_after_it_is_committed(endpoint: OneCampaign, device: Device) -> None:
    numbers = device.publish([b"one", b"two"])
    taken = take(endpoint, 2)
    assert [(delivery.topic, delivery.payload, delivery.retained) for delivery in taken] == [
        (topic("load-1"), b"one", False),
        (topic("load-1"), b"two", False),
    ]
    with pytest.raises(AssertionError, match="no acked"):
        device.wait("acked", 0.3)
    assert endpoint.facts()["backlog"] == 2
    assert endpoint.facts()["oldest_unacknowledged_seconds"] > 0.25
    endpoint.acknowledge(taken[:1])
    assert device.wait("acked") == [("acked", numbers[0])]
    endpoint.acknowledge(taken[1:])
    assert device.wait("acked") == [("acked", numbers[1])]
    assert endpoint.facts()["backlog"] == 0
    assert endpoint.facts()["oldest_unacknowledged_seconds"] == 0


def test_a_report_is_the_same_whole_in_pieces_and_among_others(endpoint: OneCampaign, device: Device) -> None:
    reports = [bytes([number]) * LENGTH for number in range(4)]
    numbers = device.publish(reports[:1])
    taken = take(endpoint, 1)
    numbers += [device.session.publish(topic("load-1"), reports[1], 0)]
    data = device.session.output()
    for first in range(0, len(data), 7):
        device.socket.sendall(data[first : first + 7])
        time.sleep(0.005)
    taken += take(endpoint, 1)
    numbers += device.publish(reports[2:])
    taken += take(endpoint, 2)
    assert [(delivery.topic, delivery.payload) for delivery in taken] == [
        (topic("load-1"), payload) for payload in reports
    ]
    endpoint.acknowledge(taken)
    acknowledged: list[Any] = []
    while len(acknowledged) < 4:
        acknowledged += device.wait("acked")
    assert acknowledged == [("acked", number) for number in numbers]


def test_a_whole_report_without_a_packet_identifier_ends_the_connection(endpoint: OneCampaign, device: Device) -> None:
    device.session.publish(topic("load-1"), bytes(LENGTH), 0)
    data = bytearray(device.session.output())
    data[-LENGTH - 2 : -LENGTH] = bytes(2)
    device.socket.sendall(data)
    assert device.closed()
    assert endpoint.facts()["refused"] == {"malformed": 1}


def test_an_acknowledgement_goes_to_the_connection_that_delivered(endpoint: OneCampaign, device: Device) -> None:
    device.publish([b"old"])
    taken = take(endpoint, 1)
    newer = Device(endpoint.port, "load-1")
    newer.wait("connected")
    assert device.closed(), "a newer connection ends the older one"
    number = newer.publish([b"new"])
    endpoint.acknowledge(taken)
    with pytest.raises(AssertionError, match="no acked"):
        newer.wait("acked", 0.3)
    endpoint.acknowledge(take(endpoint, 1))
    assert newer.wait("acked") == [("acked", number[0])]
    assert endpoint.facts()["refused"] == {"taken_over": 1}
    newer.close()


def test_another_users_client_id_changes_nothing(endpoint: OneCampaign, device: Device) -> None:
    other = Device(endpoint.port, "load-2", client_id="load-1")
    other.wait("connected")
    device.publish([b"x"])
    endpoint.acknowledge(take(endpoint, 1))
    assert device.wait("acked")
    other.close()


def test_a_foreign_topic_and_the_retain_flag_are_told_on(endpoint: OneCampaign, device: Device) -> None:
    device.publish([b"x"], to=topic("load-2"))
    device.publish([b"y"], to=CONFIG)
    device.session.publish(topic("load-1"), b"z", 0)
    data = bytearray(device.session.output())
    data[0] |= 1
    device.socket.sendall(data)
    taken = take(endpoint, 3)
    assert [(delivery.topic, delivery.payload, delivery.retained) for delivery in taken] == [
        ("", b"x", False),
        ("", b"y", False),
        (topic("load-1"), b"z", True),
    ]


def test_the_campaign_comes_with_the_subscription_and_when_it_changes(endpoint: OneCampaign, device: Device) -> None:
    endpoint.publish(CONFIG, b"first")
    device.subscribe()
    (_, name, payload, retained) = device.wait("message")[0]
    assert (name, bytes(payload), retained) == (CONFIG, b"first", True)
    endpoint.publish(CONFIG, bytes(12_300))
    (_, name, payload, retained) = device.wait("message")[0]
    assert (name, bytes(payload), retained) == (CONFIG, bytes(12_300), False)
    # An empty message deletes the retained one: a new subscriber receives nothing.
    endpoint.publish(CONFIG, b"")
    assert bytes(device.wait("message")[0][2]) == b""
    assert not endpoint.roster.retained


def test_a_device_reads_what_is_published(endpoint: OneCampaign, device: Device) -> None:
    mean = f"{PREFIX}/meters/aggregate/all/filtered"
    endpoint.publish(mean, b"1")
    device.subscribe(mean)
    (_, name, payload, retained) = device.wait("message")[0]
    assert (name, bytes(payload), retained) == (mean, b"1", True)
    endpoint.publish(mean, b"2")
    (_, name, payload, retained) = device.wait("message")[0]
    assert (name, bytes(payload), retained) == (mean, b"2", False)


@pytest.mark.parametrize(
    "other",
    [
        "#",
        topic("load-1"),
        CONFIG + "/x",
        "undertone-test/direct/+/config",
        f"{PREFIX}/meters/aggregate/",
        f"{PREFIX}/meters/aggregate/#",
        f"{PREFIX}/+/aggregate/all/filtered",
        "other/prefix/meters/aggregate/all/filtered",
        f"{PREFIX}/meters/5/aggregate/all/filtered",
    ],
)
def test_nothing_else_can_be_subscribed(endpoint: OneCampaign, device: Device, other: str) -> None:
    device.subscribe(other)
    assert device.wait("denied") == [("denied", other)]
    device.publish([b"x"])
    assert take(endpoint, 1)


def test_pings_are_answered(endpoint: OneCampaign, device: Device) -> None:
    device.socket.sendall(b"\xc0\0\xc0\0")
    device.socket.settimeout(60)
    answer = b""
    while len(answer) < 4:
        answer += device.socket.recv(4)
    assert answer == b"\xd0\0\xd0\0"


def test_a_batch_closes_in_number_and_in_time(passwords: Path) -> None:
    with open_endpoint(passwords, batch=3, batch_seconds=50.0) as endpoint:
        device = Device(endpoint.port, "load-1")
        device.wait("connected")
        device.publish([b"%d" % number for number in range(7)])
        # Another thread queues the messages one by one. A batch of fewer than three waits up to 50 seconds for more.
        wait_for(lambda: endpoint.facts()["backlog"] == 7)
        began = time.monotonic()
        assert len(endpoint.take(60)) == 3
        assert len(endpoint.take(60)) == 3
        assert time.monotonic() - began < 25
        device.close()
    with open_endpoint(passwords, batch_seconds=0.2) as endpoint:
        device = Device(endpoint.port, "load-1")
        device.wait("connected")
        device.publish([b"x"])
        assert len(endpoint.take(60)) == 1
        assert endpoint.take(0.05) == []
        device.close()


def test_many_threads_see_every_delivery_once(passwords: Path) -> None:
    """One thread puts reports while another takes them. Each is taken once, in order."""
    with open_endpoint(passwords, batch=7, batch_seconds=0.0005) as endpoint:
        device = Device(endpoint.port, "load-1")
        device.wait("connected")
        seen: list[bytes] = []
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set() or len(seen) < 2000:
                taken = endpoint.take(0.05)
                seen.extend(delivery.payload for delivery in taken)
                endpoint.acknowledge(taken)

        thread = threading.Thread(target=work)
        thread.start()
        object.__setattr__(endpoint.limits, "per_second", 1e6)
        payloads = [b"%06d" % number for number in range(2000)]
        for first in range(0, 2000, 50):
            device.publish(payloads[first : first + 50])
        device.wait("acked", count=2000)
        stop.set()
        thread.join()
        assert seen == payloads
        device.close()


def test_who_was_refused_is_told(passwords: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "_TELL_SECONDS", 0.0)
    said: list[str] = []
    with open_endpoint(passwords, say=said.append) as endpoint:
        device = Device(endpoint.port, "load-1")
        device.wait("connected")
        stranger = Device(endpoint.port, "nobody")
        assert stranger.closed()
        stranger.close()
        wait_for(lambda: bool(said))
        device.close()
    assert told(said[0], "devices online: 1", "1 with a wrong user name or password", "0 times")


# --- the client paho


class Paho:
    def __init__(self, port: int, user: str, secret: str, **options: Any) -> None:
        self.messages: list[bytes] = []
        self.reason: Any = None
        self._answered = threading.Event()
        self.mqtt = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, user, **options)
        self.mqtt.username_pw_set(user, secret)
        self.mqtt.on_connect = self._on_connect
        self.mqtt.on_message = lambda _client, _data, message: self.messages.append(message.payload)
        self.mqtt.connect("127.0.0.1", port, 30)
        self.mqtt.loop_start()
        assert self._answered.wait(60)

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.reason = reason
        self._answered.set()


def test_paho_publishes_and_subscribes(endpoint: OneCampaign) -> None:
    endpoint.publish(CONFIG, b"campaign")
    client = Paho(endpoint.port, "load-1", password("load-1"))
    client.mqtt.subscribe(CONFIG, 1)
    sent = [client.mqtt.publish(topic("load-1"), b"%d" % number, qos=1) for number in range(100)]
    # paho has at most 20 messages without acknowledgement at a time.
    for _ in range(5):
        endpoint.acknowledge(take(endpoint, 20))
    for message in sent:
        message.wait_for_publish(60)
        assert message.is_published()
    assert client.messages == [b"campaign"]
    leave(client.mqtt)


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("load-1", "wrong"),
        ("stranger", "wrong"),
        ("aggregator", password("aggregator")),
        ("load-1", password("load-2")),
    ],
)
def test_a_wrong_password_is_refused_with_its_code(endpoint: OneCampaign, user: str, secret: str) -> None:
    client = Paho(endpoint.port, user, secret)
    assert client.reason == "Not authorized"
    leave(client.mqtt)
    assert endpoint.facts()["refused"]["password"] >= 1


# --- TLS, and files that are read again


def tls_listener(tmp_path: Path, name: str = "localhost") -> Listener:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    certificate.write_bytes((TLS / f"{name}.pem").read_bytes())
    key.write_bytes((TLS / f"{name}.key").read_bytes())
    return Listener(port=0, certificate=certificate, key=key)


def test_tls_and_its_reload(tmp_path: Path, passwords: Path) -> None:
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    listener = tls_listener(tmp_path, "elsewhere")
    with open_endpoint(passwords, listener=listener) as endpoint:
        with pytest.raises(ssl.SSLCertVerificationError):
            Device(endpoint.port, "load-1", context=context)
        gc.collect()
        tls_listener(tmp_path)
        endpoint.reload()
        device = Device(endpoint.port, "load-1", context=context)
        device.wait("connected")
        assert device.socket.version() in ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]
        device.publish([bytes([number]) for number in range(150)])
        endpoint.acknowledge(take(endpoint, 150))
        device.wait("acked", count=150)
        assert listener.certificate is not None
        listener.certificate.write_text("nonsense", encoding="utf-8")
        with refused("certificate", listener.certificate):
            endpoint.reload()
        device.publish([b"goes on"])
        assert take(endpoint, 1)
        device.close()


def test_no_ticket_is_made_for_a_session_that_nobody_resumes(tmp_path: Path, passwords: Path) -> None:
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with open_endpoint(passwords, listener=tls_listener(tmp_path)) as endpoint:
        device = Device(endpoint.port, "load-1", context=context)
        # A ticket would come before the answer to the login, for which the next line waits.
        device.wait("connected")
        assert isinstance(device.socket, ssl.SSLSocket)
        assert device.socket.version() == "TLSv1.3"
        assert device.socket.session is not None
        assert not device.socket.session.has_ticket
        device.close()


def test_old_tls_is_refused(tmp_path: Path, passwords: Path) -> None:
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with open_endpoint(passwords, listener=tls_listener(tmp_path)) as endpoint:
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            Device(endpoint.port, "load-1", context=context)
        gc.collect()


def test_a_removed_user_is_disconnected_at_reload(endpoint: OneCampaign, device: Device, passwords: Path) -> None:
    other = Device(endpoint.port, "load-2")
    other.wait("connected")
    change_passwords(passwords, {"load-1": None})
    endpoint.reload()
    assert device.closed()
    other.publish([b"x"])
    assert take(endpoint, 1)
    other.close()
    passwords.write_text("load-2:nonsense\n", encoding="utf-8")
    with refused(passwords, "'load-2'"):
        endpoint.reload()


def test_a_port_in_use_is_said(endpoint: OneCampaign, passwords: Path) -> None:
    with refused("127.0.0.1", endpoint.port):
        open_endpoint(passwords, listener=Listener(port=endpoint.port)).__enter__()

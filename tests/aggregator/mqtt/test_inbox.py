"""The inbox subscribes at a broker: sessions, repeated deliveries, TLS, brokers that misbehave or vanish."""

import gc
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from support.paho_client import leave
from support.private_broker import TLS, PrivateBroker
from support.waiting import wait_for
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import inbox as module
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.inbox import Inbox
from undertone_aggregator.mqtt.link import Address, Outlet

TOPIC = "undertone-test/inbox"


class Sender:
    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.mqtt = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "sender")
        if context is not None:
            self.mqtt.tls_set_context(context)
        self.mqtt.connect("localhost", port)
        self.mqtt.loop_start()

    def send(self, first: int, count: int, qos: int = 1) -> None:
        made = [self.mqtt.publish(TOPIC, b"%06d" % number, qos) for number in range(first, first + count)]
        for sent in made:
            sent.wait_for_publish(60)


@pytest.fixture(params=["plain", "tls"])
def place(
    request: pytest.FixtureRequest, mosquitto_binary: str, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[tuple[PrivateBroker, Address, Sender]]:
    tls = request.param == "tls"
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost" if tls else None) as broker:
        ca = TLS / "ca.pem" if tls else None
        sender = Sender(broker.port, ssl.create_default_context(cafile=str(ca)) if tls else None)
        yield broker, Address("localhost", broker.port, "u", "p", ca), sender
        leave(sender.mqtt)


def make(address: Address, said: list[str] | None = None, **options: Any) -> Inbox:
    limit = options.pop("limit", 1000)
    return Inbox(address, "inbox", [TOPIC], limit, (said if said is not None else []).append, **options)


def opened(address: Address, said: list[str] | None = None, **options: Any) -> Inbox:
    """Open the inbox of a new session; return it once the broker keeps messages for it."""
    made = make(address, said, **options)

    def ready() -> bool:
        assert made.take(0.05) == []
        return made.ready

    wait_for(ready)
    return made


def drain(inbox: Inbox, count: int, acknowledge: bool = True) -> list[bytes]:
    came: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(came) < count and time.monotonic() < deadline:
        taken = inbox.take(0.1)
        came += [delivery.payload for delivery in taken]
        if acknowledge:
            inbox.acknowledge(taken)
    return came


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def test_what_is_not_acknowledged_comes_again_and_what_is_does_not(
    place: tuple[PrivateBroker, Address, Sender],
) -> None:
    _, address, sender = place
    inbox = opened(address)
    sender.send(0, 500)
    assert drain(inbox, 500) == numbers(0, 500)
    sender.send(500, 10)
    assert drain(inbox, 10, acknowledge=False) == numbers(500, 10)
    inbox.close()
    sender.send(510, 300)
    again = make(address)
    assert drain(again, 310) == numbers(500, 310)
    assert again.take(0.2) == []
    again.close()
    last = make(address)
    while not last.ready:
        assert last.take(0.1) == []
    assert last.take(0.2) == []
    sender.send(0, 5, qos=0)
    assert drain(last, 5) == numbers(0, 5)
    last.close()


def test_a_batch_is_bounded(place: tuple[PrivateBroker, Address, Sender]) -> None:
    _, address, sender = place
    inbox = opened(address, limit=7, batch_seconds=0.5)
    sender.send(0, 100)
    came = []
    while len(came) < 100:
        taken = inbox.take(60)
        assert 0 < len(taken) <= 7
        inbox.acknowledge(taken)
        came += [delivery.payload for delivery in taken]
    assert came == numbers(0, 100)
    inbox.close()


def test_an_acknowledgement_of_an_old_connection_is_kept_back(
    place: tuple[PrivateBroker, Address, Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    _, address, sender = place
    said: list[str] = []
    inbox = opened(address, said)
    sender.send(0, 3)
    old: list[Any] = []
    while len(old) < 3:
        old += inbox.take(1)
    assert inbox._socket is not None
    inbox._socket.shutdown(socket.SHUT_RDWR)
    again: list[Any] = []
    deadline = time.monotonic() + 60
    while len(again) < 3 and time.monotonic() < deadline:
        again += inbox.take(0.1)
    # The old deliveries can no longer be acknowledged: their packet numbers may belong to other messages by now.
    inbox.acknowledge(old)
    assert [delivery.payload for delivery in again] == numbers(0, 3)
    assert "was lost" in said[0]
    assert "connected again" in said[1]
    inbox.close()
    last = make(address)
    assert drain(last, 3) == numbers(0, 3), "nothing was acknowledged"
    last.close()


def test_a_broker_of_another_authority_is_not_talked_to(
    mosquitto_binary: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:
        said: list[str] = []
        inbox = Inbox(Address("localhost", broker.port, "u", "p", TLS / "other-ca.pem"), "i", [TOPIC], 10, said.append)

        def refused() -> bool:
            inbox.take(0.1)
            assert not inbox.ready
            return any("CERTIFICATE_VERIFY_FAILED" in sentence for sentence in said)

        wait_for(refused)
        inbox.close()
        gc.collect()


class Scripted(Inbox):
    """An inbox that reads no socket: each number of ``script`` is how many deliveries one read brings.

    ``waited``: the longest time that each read might have waited, in seconds.
    """

    def __init__(self, script: list[int], **options: Any) -> None:
        super().__init__(Address("127.0.0.1", 1, "u", "p"), "i", [TOPIC], options.pop("limit", 10), **options)
        self.script = script
        self.waited: list[float] = []

    def _pump(self, seconds: float) -> bool:
        count = self.script.pop(0)
        self.waited.append(seconds)
        self._received += [Delivery(TOPIC, b"%d" % n, False, None) for n in range(count)]
        return count > 0


def test_a_batch_closes_when_it_is_full_or_old_or_the_broker_is_silent() -> None:
    silent = Scripted([2, 3, 0], batch_seconds=60)
    assert len(silent.take(0.5)) == 5
    assert silent.waited == [0.5, module.QUIET_SECONDS, module.QUIET_SECONDS]
    full = Scripted([4, 9, 2], batch_seconds=60)
    assert len(full.take(0.5)) == 10
    # Deliveries that are left over begin the next batch, so it does not wait 0.5 s for a first one.
    full.script.append(0)
    assert len(full.take(0.5)) == 5
    assert full.waited == [0.5, *[module.QUIET_SECONDS] * 3]
    old = Scripted([1, 1])
    assert [len(old.take(0.5)), len(old.take(0.5))] == [1, 1]
    nothing = Scripted([0])
    assert nothing.take(0.5) == []


def test_what_a_lost_connection_delivered_is_not_taken_from_it() -> None:
    inbox = Scripted([5, 0], limit=2)
    assert len(inbox.take(0.5)) == 2
    inbox._socket = socket.socket()
    inbox._lose(ConnectionError("gone"), time.monotonic())
    # Nothing of the lost connection is left to take: the broker delivers those messages again.
    assert inbox.take(0.5) == []
    assert not inbox.ready


def test_both_clients_say_that_the_port_may_expect_tls(
    mosquitto_binary: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """Without ca_file, inbox and outlet say that the port may expect TLS."""
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:
        address = Address("localhost", broker.port, "u", "p")
        said: dict[str, list[str]] = {"inbox": [], "outlet": []}
        inbox, outlet = make(address, said["inbox"]), Outlet(address, "outlet", said["outlet"].append, [TOPIC])
        outlet.start()
        deadline = time.monotonic() + 60
        while not all(said.values()) and time.monotonic() < deadline:
            inbox.take(0.1)
        outlet.stop()
        inbox.close()
    for sentences in said.values():
        assert sentences[0].startswith(f"localhost:{broker.port} does not answer as a broker does")
        assert sentences[0].endswith("does this port expect TLS?")


def test_a_connection_that_we_end_ourselves_is_no_mistake_of_the_ports() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        outlet = Outlet(Address("127.0.0.1", listening.getsockname()[1], "u", "p"), "outlet", said.append)
        outlet.start()
        made, _ = listening.accept()
        with made:
            made.settimeout(60)
            assert made.recv(1000), "CONNECT has come, and is not answered"
            outlet.stop()
    assert said == []


def test_a_connection_ends_without_a_reset_while_the_broker_still_sends() -> None:
    """A reset would make the broker discard acknowledgements that it has not read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        inbox = make(Address("127.0.0.1", listening.getsockname()[1], "u", "p"))
        inbox.take(0.0)
        made, _ = listening.accept()
        with made:
            made.settimeout(60)
            inbox.take(0.0)
            assert made.recv(1000), "CONNECT has come"
            made.sendall(bytes(100_000))
            closing = threading.Thread(target=inbox.close)
            closing.start()
            assert made.recv(1000) == packets.GOODBYE
            # After a reset, this call would raise ConnectionResetError.
            assert made.recv(1000) == b""
        closing.join(60)
        assert not closing.is_alive()


# --- a broker that misbehaves


class Wicked(threading.Thread):
    """A broker that accepts connections, answers each CONNECT with the same bytes, and then is silent."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(daemon=True)
        self.answer = answer
        self.connections = 0
        self._held: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._held.append(made)
            made.recv(1000)
            made.sendall(self.answer)

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.join(60)
        for made in self._held:
            made.close()


@pytest.fixture
def wicked() -> Iterator[Callable[[bytes], Wicked]]:
    made: list[Wicked] = []

    def start(answer: bytes) -> Wicked:
        made.append(Wicked(answer))
        made[-1].start()
        return made[-1]

    yield start
    for inbox in made:
        inbox.stop()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (packets.connack(packets.NOT_AUTHORISED), "refused the user u: not authorised"),
        (packets.connack(packets.ACCEPTED) + packets.suback(1, [packets.FAILURE]), "refused the subscription"),
        (b"HTTP/1.1 400 Bad Request\r\n" + bytes(100), None),
        (packets.connack(packets.ACCEPTED) + b"\x36\x05\0\1tqx", None),
        (b"\x20\xff\xff\xff\xff\xff", None),
    ],
)
def test_a_broker_that_misbehaves_is_left_and_tried_again(
    wicked: Callable[[bytes], Wicked], monkeypatch: pytest.MonkeyPatch, answer: bytes, sentence: str | None
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    broker, said = wicked(answer), list[str]()
    inbox = Inbox(Address("127.0.0.1", broker.port, "u", "p"), "i", [TOPIC], 10, said.append)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (said if sentence else broker.connections > 2):
        assert inbox.take(0.02) == []
    assert not inbox.ready
    if sentence is not None:
        assert sentence in said[0]
    inbox.close()


def test_a_silent_broker_is_left_after_a_keepalive(wicked: Callable[[bytes], Wicked]) -> None:
    broker = wicked(packets.connack(packets.ACCEPTED) + packets.suback(1, [1]))
    said: list[str] = []
    inbox = Inbox(Address("127.0.0.1", broker.port, "u", "p", keepalive=1), "i", [TOPIC], 10, said.append)

    def left() -> bool:
        inbox.take(0.05)
        # A busy machine may read the broker's answer too late. Then the inbox says that the broker did not answer, and
        # connects again.
        return broker.connections >= 2 and any("was lost" in sentence for sentence in said)

    wait_for(left)
    inbox.close()


def test_pauses_grow_while_nobody_listens(monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]) -> None:
    slept: list[float] = []
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda seconds: slept.append(seconds))
    said: list[str] = []
    inbox = Inbox(Address("127.0.0.1", free_port(), "u", "p"), "i", [TOPIC], 10, said.append)
    tried = []
    for tick in range(3000):
        now[0] = tick / 10
        before = len(said)
        inbox.take(0.1)
        if len(said) > before:
            tried.append(now[0])
    pauses = [b - a for a, b in itertools.pairwise(tried)]
    assert 10 < len(tried) < 40
    assert max(pauses) <= 30.2
    assert pauses[-1] > 14

"""Readers at the endpoint: what each may read, slow readers, several connections of one user, and devices."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.ci import need_connections, unavailable
from support.direct import CONFIG, PREFIX, Device, OneCampaign, open_endpoint, password, write_passwords
from support.micropython import REPO
from support.mosquitto import MISSING, find_mosquitto
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials, packets
from undertone_aggregator.mqtt.endpoint.access import ReadRules, read_access
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.reader import ReaderSession

MEAN, STATUS = (f"{PREFIX}/meters/aggregate/{name}" for name in ("all/filtered", "status"))
FOUND = "homeassistant/device/undertone_meters/config"
LIMITS = Limits()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    access = tmp_path / "access"
    credentials.write_access_rules(access, PREFIX, {"load-1": ["meters"]})
    credentials.write_readers(access, PREFIX, ["grafana", "home"])
    return write_passwords(tmp_path / "passwords", ["load-1", "grafana", "home", "aggregator"])


@pytest.fixture
def endpoint(files: Path) -> Iterator[OneCampaign]:
    with open_endpoint(files, access=files.parent / "access") as made:
        yield made


class Client:
    """A paho client that remembers the messages it gets."""

    def __init__(self, port: int, user: str, client_id: str = "", **options: bool) -> None:
        self.heard: list[tuple[str, bytes, int, bool]] = []
        self.granted: list[int] = []
        self.published: list[int] = []
        self.left = self.connected = False
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, **options)
        self.client.username_pw_set(user, password(user))
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _c, _d, m: self.heard.append((m.topic, m.payload, m.qos, m.retain))
        self.client.on_subscribe = lambda _c, _d, _m, reasons, _p: self.granted.extend(r.value for r in reasons)
        self.client.on_publish = lambda _c, _d, number, _r, _p: self.published.append(number)
        self.client.on_disconnect = self._on_disconnect
        self.client.will_set("homeassistant/status", b"offline", retain=True)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def _on_connect(self, _c: object, _d: object, _f: object, reason: mqtt.ReasonCode, _p: object) -> None:
        self.connected = not reason.is_failure

    def _on_disconnect(self, *_: object) -> None:
        self.left = True

    def subscribe(self, *filters: str, qos: int = 1) -> None:
        before = len(self.granted)
        wait_for(lambda: self.connected)
        self.client.subscribe([(each, qos) for each in filters])
        wait_for(lambda: len(self.granted) == before + len(filters))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        leave(self.client)


def test_a_reader_gets_what_is_retained_and_what_comes(endpoint: OneCampaign) -> None:
    endpoint.publish(MEAN, b"1")
    with Client(endpoint.port, "grafana") as reader:
        reader.subscribe(f"{PREFIX}/+/aggregate/#", qos=2)
        assert reader.granted == [1]
        wait_for(lambda: len(reader.heard) == 1)
        endpoint.publish(STATUS, b"s")
        endpoint.publish(MEAN, b"2")
        wait_for(lambda: len(reader.heard) == 3)
        assert reader.heard == [(MEAN, b"1", 1, True), (STATUS, b"s", 1, False), (MEAN, b"2", 1, False)]
        reader.client.unsubscribe(f"{PREFIX}/+/aggregate/#")
        reader.subscribe(STATUS, qos=0)
        wait_for(lambda: len(reader.heard) == 4)
        endpoint.publish(MEAN, b"3")
        endpoint.publish(STATUS, b"t")
        wait_for(lambda: len(reader.heard) == 5)
        assert reader.heard[3:] == [(STATUS, b"s", 0, True), (STATUS, b"t", 0, False)]


def test_a_reader_reads_what_its_rules_allow(endpoint: OneCampaign) -> None:
    with Client(endpoint.port, "home") as reader:
        reports = f"{PREFIX}/meters/12/+/report"
        reader.subscribe("#", "homeassistant/#", reports, "$SYS/#")
        assert reader.granted == [1, 1, packets.FAILURE, packets.FAILURE]
        endpoint.publish("another/topic", b"x")
        endpoint.publish(FOUND, b"found")
        endpoint.publish(CONFIG, b"campaign")
        endpoint.publish(MEAN, b"1")
        wait_for(lambda: len(reader.heard) == 3)
        assert [topic for topic, *_ in reader.heard] == [FOUND, CONFIG, MEAN], "patterns hold for readers, too"


def test_what_a_reader_publishes_is_dropped(endpoint: OneCampaign) -> None:
    with Client(endpoint.port, "home") as reader, Client(endpoint.port, "home", "other") as other:
        other.subscribe("homeassistant/#")
        reader.subscribe("homeassistant/#")
        reader.client.publish("homeassistant/status", b"online", retain=True)
        reader.client.publish(MEAN, b"forged", qos=1).wait_for_publish(60)
        endpoint.publish(FOUND, b"found")
        wait_for(lambda: other.heard and reader.heard)
        assert other.heard == reader.heard == [(FOUND, b"found", 1, False)]
        assert endpoint.roster.retained == {FOUND: b"found"}
        assert endpoint.facts()["backlog"] == 0


def test_one_user_has_several_connections_and_a_client_identifier_one(endpoint: OneCampaign) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(endpoint.port, "grafana", name)) for name in ("", "", "a", "b")]
        for client in clients:
            client.subscribe(MEAN)
        assert endpoint.facts()["readers_online"] == 4
        assert endpoint.facts()["devices_online"] == 0
        # A client of another user may have the same identifier: no connection ends.
        stack.enter_context(Client(endpoint.port, "home", "a")).subscribe(MEAN)
        assert endpoint.facts()["readers_online"] == 5
        clients[2].client.reconnect_delay_set(600)
        again = stack.enter_context(Client(endpoint.port, "grafana", "a"))
        again.subscribe(MEAN)
        wait_for(lambda: clients[2].left)
        assert endpoint.facts()["refused"] == {"taken_over": 1}


def test_readers_beyond_the_limit_are_refused(files: Path) -> None:
    with (
        open_endpoint(files, replace(LIMITS, readers=1), access=files.parent / "access") as endpoint,
        Client(endpoint.port, "grafana") as first,
    ):
        first.subscribe(MEAN)
        with pytest.raises(ConnectionError), contextlib.closing(Second(endpoint.port)) as second:
            second.wait()
        assert endpoint.facts()["refused"]["connections"] == 1
        device = Device(endpoint.port, "load-1")
        device.wait("connected")
        device.close()


class Second:
    """A reader on a socket, without a client library."""

    def __init__(self, port: int, user: str = "home", receive: int | None = None) -> None:
        self.socket = socket.socket()
        if receive is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(60)
        self.socket.sendall(packets.connect("", user, password(user), 0, clean=True))

    def wait(self) -> None:
        """Return when the connection is accepted. Raises ConnectionError if it is refused."""
        if self.socket.recv(4) != packets.connack(packets.ACCEPTED):
            raise ConnectionError("refused")

    def close(self) -> None:
        self.socket.close()


def test_a_removed_or_changed_reader_is_disconnected(endpoint: OneCampaign, files: Path) -> None:
    access = files.parent / "access"
    with Client(endpoint.port, "grafana") as grafana, Client(endpoint.port, "home") as home:
        grafana.subscribe(MEAN)
        home.subscribe(MEAN)
        credentials.write_access_rules(access, PREFIX, {"load-1": ["meters"], "load-2": ["meters"]})
        endpoint.reload()
        endpoint.publish(MEAN, b"1")
        wait_for(lambda: grafana.heard and home.heard)
        assert endpoint.facts()["refused"] == {}, "a new device disconnects no reader"
        for client in (grafana, home):
            client.client.reconnect_delay_set(600)
        credentials.write_readers(access, PREFIX, ["home"])
        endpoint.reload()
        wait_for(lambda: grafana.left)
        assert not home.left
        credentials.change_passwords(files, {"home": None})
        endpoint.reload()
        wait_for(lambda: home.left)


def test_a_slow_reader_gets_the_newest_of_each_topic_and_delays_no_device(endpoint: OneCampaign) -> None:
    slow = Second(endpoint.port, receive=4096)
    slow.wait()
    slow.socket.sendall(packets.subscribe(1, [f"{PREFIX}/+/aggregate/#"]))
    assert slow.socket.recv(5) == packets.suback(1, [1])
    topics = [f"{PREFIX}/meters/aggregate/g{number}/raw" for number in range(30)]
    device = Device(endpoint.port, "load-1")
    device.wait("connected")
    # These messages are more than the buffers of both sockets hold.
    for number in range(600):
        for topic in topics:
            endpoint.publish(topic, b"%6d" % number + b"." * 2000)
    device.publish([b"report"])
    taken = []
    while not taken:
        taken = list(endpoint.take(1.0))
    endpoint.acknowledge(taken)
    device.wait("acked")
    device.close()
    (connection,) = endpoint.roster.readers.values()
    assert connection.session is not None
    assert len(connection.session._waiting) <= len(topics)
    # Now the reader goes on reading, and the last message of each topic comes in the end.
    newest: dict[str, bytes] = {}
    rest = b""
    while set(newest.values()) != {b"   599"} or len(newest) < len(topics):
        rest += slow.socket.recv(1 << 16)
        whole, at = packets.split(rest)
        for first, start, stop in whole:
            assert first == packets.PUBLISH | packets.QOS1
            end = packets.topic_end(rest, start, stop)
            newest[rest[start + 2 : end].decode()] = rest[end + 2 : end + 8]
            slow.socket.sendall(packets.puback(packets.packet_id(rest, end, stop)))
        rest = rest[at:]
    slow.close()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_reader_that_takes_nothing_for_long_is_disconnected(files: Path, qos: int) -> None:
    now = [1000.0]
    limits = replace(LIMITS, reader_seconds=60.0)
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(open_endpoint(files, limits, access=files.parent / "access"))
        # A connection remembers when it began, so the clock is replaced before anybody connects.
        endpoint.roster.now = lambda: now[0]
        slow = stack.enter_context(contextlib.closing(Second(endpoint.port, receive=4096)))
        slow.wait()
        slow.socket.sendall(packets.subscribe(1, [MEAN])[:-1] + bytes([qos]))
        assert slow.socket.recv(5) == packets.suback(1, [qos])

        def publish() -> bool:
            """Send 100 kB, move the endpoint's clock by 61 s; return whether the reader was disconnected."""
            endpoint.publish(MEAN, b"." * 100_000)
            now[0] += 61
            return endpoint.facts()["refused"].get("unread") == 1

        wait_for(publish)
        # The endpoint counts the reason first and removes the connection then.
        wait_for(lambda: endpoint.facts()["readers_online"] == 0)


class Wire:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.pending = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)


def test_no_more_messages_fly_than_allowed() -> None:
    wire, retained = Wire(), {f"a/{number}": b"x" for number in range(50)}
    reader = ReaderSession(wire, ReadRules(("a/#",)), retained, replace(LIMITS, reader_flying=20))
    reader.handle(packets.SUBSCRIBE, packets.subscribe(7, ["a/#"])[2:])
    sent = b"".join(wire.sent[1:])
    assert len(packets.split(sent)[0]) == 20
    for number in range(1, 6):
        reader.handle(packets.PUBACK, number.to_bytes(2, "big"))
    sent = b"".join(wire.sent[1:])
    numbers = [packets.packet_id(sent, packets.topic_end(sent, start, stop), stop)
               for _, start, stop in packets.split(sent)[0]]  # fmt: skip
    assert numbers == [*range(1, 26)]
    # A newer message of a topic replaces the older one that still waits.
    reader.offer("a/49", b"y")
    reader.offer("a/49", b"z")
    wire.sent.clear()
    for number in range(6, 51):
        reader.handle(packets.PUBACK, number.to_bytes(2, "big"))
    sent = b"".join(wire.sent)
    assert sent.count(b"a/49") == 1
    assert sent.endswith(b"z")


def test_packets_cost_what_they_make_the_server_do() -> None:
    retained = {f"a/{number}": b"x" for number in range(99)}
    reader = ReaderSession(Wire(), ReadRules(("a/#",)), retained, LIMITS)
    ping, own, unknown = (packets.PINGREQ, b""), (packets.PUBACK, b"\0\1"), (packets.PUBACK, b"\0\77")
    assert reader.handle(packets.SUBSCRIBE, packets.subscribe(7, ["a/1", *["b"] * 199])[2 + 1 :]) == 1 + 200 * 100 / 1e4
    assert [reader.handle(*each) for each in (ping, own, own, unknown)] == [1, 0, 1, 1]


def test_a_reader_that_reads_no_answers_is_disconnected() -> None:
    wire = Wire()
    reader = ReaderSession(wire, ReadRules(("a/#",)), {}, replace(LIMITS, unread_bytes=20))
    for pending in (False, True, False, True):
        wire.pending = pending
        for _ in range(10):
            reader.handle(packets.PINGREQ, b"")
    with pytest.raises(packets.ProtocolError) as wrong:
        reader.handle(packets.PINGREQ, b"")
    assert wrong.value.reason == "unread"


def test_the_operators_own_rules_make_readers_and_deny(tmp_path: Path) -> None:
    path = tmp_path / "access"
    path.write_text(
        "user dash\ntopic read t/#\ntopic deny t/secret/#\ntopic write w/#\ntopic deny w/secret\nuser both\ntopic t/b\n"
        "user load-1\ntopic write t/r\n"
        "pattern read t/%u/own\n",
        encoding="utf-8",
    )
    access = read_access(path)
    rules = access.reader("dash")
    assert rules is not None
    assert rules.may_read("t/a")
    assert not rules.may_read("t/secret/a")
    assert not rules.may_read("u")
    assert rules.may_subscribe("#")
    assert not rules.may_subscribe("u/#")
    both = access.reader("both")
    assert both is not None
    assert both.may_read("t/both/own")
    assert access.may_publish("t/b", "both")
    assert access.may_publish("w/a", "dash")
    assert not access.may_publish("w/secret", "dash")
    assert access.reader("load-1") is None
    assert access.reader("nobody") is None
    assert access.reader("") is None


def test_200_readers_get_everything(endpoint: OneCampaign) -> None:
    need_connections(400)
    readers = [Second(endpoint.port) for _ in range(200)]
    for reader in readers:
        reader.wait()
    for reader in readers:
        reader.socket.sendall(packets.subscribe(1, [MEAN]))
        assert reader.socket.recv(5) == packets.suback(1, [1])
    assert endpoint.facts()["readers_online"] == 200
    expected = len(packets.publish(MEAN, b"1", retained=False, number=1))
    for number in range(5):
        endpoint.publish(MEAN, b"%d" % number)
        for reader in readers:
            came = b""
            while len(came) < expected:
                came += reader.socket.recv(expected - len(came))
            assert came == packets.publish(MEAN, b"%d" % number, retained=False, number=number + 1)
            reader.socket.sendall(packets.puback(number + 1))
    for reader in readers:
        reader.close()
    wait_for(lambda: endpoint.facts()["readers_online"] == 0)


@pytest.mark.services
def test_mosquitto_sub_reads_estimates(endpoint: OneCampaign) -> None:
    program = find_mosquitto("mosquitto_sub")
    if program is None:
        unavailable(MISSING)
    endpoint.publish(MEAN, b"1")
    command = [program, "-h", "127.0.0.1", "-p", str(endpoint.port), "-u", "grafana", "-P", password("grafana"),
               "-t", f"{PREFIX}/+/aggregate/#", "-q", "1", "-v", "-C", "2", "-W", "60"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as child:
        wait_for(lambda: endpoint.facts()["readers_online"] == 1)
        assert child.stdout is not None
        first = child.stdout.readline()
        endpoint.publish(STATUS, b"s")
        assert first + child.stdout.readline() == f"{MEAN} 1\n{STATUS} s\n"
        assert child.wait(60) == 0


@pytest.mark.services
def test_a_bridge_of_mosquitto_is_a_reader(
    endpoint: OneCampaign, mosquitto_binary: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """The bridge has the lines of aggregator/README.md, with this endpoint's address, password and prefix."""
    page = (REPO / "aggregator/README.md").read_text(encoding="utf-8")
    lines = [
        line.strip() for line in page[page.index("    connection undertone\n") :].partition("\n\n")[0].splitlines()
    ]
    own = {
        "address meters.example.org:8883": f"address 127.0.0.1:{endpoint.port}",
        "bridge_cafile /etc/mosquitto/undertone-ca.crt": "",
        "remote_password ...": f"remote_password {password('grafana')}",
        "topic undertone/v2/+/aggregate/# in 1": f"topic {PREFIX}/+/aggregate/# in 1",
    }
    assert own.keys() <= set(lines)
    port = free_port()
    bridge = "\n".join(own.get(line, line) for line in lines)
    (tmp_path / "home.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{bridge}\n", "utf-8")
    for topic in (MEAN, FOUND):
        endpoint.publish(topic, b"1")
    with subprocess.Popen([mosquitto_binary, "-c", tmp_path / "home.conf"]) as broker:
        try:
            wait_for(lambda: endpoint.facts()["readers_online"] == 1)
            with Client(port, "grafana") as home:
                home.subscribe("#")
                wait_for(lambda: len(home.heard) == 2)
                endpoint.publish(MEAN, b"2")
                wait_for(lambda: len(home.heard) == 3)
                assert {each[:2] for each in home.heard} == {(MEAN, b"1"), (FOUND, b"1"), (MEAN, b"2")}
        finally:
            broker.terminate()


def test_readers_and_publications_from_many_threads(endpoint: OneCampaign) -> None:
    """Readers that subscribe while another thread publishes get the last message in the end."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(endpoint.port, "grafana")) for _ in range(5)]
        publishing = threading.Thread(
            target=lambda: [endpoint.publish(MEAN, b"%d" % number) for number in range(500)], name="publishing"
        )
        publishing.start()
        for client in clients:
            client.subscribe(MEAN)
        publishing.join()
        for client in clients:
            wait_for(lambda client=client: bool(client.heard) and client.heard[-1][1] == b"499")  # type: ignore[misc]

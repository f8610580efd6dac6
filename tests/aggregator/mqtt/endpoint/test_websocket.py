"""MQTT over WebSocket: the same service as over TCP, short refusals for other HTTP, and limits for hostile frames."""

import contextlib
import gc
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from paho.mqtt.enums import CallbackAPIVersion
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from support.direct import (
    CAMPAIGN,
    CONFIG,
    PREFIX,
    OneCampaign,
    ended,
    open_endpoint,
    password,
    raw,
    topic,
    write_passwords,
)
from support.paho_client import leave
from support.private_broker import TLS
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.connection import Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.roster import Roster
from undertone_aggregator.mqtt.endpoint.websocket import WebSocket, same_site
from undertone_aggregator.settings.broker_options import BrokerOptions, check_broker
from undertone_device.host.paho_transport import PahoTransport
from undertone_device.mqtt import packets
from undertone_device.setup.tls_context import verified_context
from undertone_shared.errors import Invalid

LIMITS = Limits()
MEAN = f"{PREFIX}/meters/aggregate/all/filtered"
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost:8443\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
KEY, CERTIFICATE = TLS / "localhost.key", TLS / "localhost.pem"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    access = tmp_path / "access"
    credentials.write_access_rules(access, PREFIX, {"load-1": [CAMPAIGN]})
    credentials.write_readers(access, PREFIX, ["grafana"])
    return write_passwords(tmp_path / "passwords", ["load-1", "grafana", "aggregator"])


@contextlib.contextmanager
def open_both(files: Path, limits: Limits = LIMITS, **tls: Path) -> Iterator[OneCampaign]:
    listener = Listener(port=0, websocket=("127.0.0.1", 0), **tls)  # type: ignore[arg-type]
    with open_endpoint(files, limits, listener, access=files.parent / "access") as endpoint:
        yield endpoint


# --- over real sockets


@contextlib.contextmanager
def paho(endpoint: OneCampaign, user: str, authority: Path | None = None) -> Iterator[mqtt.Client]:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=user, transport="websockets")
    client.username_pw_set(user, password(user))
    if authority is not None:
        client.tls_set(str(authority))
    client.connect("localhost", endpoint.websocket_port)
    client.loop_start()
    try:
        wait_for(client.is_connected)
        yield client
    finally:
        leave(client)


@pytest.mark.parametrize("tls", [{}, {"certificate": CERTIFICATE, "key": KEY}], ids=["plain", "TLS"])
def test_a_device_reports_and_a_reader_reads_over_websocket(files: Path, tls: dict[str, Path]) -> None:
    with open_both(files, **tls) as endpoint, contextlib.ExitStack() as stack:
        authority = TLS / "ca.pem" if tls else None
        device = stack.enter_context(paho(endpoint, "load-1", authority))
        reader = stack.enter_context(paho(endpoint, "grafana", authority))
        assert (endpoint.facts()["websockets"], endpoint.facts()["connections"]) == (2, 2)
        acknowledged: list[int] = []
        device.on_publish = lambda _c, _d, number, _r, _p: acknowledged.append(number)
        numbers = [device.publish(topic("load-1"), bytes([each]) * 24, qos=1).mid for each in range(3)]
        taken: list[Any] = []
        while len(taken) < 3:
            taken += endpoint.take(60)
        assert [(each.topic, each.payload) for each in taken] == [(topic("load-1"), bytes([n]) * 24) for n in range(3)]
        assert acknowledged == [], "nothing is committed yet"
        endpoint.acknowledge(taken)
        wait_for(lambda: acknowledged == numbers)
        heard: list[bytes] = []
        granted: list[int] = []
        reader.on_message = lambda _c, _d, message: heard.append(message.payload)
        reader.on_subscribe = lambda _c, _d, _n, codes, _p: granted.extend(code.value for code in codes)
        reader.subscribe(MEAN, 1)
        wait_for(lambda: granted == [1])
        large = bytes(range(256)) * 4000
        endpoint.publish(MEAN, large)
        wait_for(lambda: heard == [large])
    assert endpoint.facts()["websockets"] == 0


# paho leaves the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_gateways_transport_connects_over_websocket_and_verifies_the_certificate(files: Path) -> None:
    with open_both(files, certificate=CERTIFICATE, key=KEY) as endpoint:
        endpoint.publish(CONFIG, bytes(12_300))

        def transport(authority: str) -> PahoTransport:
            made = PahoTransport(
                "wss://localhost",
                endpoint.websocket_port,
                "load-1",
                "load-1",
                password("load-1"),
                context=verified_context((TLS / authority).read_bytes()),
            )
            made.connect()
            return made

        events: list[Any] = []

        def heard(device: PahoTransport, count: int) -> bool:
            events.extend(device.poll(50))
            return len(events) >= count

        device = transport("ca.pem")
        wait_for(lambda: heard(device, 1))
        device.subscribe(CONFIG)
        wait_for(lambda: heard(device, 2))
        number = device.publish(topic("load-1"), bytes(24))
        wait_for(lambda: heard(device, 2) and endpoint.facts()["backlog"])
        endpoint.acknowledge(endpoint.take(60))
        wait_for(lambda: heard(device, 3))
        assert events == [("connected",), ("message", CONFIG, bytes(12_300), True), ("acked", number)]
        device.close()
        events.clear()
        stranger = transport("other-ca.pem")
        wait_for(lambda: heard(stranger, 1))
        assert events[0][0] == "lost"
        assert "CERTIFICATE_VERIFY_FAILED" in events[0][1]
        gc.collect()


def test_an_ordinary_request_gets_a_short_refusal_and_devices_at_the_other_port_notice_nothing(files: Path) -> None:
    with open_both(files) as endpoint:
        answer = ended(raw(endpoint.websocket_port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert answer is not None
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert len(answer) < 400
        assert ended(raw(endpoint.port, REQUEST)) == b"", "the other port is MQTT's"
        wait_for(lambda: endpoint.facts()["refused"] == {"http": 1, "not_connect": 1})


def test_a_renewed_certificate_is_shown_without_a_restart(files: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "own.crt", tmp_path / "own.key"
    certificate.write_bytes(CERTIFICATE.read_bytes())
    key.write_bytes(KEY.read_bytes())

    def shown(port: int) -> bytes:
        context = ssl.create_default_context(cafile=TLS / "ca.pem")
        context.check_hostname = False
        with socket.create_connection(("127.0.0.1", port), 60) as plain, context.wrap_socket(plain) as secure:
            return secure.getpeercert(binary_form=True) or b""

    with open_both(files, certificate=certificate, key=key) as endpoint:
        before = shown(endpoint.websocket_port)
        certificate.write_bytes((TLS / "elsewhere.pem").read_bytes())
        key.write_bytes((TLS / "elsewhere.key").read_bytes())
        endpoint.reload()
        assert shown(endpoint.websocket_port) != before
        assert shown(endpoint.websocket_port) == shown(endpoint.port)


def test_a_port_that_is_taken_is_named(files: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listener = Listener(port=0, websocket=("127.0.0.1", port))
        with pytest.raises(Invalid, match=f"port {port} of 127.0.0.1 is in use"), open_endpoint(files, None, listener):
            pass


def test_what_is_wrong_in_the_settings_is_refused() -> None:
    with pytest.raises(Invalid, match="expected both files, or a loopback address"):
        check_broker(BrokerOptions(websocket="0.0.0.0:8443"), 1)
    with pytest.raises(Invalid, match=r"broker\.websocket is for mode = 'direct'"):
        check_broker(BrokerOptions(mode="external", websocket="127.0.0.1:8443", password_file="p"), 1)
    with pytest.raises(Invalid, match="expected ADDRESS:PORT"):
        BrokerOptions(websocket="8443")


# --- without sockets


class Wire:
    """A stream that keeps what is written to it."""

    pending = False
    unread: float = 0

    def __init__(self, certificate: tuple[str, bytes] | None = None) -> None:
        self.reader: Any = None
        self.certificate = certificate
        self.closed = self.paused = False
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def end(self, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.reader.ended(reason)

    close = end


class World:
    """A roster without sockets, with a clock that a test moves."""

    def __init__(self, gate: Gate, limits: Limits = LIMITS) -> None:
        self.roster = Roster(gate, limits, PREFIX, lambda _: None)
        self.seconds = 0.0
        self.roster.now = lambda: self.seconds
        self.queue = self.roster.queues[CAMPAIGN] = Queue(CAMPAIGN)

    def arrive(self, certificate: tuple[str, bytes] | None = None) -> Wire:
        wire: Any = Wire(certificate)
        Connection(self.roster, WebSocket(wire, self.roster.limits, self.roster.now), "192.0.2.1")
        return wire  # type: ignore[no-any-return]

    def upgraded(self) -> Wire:
        wire = self.arrive()
        wire.reader.received(REQUEST)
        assert wire.written.startswith(b"HTTP/1.1 101 ")
        wire.written = b""
        return wire

    def connected(self, user: str = "load-1") -> Wire:
        wire = self.upgraded()
        wire.reader.received(frame(connect(user)))
        assert self.roster.open
        wire.written = b""
        return wire

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.payload for delivery in self.queue.waiting]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    folder = tmp_path_factory.mktemp("gate")
    credentials.write_access_rules(folder / "access", PREFIX, {"load-1": [CAMPAIGN]})
    credentials.write_readers(folder / "access", PREFIX, ["grafana"])
    return Gate(write_passwords(folder / "passwords", ["load-1", "grafana"]), (), folder / "access")


@pytest.fixture
def world(gate: Gate) -> World:
    return World(gate)


def frame(data: bytes, opcode: Opcode = Opcode.BINARY, *, fin: bool = True, mask: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=mask)


def connect(user: str) -> bytes:
    return packets.encode_connect(user, user, password(user), 60)


def reports(count: int) -> list[bytes]:
    session = packets.ClientSession(60)
    made = []
    for number in range(count):
        session.publish(topic("load-1"), number.to_bytes(24, "big"), 0)
        made.append(bytes(session.output()))
    return made


def unpacked(data: bytes) -> list[Frame]:
    """Return the frames in ``data``, which a server sent after it had accepted the upgrade."""
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    client.receive_data(data)
    return [each for each in client.events_received() if isinstance(each, Frame)]


@settings(max_examples=40)
@given(data=some.data())
def test_any_division_into_frames_and_pieces_gives_the_same_reports(gate: Gate, data: some.DataObject) -> None:
    world = World(gate)
    whole = connect("load-1") + b"".join(reports(3))
    cuts = sorted({0, len(whole), *data.draw(some.lists(some.integers(0, len(whole)), max_size=8))})
    stream = bytearray(REQUEST)
    for first, last in pairwise(cuts):
        fin = data.draw(some.booleans())
        half = first if fin else (first + last) // 2
        if half > first:
            stream += frame(whole[first:half], fin=False)
            stream += frame(b"in between", Opcode.PING)
            stream += frame(whole[half:last], Opcode.CONT)
        else:
            stream += frame(whole[first:last])
    wire = world.arrive()
    at = 0
    while at < len(stream):
        size = data.draw(some.integers(1, 400))
        wire.reader.received(bytes(stream[at : at + size]))
        at += size
    assert world.payloads == [number.to_bytes(24, "big") for number in range(3)]
    assert not world.roster.refused
    assert not wire.closed


@settings(max_examples=40)
@given(data=some.binary(max_size=400), logged_in=some.booleans(), masked=some.booleans())
def test_any_bytes_end_the_connection_at_most(gate: Gate, data: bytes, logged_in: bool, masked: bool) -> None:
    world = World(gate)
    wire = world.connected() if logged_in else world.upgraded()
    wire.reader.received(frame(data) if masked else data)
    assert wire.closed == (not world.roster.open)
    world.seconds += 200
    world.roster.sweep()
    assert wire.closed, "who sends no more is closed in the end"


@settings(max_examples=40)
@given(
    head=some.sampled_from([REQUEST, b"POST /mqtt HTTP/1.1\r\n\r\n", b"GET /mqtt HTTP/1.1\r\n"]),
    at=some.integers(0, len(REQUEST)),
    insert=some.binary(max_size=60),
)
def test_any_request_gets_one_answer_at_most(gate: Gate, head: bytes, at: int, insert: bytes) -> None:
    world = World(gate)
    wire = world.arrive()
    wire.reader.received(head[:at] + insert + head[at:])
    assert wire.written.count(b"HTTP/1.1 ") <= 1
    assert wire.closed == (not world.roster.open)
    if not wire.closed:
        world.seconds = LIMITS.connect_seconds + 1
        world.roster.sweep()
        assert world.roster.refused == {"slow_connect": 1}


@pytest.mark.parametrize(
    ("was", "becomes", "status"),
    [
        (b"GET /mqtt", b"GET /", 404),
        (b"GET /mqtt", b"GET /mqtt/", 404),
        (b"GET /mqtt", b"POST /mqtt", 405),
        (b"HTTP/1.1", b"HTTP/1.0", 505),
        (b"Upgrade: websocket\r\n", b"", 426),
        (b"Protocol: mqtt", b"Protocol: mqttv3.1", 400),
        (b"Sec-WebSocket-Protocol: mqtt\r\n", b"", 400),
        (b"Version: 13", b"Version: 12", 400),
        (b"\r\n\r\n", b"\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
    ],
)
def test_a_request_that_is_no_mqtt_over_websocket_is_refused(
    world: World, was: bytes, becomes: bytes, status: int
) -> None:
    wire = world.arrive()
    wire.reader.received(REQUEST.replace(was, becomes, 1))
    assert int(wire.written.split()[1]) == status
    assert len(wire.written) < 500
    assert wire.closed
    assert world.roster.refused == {"http": 1}


def test_the_query_and_the_order_of_subprotocols_do_not_matter(world: World) -> None:
    wire = world.arrive()
    request = REQUEST.replace(b"/mqtt ", b"/mqtt?from=phone ").replace(b"Protocol: mqtt", b"Protocol: mqttv3.1, mqtt")
    wire.reader.received(request + frame(connect("load-1")))
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in wire.written
    assert "load-1" in world.roster.online, "what follows the request at once is read, too"


def test_a_request_byte_by_byte_must_be_complete_in_time(world: World) -> None:
    wire = world.arrive()
    for byte in REQUEST[:-1]:
        wire.reader.received(bytes([byte]))
        world.seconds += LIMITS.connect_seconds / len(REQUEST)
        world.roster.sweep()
    assert not wire.closed
    world.seconds += 0.1
    world.roster.sweep()
    assert wire.closed
    assert world.roster.refused == {"slow_connect": 1}


def test_a_request_without_an_end_is_refused_at_the_limit(world: World) -> None:
    wire = world.arrive()
    sent = 0
    while not wire.closed:
        wire.reader.received(b"GET /mqtt HTTP/1.1\r\n" if not sent else b"X: 1\r\n")
        sent += 1
        assert sent * 6 < LIMITS.request_bytes + 20
    assert wire.written.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("origin", "certificate", "accepted"),
    [
        (b"https://evil.example", False, True),
        (b"null", False, True),
        (b"https://evil.example", True, False),
        (b"null", True, False),
        (b"https://localhost", True, False),
        (b"https://localhost:8443", True, True),
        (None, True, True),
    ],
)
def test_a_foreign_website_cannot_use_a_browsers_certificate(
    world: World, origin: bytes | None, certificate: bool, accepted: bool
) -> None:
    wire = world.arrive(("load-1", b"DER") if certificate else None)
    line = b"" if origin is None else b"Origin: " + origin + b"\r\n"
    wire.reader.received(REQUEST.replace(b"Upgrade:", line + b"Upgrade:", 1))
    assert wire.written.startswith(b"HTTP/1.1 101 " if accepted else b"HTTP/1.1 403 ")
    assert wire.closed != accepted


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("https://a.example", "a.example", True),
        ("https://a.example:443", "a.example", True),
        ("https://a.example", "a.example:443", True),
        ("https://A.example", "a.example", True),
        ("http://a.example", "a.example:443", False),
        ("https://a.example", "b.example", False),
        ("https://[::1]:8443", "[::1]:8443", True),
        ("https://a.example:x", "a.example:x", False),
        ("https://[", "[", False),
        ("", "", False),
        ("null", "null", False),
    ],
)
def test_an_origin_is_compared_with_the_host(origin: str, host: str, same: bool) -> None:
    assert same_site(origin, host) is same


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (frame(b"text", Opcode.TEXT), 1003, "not_binary"),
        (frame(b"x", mask=False), 1002, "malformed"),
        (frame(b"x", Opcode.CONT), 1002, "malformed"),
        (frame(b"x", fin=False) + frame(b"y"), 1002, "malformed"),
        (b"\xc2" + frame(b"x")[1:], 1002, "malformed"),
        (b"\x83" + frame(b"x")[1:], 1002, "malformed"),
        (b"\x89" + frame(bytes(126))[1:], 1002, "malformed"),
        (frame(bytes(LIMITS.frame_bytes + 1))[:14], 1009, "oversized"),
        (frame(b"\x32", fin=False) + frame(bytes(LIMITS.frame_bytes), Opcode.CONT)[:14], 1009, "oversized"),
    ],
    # A frame's mask is random, so names made from the bytes would differ from run to run.
    ids=["text", "unmasked", "continuation", "interrupted", "reserved", "opcode", "ping", "frame", "fragments"],
)
def test_a_frame_that_is_not_allowed_closes_the_connection(world: World, data: bytes, code: int, reason: str) -> None:
    wire = world.connected()
    wire.reader.received(data)
    assert wire.closed
    assert world.roster.refused == {reason: 1}
    (close,) = unpacked(wire.written)
    assert close.opcode is Opcode.CLOSE
    assert int.from_bytes(close.data[:2], "big") == code


def test_pings_are_answered_and_too_many_end_the_connection(world: World) -> None:
    wire = world.connected()
    for _ in range(3 * LIMITS.idle_frames):
        world.seconds += 1
        wire.reader.received(frame(b"still there?", Opcode.PING))
    pongs = unpacked(wire.written)
    assert [(each.opcode, each.data) for each in pongs] == [(Opcode.PONG, b"still there?")] * len(pongs)
    assert len(pongs) == 3 * LIMITS.idle_frames
    world.seconds += 1
    wire.reader.received(frame(b"", Opcode.PING) * LIMITS.idle_frames)
    assert not wire.closed
    wire.reader.received(frame(b""))
    assert wire.closed
    assert world.roster.refused == {"idle_frames": 1}


def test_a_stranger_may_send_little(world: World) -> None:
    # Empty pings, a CONNECT that is too large, and a frame that never ends.
    for opening, more in (
        (b"", frame(b"", Opcode.PING)),
        (b"", frame(b"\x10\xff\xff\x03")),
        (frame(bytes(65_000))[:14], bytes(9)),
    ):
        wire = world.upgraded()
        sent = len(opening)
        wire.reader.received(opening)
        while not wire.closed:
            wire.reader.received(more)
            sent += len(more)
        assert sent <= LIMITS.request_bytes + 20
    assert world.roster.refused == {"idle_frames": 1, "oversized": 2}


def test_a_close_frame_is_answered_and_ends_the_connection_after_its_reports(world: World) -> None:
    wire = world.connected()
    wire.reader.received(frame(reports(1)[0]) + frame(b"\x03\xe8", Opcode.CLOSE))
    assert wire.closed
    assert len(world.payloads) == 1
    assert not world.roster.refused
    assert [(each.opcode, each.data) for each in unpacked(wire.written)] == [(Opcode.CLOSE, b"\x03\xe8")]


def test_a_disconnect_and_a_refused_password_close_the_websocket(world: World) -> None:
    wire = world.connected()
    wire.reader.received(frame(b"\xe0\0"))
    assert [each.opcode for each in unpacked(wire.written)] == [Opcode.CLOSE]
    wire = world.upgraded()
    wire.reader.received(frame(packets.encode_connect("load-1", "load-1", "wrong", 60)))
    answer = unpacked(wire.written)
    assert [each.opcode for each in answer] == [Opcode.BINARY, Opcode.CLOSE]
    assert answer[0].data == b"\x20\x02\x00\x05"
    assert world.roster.refused == {"password": 1}


def test_an_end_for_a_reason_names_it_to_the_client(world: World) -> None:
    wire = world.connected()
    world.roster.online["load-1"].abort("removed")
    (close,) = unpacked(wire.written)
    assert (close.opcode, bytes(close.data)) == (Opcode.CLOSE, b"\x03\xf0removed")


def test_reports_beyond_the_limits_wait_unread_and_nothing_is_dropped(gate: Gate) -> None:
    world = World(gate, replace(LIMITS, burst=5, per_second=1.0))
    wire = world.connected()
    wire.reader.received(b"".join(frame(each) for each in reports(9)))
    assert wire.paused
    assert len(world.payloads) == 5
    assert world.roster.throttled == 1
    for _ in range(4):
        world.seconds += 1.5
        world.roster.sweep()
    assert not wire.paused
    assert world.payloads == [number.to_bytes(24, "big") for number in range(9)]


def test_a_library_client_gets_along_with_the_server(world: World) -> None:
    client = ClientProtocol(parse_uri("ws://localhost:8443/mqtt"), subprotocols=["mqtt"])  # type: ignore[list-item]
    client.send_request(client.connect())
    wire = world.arrive()
    wire.reader.received(b"".join(client.data_to_send()))
    client.receive_data(wire.written)
    assert isinstance(client.events_received()[0], Response)
    assert client.handshake_exc is None
    wire.written = b""
    client.send_binary(connect("load-1"))
    wire.reader.received(b"".join(client.data_to_send()))
    client.receive_data(wire.written)
    assert [bytes(each.data) for each in client.events_received() if isinstance(each, Frame)] == [b"\x20\x02\0\0"]

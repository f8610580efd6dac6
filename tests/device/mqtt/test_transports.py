"""Both transports at a real mosquitto, and the boards' transport on a network that misbehaves."""

import gc
import os
import socket
import ssl
import threading
import time
import uuid

import pytest
from fake_broker import FakeBroker

from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device.host import paho_transport
from undertone_device.host.paho_transport import PahoTransport
from undertone_device.mqtt import socket_connection
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_device.mqtt.socket_connection import SocketConnection
from undertone_device.setup import clock
from undertone_shared.errors import Invalid


def board(port, client_id="board", user=None, password=None, keepalive=60):
    return SessionTransport(
        lambda: SocketConnection("127.0.0.1", port), clock.ticks, client_id, user, password, keepalive=keepalive
    )


def phone(port, client_id="phone", user=None, password=None, keepalive=60):
    return PahoTransport("127.0.0.1", port, client_id, user, password, keepalive)


BOTH = pytest.mark.parametrize("make", [board, phone])


def events_until(transport, kind, seconds=60.0):
    """All events up to the first of this kind."""
    events = []

    def came():
        events.extend(transport.poll(50))
        return any(event[0] == kind for event in events)

    wait_for(came, seconds, f"a {kind}")
    return events


def lost_by(transport):
    """Return why no connection was made."""
    try:
        transport.connect()
    except OSError as error:
        return str(error)
    events = events_until(transport, "lost")
    assert len(events) == 1
    return events[0][1]


@pytest.fixture
def broker(mosquitto_binary, tmp_path, free_port):
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as running:
        yield running


@BOTH
def test_publishes_at_qos_1_and_hears_campaigns(make, broker, topic_prefix):
    transport = make(broker.port)
    transport.connect()
    assert events_until(transport, "connected") == [("connected",)]
    token = transport.publish(f"{topic_prefix}/x", b"\x01\x02")
    assert ("acked", token) in events_until(transport, "acked")
    transport.subscribe(f"{topic_prefix}/config")
    # On one connection, the PUBACK comes after the SUBACK.
    transport.publish(f"{topic_prefix}/x", b"")
    events_until(transport, "acked")
    other = make(broker.port, client_id="other")
    other.connect()
    events_until(other, "connected")
    other.publish(f"{topic_prefix}/config", bytes(12300))
    events_until(other, "acked")
    events = events_until(transport, "message")
    assert events[-1][:3] == ("message", f"{topic_prefix}/config", bytes(12300))
    transport.close()
    other.close()


@BOTH
def test_what_is_in_flight_has_different_tokens(make, broker, topic_prefix):
    transport = make(broker.port)
    transport.connect()
    events_until(transport, "connected")
    tokens = {transport.publish(f"{topic_prefix}/x", bytes([i])) for i in range(10)}
    assert len(tokens) == 10
    acked = set()
    while acked != tokens:
        acked |= {event[1] for event in events_until(transport, "acked")}
    transport.close()


@BOTH
def test_a_killed_broker_is_noticed_and_the_next_connection_works(make, broker):
    transport = make(broker.port)
    transport.connect()
    events_until(transport, "connected")
    broker.stop()
    assert events_until(transport, "lost")[-1][0] == "lost"
    assert transport.poll(0) == []
    assert "refused" in lost_by(transport).lower()
    assert not transport.reached
    broker.start()
    transport.connect()
    events_until(transport, "connected")
    transport.close()


@BOTH
def test_a_broker_that_breaks_the_protocol_is_a_lost_connection(make):
    for answer in (b"\x30\x04\0\x02\xff\xfe", b"\x30\x01x", b"\x30\x04\0\x09ab", b"\x90\x01x", b"\xf0\0"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            transport = make(server.getsockname()[1])

            def speak(server=server, answer=answer):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"\x20\x02\0\0" + answer)
                    connection.recv(4096)

            thread = threading.Thread(target=speak)
            thread.start()
            transport.connect()
            events_until(transport, "lost")
            transport.close()
            thread.join(30)


def test_a_host_that_is_no_name_is_no_connection():
    for host in ("a..b", "x" * 64 + ".example"):
        assert "label" in lost_by(PahoTransport(host, 1883, "phone"))


# paho leaves a socket whose handshake failed to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answer", [b"", b"no TLS at all\r\n"])
def test_who_answers_and_speaks_no_tls_was_reached(answer):
    """A device waits longer for a server that answers but does not let it in than for a server that is away."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        port = server.getsockname()[1]
        transport = PahoTransport("127.0.0.1", port, "phone", context=ssl.create_default_context())
        lost_by(transport)
        assert transport.reached
        thread.join(30)
    lost_by(transport)
    assert not transport.reached, "nobody listens there any more"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_takes_a_connection_and_never_begins_tls_was_reached(monkeypatch):
    monkeypatch.setattr(paho_transport, "ANSWER_MILLISECONDS", 300)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        transport = PahoTransport("127.0.0.1", port, "phone", context=ssl.create_default_context())
        assert "handshake" in lost_by(transport)
        assert transport.reached


@pytest.fixture
def unreachable(monkeypatch):
    """No name is looked up until this event is set, as if no name server answered."""
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def getaddrinfo(*arguments):
        assert answered.wait(60)
        return look_up(*arguments)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answered
    answered.set()


def test_an_unreachable_broker_keeps_nobody_waiting(unreachable, broker, monkeypatch):
    transport = phone(broker.port)
    transport.connect()
    for _ in range(3):
        assert transport.poll(0) == []
    assert transport.publish("t", b"x") == 0
    # The device finds the broker once the name can be looked up.
    unreachable.set()
    events_until(transport, "connected")
    transport.close()
    # The deadline is for the look-up, TCP and TLS together. After it, the device gives up, and may try again.
    unreachable.clear()
    transport.connect()
    monkeypatch.setattr(paho_transport, "ANSWER_MILLISECONDS", 0)
    assert transport.poll(0)[-1][0] == "lost"
    assert transport.poll(0) == []
    monkeypatch.undo()
    unreachable.set()
    transport.connect()
    events_until(transport, "connected")
    transport.close()


@BOTH
def test_connections_leave_no_descriptors_behind(make, broker):
    transport = make(broker.port)

    def round_trip():
        transport.connect()
        events_until(transport, "connected")
        transport.close()
        gc.collect()
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    before = round_trip()
    for _ in range(5):
        after = round_trip()
    # There may be fewer, because another test's files may have been closed meanwhile.
    assert after <= before


@BOTH
def test_a_refused_password_is_said(make, mosquitto_binary, tmp_path, free_port):
    (tmp_path / "passwords").write_text("", encoding="utf-8")
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as broker:
        broker.stop()
        config = tmp_path / "mosquitto.conf"
        config.write_text(
            config.read_text(encoding="utf-8").replace("anonymous true", "anonymous false"), encoding="utf-8"
        )
        broker.start()
        transport = make(broker.port, user="meter-1", password="wrong")
        transport.connect()
        why = events_until(transport, "lost")[-1][1]
        assert "not authorised" in why
        # A board says only the reason. The owner of a gateway reads what may have happened.
        assert why.endswith(": perhaps the device was revoked, or its password was changed") == (make is phone)
        assert transport.reached


def test_a_connection_that_the_server_closes_is_said_in_words():
    """MQTT 3.1.1 gives no reason; for paho this is an "Unspecified error"."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            peer, _ = server.accept()
            peer.recv(1000)
            peer.sendall(b"\x20\x02\x00\x00")
            peer.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        transport = phone(server.getsockname()[1])
        transport.connect()
        assert events_until(transport, "lost")[-1] == ("lost", "the connection was lost")
        thread.join()


@BOTH
def test_a_silent_network_is_noticed_by_the_ping(make):
    """The server accepts, answers CONNECT, and then is silent. The client still sees an open connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            peer, _ = server.accept()
            peer.recv(1000)
            peer.sendall(b"\x20\x02\x00\x00")
            done.wait(200)
            peer.close()

        done = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        transport = make(server.getsockname()[1], keepalive=2)
        transport.connect()
        events_until(transport, "connected")
        events_until(transport, "lost")
        done.set()
        thread.join()


@BOTH
def test_keepalive_zero_is_refused(make):
    with pytest.raises(Invalid, match="keepalive"):
        make(1, keepalive=0)


def test_a_websocket_without_tls_is_refused():
    with pytest.raises(Invalid, match="'wss://broker' without TLS"):
        PahoTransport("wss://broker", 8443, "phone")


@pytest.mark.waits
@BOTH
def test_keepalive_is_kept_by_pings(make, broker):
    # A broker ends a connection that is silent for 1.5 keepalives. The boards' transport pings after half a keepalive,
    # and the phones' after one.
    transport = make(broker.port, client_id=uuid.uuid4().hex, keepalive=4)
    transport.connect()
    events_until(transport, "connected")
    end = time.monotonic() + 6.6
    while time.monotonic() < end:
        assert transport.poll(100) == []
    transport.close()
    assert "timeout" not in broker.log.read_text(encoding="utf-8")


def test_packet_ids_survive_their_wrap_at_a_real_broker(broker, topic_prefix):
    """umqtt sends packet id 0 after the wrap, for which mosquitto ends the connection."""
    transport = board(broker.port)
    transport.connect()
    events_until(transport, "connected")
    transport._session._id = 65532
    tokens = []
    for _ in range(6):
        tokens.append(transport.publish(f"{topic_prefix}/x", b""))
        assert ("acked", tokens[-1]) in events_until(transport, "acked")
    assert tokens == [65533, 65534, 65535, 1, 2, 3]
    transport.close()


# --- the boards' transport over a stream in memory


def over(broker):
    transport = SessionTransport(broker.open, lambda: 0, "d")
    transport.connect()
    assert transport.poll(0) == [("connected",)]
    return transport


def test_a_write_that_finds_no_room_is_repeated_with_the_very_same_bytes():
    broker = FakeBroker()
    transport = over(broker)
    broker.stream.room = 0
    transport.publish("t", b"first")
    assert transport.poll(5) == []
    assert broker.stream.waits[-1] == (5, True)
    # A packet that is queued meanwhile must not be joined to bytes that TLS already has.
    transport.publish("t", b"second")
    broker.stream.room = 3
    events = transport.poll(5) + transport.poll(5)
    assert broker.payloads() == [b"first", b"second"]
    assert [event[0] for event in events] == ["acked", "acked"]
    assert broker.stream.waits[-1] == (5, False)


def test_bytes_that_trickle_in_are_put_together():
    broker = FakeBroker()
    transport = over(broker)
    broker.stream.piece = 1
    broker.send("t", bytes(50))
    events = transport.poll(0) + transport.poll(0)
    assert events == [("message", "t", bytes(50), True)]


def test_one_write_carries_all_that_is_queued():
    broker = FakeBroker()
    transport = over(broker)
    before = len(broker.stream.writes)
    for i in range(4):
        transport.publish("t", bytes([i]))
    transport.poll(0)
    assert len(broker.stream.writes) == before + 1


def test_a_broken_packet_ends_the_connection():
    broker = FakeBroker()
    transport = over(broker)
    broker.stream.incoming = b"\x00\x00"
    assert transport.poll(0) == [("lost", "packet type 0")]
    assert broker.stream.closed
    assert transport.poll(0) == []


def test_the_stream_only_waits_in_poll(free_port):
    """lwIP forgets a socket's timeout, so no call after connecting may depend on a timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = SocketConnection("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
        with peer:
            buffer = bytearray(10)
            started = time.monotonic()
            assert stream.read(buffer) is None
            stream.wait(50, False)
            assert 0.04 < time.monotonic() - started < 5
            # The peer does not read, so the kernel's buffers fill up. Then a write returns None and does not block.
            taken = 0
            while (count := stream.write(memoryview(bytes(65536)))) is not None:
                taken += count
            assert taken > 0
            peer.sendall(b"xy")
            stream.wait(5000, False)
            assert stream.read(buffer) == 2
        stream.close()


def test_the_last_address_that_answered_needs_no_look_up_and_every_step_feeds_the_watchdog(monkeypatch):
    """A look-up may take longer than the watchdog waits.

    The name is looked up before the first connection, and later only if the stored address fails.
    """
    steps = []
    look_up = socket.getaddrinfo

    def getaddrinfo(*arguments):
        steps.append("look up")
        return look_up("127.0.0.1", *arguments[1:])

    monkeypatch.setattr(socket_connection.socket, "getaddrinfo", getaddrinfo)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = socket_connection.opener([("broker.example", port)], None, 1000, lambda: steps.append("fed"))
        for expected in (["fed", "fed", "look up", "fed", "fed"], ["fed", "fed", "fed"]):
            steps.clear()
            connect().close()
            assert steps == expected
    steps.clear()
    with pytest.raises(OSError, match="refused"):
        connect()
    assert steps == ["fed", "fed", "fed", "look up", "fed"]

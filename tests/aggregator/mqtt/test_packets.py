"""The server's packets and the device's codec agree, however a byte stream is cut; invalid bytes are refused."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.refusal import refused
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.packets import (
    ProtocolError,
    check_device,
    packet_id,
    parse_connect,
    parse_subscribe,
    parse_unsubscribe,
    split,
)
from undertone_aggregator.mqtt.subscriber import LARGEST_KEPT, Subscriber, connection_of, is_repeated, packet_of
from undertone_device.mqtt import packets as device

MANY = settings(max_examples=500, deadline=None)
TEXT = st.text(max_size=40).filter(lambda text: "\0" not in text)
CONNACK = packets.connack(packets.ACCEPTED)
FILTER = "p/c/+/+/report"


def body_of(data: bytes) -> tuple[int, bytes]:
    ((first, start, stop),), at = split(data)
    assert at == stop == len(data)
    return first, data[start:stop]


# --- what a device encodes


@pytest.mark.slow
@MANY
@given(TEXT, TEXT, TEXT, st.integers(1, 65535))
def test_a_devices_connect(client_id: str, user: str, password: str, keepalive: int) -> None:
    first, body = body_of(device.encode_connect(client_id, user, password, keepalive))
    assert first == packets.CONNECT
    assert parse_connect(body) == packets.Connect(client_id, user, password, keepalive, 0xC2)
    check_device(parse_connect(body))


def test_the_password_is_not_in_what_is_printed() -> None:
    assert "secret" not in repr(parse_connect(body_of(device.encode_connect("d", "d", "secret", 60))[1]))


@pytest.mark.slow
@MANY
@given(st.integers(1, 65535), TEXT.filter(bool), st.binary(max_size=300))
def test_a_devices_publication(number: int, topic: str, payload: bytes) -> None:
    data = device.encode_publish(number, topic, payload)
    ((first, start, stop),), _ = split(data)
    end = packets.topic_end(data, start, stop)
    assert first == packets.PUBLISH | packets.QOS1
    assert data[start + 2 : end].decode() == topic
    assert packet_id(data, end, stop) == number
    assert data[end + 2 : stop] == payload


@pytest.mark.slow
@MANY
@given(st.integers(1, 65535), TEXT.filter(bool))
def test_a_devices_subscription(number: int, topic: str) -> None:
    first, body = body_of(device.encode_subscribe(number, topic))
    assert first == packets.SUBSCRIBE
    assert parse_subscribe(body) == (number, [(topic, 0)])


# --- what a device reads


def test_a_device_reads_what_the_server_sends() -> None:
    session = device.ClientSession()
    session.connect("d", "d", "p", 0)
    session.subscribe("p/c/config", 0)
    numbers = [session.publish("t", b"x", 0) for _ in range(3)]
    session.output()
    answer = CONNACK + packets.suback(1, [0]) + packets.publish("p/c/config", b"campaign", retained=True)
    answer += packets.pubacks(numbers[:2]) + packets.PONG
    events = session.receive(answer, 1)
    assert events[0] == ("connected",)
    assert (events[1][:2], bytes(events[1][2]), events[1][3]) == (("message", "p/c/config"), b"campaign", True)
    assert events[2:] == [("acked", number) for number in numbers[:2]]
    assert session.receive(packets.pubacks(numbers[2:]), 2) == [("acked", numbers[2])], "it was still in flight"


def test_a_device_reads_a_refused_subscription_and_connection() -> None:
    session = device.ClientSession()
    session.connect("d", "d", "p", 0)
    session.subscribe("#", 0)
    assert session.receive(CONNACK + packets.suback(1, [packets.FAILURE]), 0)[1] == ("denied", "#")
    with pytest.raises(device.ProtocolError, match="not authorised"):
        device.ClientSession().receive(packets.connack(packets.NOT_AUTHORISED), 0)


def test_a_field_that_is_too_long_is_refused() -> None:
    with refused("topic", 65536, 65535):
        packets.publish("t" * 65536, b"", retained=False)


# --- what is refused


def connect_with(**changed: int) -> bytes:
    body = bytearray(body_of(device.encode_connect("d", "d", "p", 60))[1])
    for name, value in changed.items():
        body[{"level": 6, "flags": 7, "keepalive": 9}[name]] = value
    return bytes(body)


def with_will() -> bytes:
    body = connect_with(flags=0xC6)
    return body[:13] + b"\0\1w\0\2go" + body[13:]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (connect_with(level=5), "level"),
        (connect_with(level=3), "level"),
        (connect_with(flags=0xC6), "malformed"),
        (connect_with().replace(b"\0\1d", b"\0\1\0", 1), "malformed"),
        (with_will(), "flags"),
        (connect_with(flags=0xC8), "flags"),
        (connect_with(flags=0x40), "flags"),
        (connect_with(flags=0xC0), "flags"),
        (connect_with(flags=0xC3), "flags"),
        (connect_with(flags=0x02), "malformed"),
        (connect_with(keepalive=0), "keepalive"),
        (connect_with() + b"\0", "malformed"),
        (connect_with()[:-1], "malformed"),
        (b"GET / HTTP/1.1\r\n", "malformed"),
        (b"\0\4MQTT", "malformed"),
        (b"", "malformed"),
    ],
)
def test_a_connect_that_no_device_sends(body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError) as wrong:
        check_device(parse_connect(body))
    assert wrong.value.reason == reason


@pytest.mark.parametrize("user", [None, "load-1"])
def test_who_shows_a_certificate_sends_no_password(user: str | None) -> None:
    body = body_of(device.encode_connect("load-1", user, None, 60))[1]
    flags = 0x02 if user is None else 0x82
    assert parse_connect(body) == packets.Connect("load-1", user or "", "", 60, flags)
    check_device(parse_connect(body))


def test_a_reader_may_have_a_will_and_a_session() -> None:
    assert parse_connect(with_will()) == packets.Connect("d", "d", "p", 60, 0xC6)
    assert parse_connect(connect_with(flags=0xC0)).flags == 0xC0


def test_an_unsubscribe() -> None:
    assert parse_unsubscribe(body_of(packets.unsubscribe(7, ["a/#", "b"]))[1]) == (7, ["a/#", "b"])
    for body in (b"", b"\0\1", b"\0\1\0\2a", b"\0\0\0\1a"):
        with pytest.raises(ProtocolError):
            parse_unsubscribe(body)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1a\0", b"\0\1", b"\0\1\0\1a", b"\0\1\0\1a\3", b"\0\1\0\2\xff\xff\0"])
def test_a_subscribe_that_no_device_sends(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_subscribe(body)


def test_a_length_is_refused_before_its_bytes_have_come() -> None:
    with refused("packet", 268435455, 512, error=ProtocolError):
        split(b"\x30\xff\xff\xff\x7f", 512)
    with pytest.raises(ProtocolError, match="more than 4 bytes"):
        split(b"\x30\xff\xff\xff\xff")
    assert split(b"\x30\xff\xff\xff") == ([], 0)


@pytest.mark.slow
@MANY
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_cut_anywhere_split_alike(data: bytes, cuts: list[int]) -> None:
    def collect(pieces: list[bytes]) -> object:
        rest, made = b"", []
        for piece in pieces:
            rest += piece
            try:
                whole, at = split(rest, 200)
            except ProtocolError as wrong:
                return wrong.reason
            made += [(first, rest[start:stop]) for first, start, stop in whole]
            rest = rest[at:]
        return made, rest

    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert collect(pieces) == collect([data])


# --- the subscriber's side


def subscriber(**options: bool) -> Subscriber:
    made = Subscriber(5, [FILTER], 30, 0.0, **options)
    made.connect("undertone-c", "aggregator", "secret")
    return made


def incoming(number: int, topic: str, payload: bytes) -> bytes:
    return device.encode_publish(number, topic, payload)


def test_a_subscribers_day() -> None:
    made = subscriber()
    assert made.output(0.0)[0] == packets.CONNECT
    assert made.receive(CONNACK, 0.1) == []
    assert body_of(made.output(0.2)) == (packets.SUBSCRIBE, b"\0\1\0\x0e" + FILTER.encode() + b"\1")
    assert not made.subscribed
    assert made.receive(packets.suback(1, [1]), 0.3) == []
    assert made.subscribed
    data = incoming(7, "t", b"x") + packets.publish("t", b"kept", retained=True)
    received = made.receive(data, 0.4)
    assert [delivery[:3] for delivery in received] == [("t", b"x", False), ("t", b"kept", True)]
    assert [(connection_of(delivery), packet_of(delivery), is_repeated(delivery)) for delivery in received] == [
        (5, 7, False),
        (5, 0, False),
    ]
    pieces = [piece for byte in data for piece in made.receive(bytes((byte,)), 0.5)]
    assert pieces == received
    (again,) = made.receive(bytes((data[0] | 8,)) + incoming(7, "t", b"x")[1:], 0.5)
    assert (packet_of(again), is_repeated(again)) == (7, True)
    assert made.output(15.1) == b""
    assert made.output(15.2) == packets.PING
    made.receive(packets.PONG, 15.6)
    assert made.output(30.1) == b""
    assert made.output(30.2) == packets.PING
    with pytest.raises(ProtocolError, match="does not answer"):
        made.output(45.7)


def test_a_subscriber_that_is_refused() -> None:
    made = subscriber()
    with pytest.raises(ProtocolError, match="not authorised"):
        made.receive(packets.connack(packets.NOT_AUTHORISED), 0.0)
    made = subscriber()
    made.receive(CONNACK + packets.suback(1, [packets.FAILURE]), 0.0)
    assert not made.subscribed
    assert made.denied


def test_a_subscription_that_is_given_up() -> None:
    made = subscriber(unsubscribe=True)
    made.output(0.0)
    made.receive(CONNACK, 0.0)
    assert body_of(made.output(0.0))[0] == packets.UNSUBSCRIBE
    made.receive(bytes((packets.UNSUBACK, 2, 0, 1)), 0.0)
    assert made.subscribed


def test_a_topic_that_is_no_text_is_empty() -> None:
    made = subscriber()
    data = incoming(3, "tt", b"x").replace(b"tt", b"\xff\xfe")
    assert [delivery[:2] for delivery in made.receive(CONNACK + data, 0.0)] == [("", b"x")]


def test_a_publication_that_is_too_large_is_cut_and_the_next_one_is_whole() -> None:
    made = subscriber()
    size = 200_000
    body = b"\0\1t\0\5" + bytes(size)
    data = bytes((0x32,)) + bytes((len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14)) + body
    received = []
    stream = CONNACK + data + incoming(6, "t", b"next")
    for at in range(0, len(stream), 1000):
        received += made.receive(stream[at : at + 1000], 0.0)
        assert len(made._rest) <= LARGEST_KEPT + 1005
    assert [(packet_of(delivery), delivery.topic) for delivery in received] == [(5, "t"), (6, "t")]
    assert LARGEST_KEPT - 10 < len(received[0].payload) < size
    assert received[1].payload == b"next"


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_bytes_end_a_connection_or_are_read(seed: int) -> None:
    """10^6 bytes for each seed: whole packets, damaged ones and random bytes.

    The only error is ProtocolError, and the bytes that are kept for the next piece stay few.
    """
    chance = random.Random(seed)
    whole = [CONNACK, packets.suback(1, [1]), packets.PONG, incoming(9, "p/c/1/d/report", bytes(24))]
    made, left, ended = subscriber(), 1_000_000, 0
    made.receive(CONNACK, 0.0)
    while left > 0:
        data = bytearray(b"".join(chance.choices(whole, k=chance.randrange(1, 6))))
        if chance.random() < 0.5:
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            data += chance.randbytes(chance.randrange(400))
        left -= len(data)
        try:
            for delivery in made.receive(bytes(data), 0.0):
                assert isinstance(delivery.topic, str)
        except ProtocolError:
            ended += 1
            made = subscriber()
            made.receive(CONNACK, 0.0)
        assert len(made._rest) <= LARGEST_KEPT + 5
    assert ended > 100

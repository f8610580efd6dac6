"""MQTT packets, byte for byte as in the OASIS standard 3.1.1, and the state machine of a session."""

from undertone_device.mqtt.packets import (
    LARGEST_PACKET,
    ClientSession,
    ProtocolError,
    encode_connect,
    encode_publish,
    encode_subscribe,
)
from undertone_shared.errors import Invalid

CONNACK = b"\x20\x02\x00\x00"


def raises(kind, text, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError("nothing was raised")


def connected(keepalive=60, **options):
    session = ClientSession(keepalive, **options)
    session.connect("d", None, None, 0)
    session.output()
    assert session.receive(CONNACK, 0) == [("connected",)]
    return session


# --- encoding


def test_connect_is_clean_with_user_and_password():
    assert encode_connect("meter-1", "meter-1", "geheim", 60) == (
        b"\x10\x24\x00\x04MQTT\x04\xc2\x00\x3c\x00\x07meter-1\x00\x07meter-1\x00\x06geheim"
    )


def test_connect_without_credentials():
    assert encode_connect("a", None, None, 65535) == b"\x10\x0d\x00\x04MQTT\x04\x02\xff\xff\x00\x01a"


def test_a_user_without_a_password():
    assert encode_connect("a", "b", None, 1) == b"\x10\x10\x00\x04MQTT\x04\x82\x00\x01\x00\x01a\x00\x01b"


def test_keepalive_zero_is_refused():
    for keepalive in (0, -1, 65536, 1.5):
        raises(Invalid, "keepalive", encode_connect, "a", None, None, keepalive)
        raises(Invalid, "keepalive", ClientSession, keepalive)


def test_text_is_utf8_and_its_length_counts_bytes():
    assert encode_subscribe(10, "ä/b") == b"\x82\x09\x00\x0a\x00\x04\xc3\xa4/b\x00"


def test_publish_at_qos_1():
    assert encode_publish(0x1234, "a/b", b"xyz") == b"\x32\x0a\x00\x03a/b\x12\x34xyz"


def test_lengths_take_one_to_three_bytes():
    # By section 2.2.3, table 2.4, the length 127 takes one byte, 128 takes two and 16,384 takes three.
    for size, encoded in ((122, b"\x7f"), (123, b"\x80\x01"), (16378, b"\xff\x7f"), (16379, b"\x80\x80\x01")):
        assert encode_publish(1, "t", bytes(size))[1 : 1 + len(encoded)] == encoded


def test_what_does_not_fit_a_length_field_is_refused():
    raises(Invalid, "topic", encode_publish, 1, "t" * 65536, b"")
    raises(Invalid, "payload", encode_publish, 1, "t", bytes(65536))
    raises(Invalid, "password", encode_connect, "a", "b", "c" * 65536, 60)


def test_queued_packets_leave_in_one_buffer_once():
    session = connected()
    session.subscribe("c", 0)
    session.publish("t", b"1", 0)
    session.disconnect(0)
    assert session.output() == b"\x82\x06\x00\x01\x00\x01c\x00" + b"\x32\x06\x00\x01t\x00\x021" + b"\xe0\x00"
    assert session.output() == b""


# --- packet identifiers


def test_packet_ids_go_from_65535_to_1():
    session = connected()
    session._id = 65533
    assert [session.publish("t", b"", 0) for _ in range(4)] == [65534, 65535, 1, 2]


def test_a_packet_id_in_flight_is_not_given_again():
    session = connected()
    assert session.publish("t", b"first", 0) == 1
    session._id = 65535
    assert session.publish("t", b"second", 0) == 2
    session._id = 65535
    session.subscribe("c", 0)
    assert session.output()[-8:] == b"\x82\x06\x00\x03\x00\x01c\x00"


# --- receiving


def test_acknowledgements_of_what_is_in_flight_only():
    session = connected()
    session.publish("t", b"", 0)
    assert session.receive(b"\x40\x02\x00\x02", 0) == []
    assert session.receive(b"\x40\x02\x00\x01", 0) == [("acked", 1)]
    assert session.receive(b"\x40\x02\x00\x01", 0) == []
    assert not session._unacked


def test_messages_with_their_retained_flag():
    session = connected()
    data = b"\x31\x05\x00\x01thi" + b"\x30\x03\x00\x01t" + b"\x38\x04\x00\x02\xc3\xa4"
    assert session.receive(data, 0) == [
        ("message", "t", b"hi", True),
        ("message", "t", b"", False),
        ("message", "ä", b"", False),
    ]


def test_packets_cut_anywhere():
    data = CONNACK + b"\x90\x03\x00\x01\x00" + b"\x31\x85\x01\x00\x01t" + bytes(130) + b"\xd0\x00\x40\x02\x00\x02"
    for cut in range(len(data)):
        session = ClientSession()
        session.connect("d", None, None, 0)
        session.subscribe("c", 0)
        session.publish("t", b"", 0)
        events = session.receive(data[:cut], 0) + session.receive(memoryview(data)[cut:], 0)
        assert events == [("connected",), ("message", "t", bytes(130), True), ("acked", 2)], cut


def test_an_oversized_message_is_skipped_and_counted():
    session = connected(largest=10)
    message = b"\x30\x80\x01\x00\x01t" + bytes(125)
    events = []
    for i in range(0, len(message), 7):
        events += session.receive(message[i : i + 7], 0)
    assert events == []
    assert session.oversized == 1
    assert session.receive(b"\x30\x04\x00\x01tx", 0) == [("message", "t", b"x", False)]


def test_a_campaign_of_the_largest_size_fits():
    session = connected()
    topic = b"\0\x40" + b"t" * 64
    size = 12300
    length = size + len(topic)
    assert length <= LARGEST_PACKET
    session.receive(bytes((0x31, length & 127 | 128, length >> 7)) + topic, 0)
    events = session.receive(b"x" * size, 0)
    assert len(events[0][2]) == size
    assert session.oversized == 0


def test_a_refused_subscription():
    session = connected()
    session.subscribe("c", 0)
    assert session.receive(b"\x90\x03\x00\x01\x80", 0) == [("denied", "c")]


def test_a_refused_connection_says_why():
    for code, text in ((1, "3.1.1"), (4, "password"), (5, "not authorised"), (77, "77")):
        session = ClientSession()
        raises(ProtocolError, text, session.receive, bytes((0x20, 2, 0, code)), 0)
        assert not session.connected


def test_broken_packets_end_the_session():
    broken = (
        (b"\x00\x00", "type 0"),
        (b"\x30\xff\xff\xff\xff\x01", "4 bytes"),
        (b"\x32\x05\x00\x01t\x00\x01", "QoS"),
        (b"\x30\x01\x00", "topic"),
        (b"\x30\x02\x00\x00", "topic"),
        (b"\x30\x04\x00\x03ab", "topic"),
        (b"\x30\x04\x00\x02\xff\xfe", "UTF-8"),
        (b"\x40\x03\x00\x00\x00", "type 4"),
        (b"\x90\x03\x00\x09\x00", "unknown subscription"),
        (b"\x20\x02\x00\x00", "type 2"),
        (b"\xd0\x01\x00", "type 13"),
        (b"\xf0\x00", "type 15"),
        (b"\x40\x7f", "type 4"),
    )
    for data, text in broken:
        raises(ProtocolError, text, connected().receive, data, 0)
    raises(ProtocolError, "CONNACK", ClientSession().receive, b"\xd0\x00", 0)


# --- keepalive


def test_a_ping_after_half_a_keepalive_of_silence():
    session = connected(keepalive=60)
    session.check(29999)
    assert session.output() == b""
    session.check(30000)
    assert session.output() == b"\xc0\x00"
    session.check(40000)
    assert session.output() == b""
    session.receive(b"\xd0\x00", 41000)
    session.check(70999)
    assert session.output() == b"\xc0\x00"


def test_sending_alone_does_not_hide_a_half_open_connection():
    session = connected(keepalive=60)
    pinged = False
    for now in range(0, 60000, 1000):
        session.publish("t", b"", now)
        session.check(now)
        pinged = pinged or session.output()[-2:] == b"\xc0\x00"
    assert pinged
    raises(ProtocolError, "does not answer", session.check, 60000)


def test_receiving_alone_is_not_enough_for_the_broker():
    session = connected(keepalive=60)
    for now in range(0, 31000, 1000):
        session.receive(b"\x30\x03\x00\x01t", now)
        session.check(now)
    assert session.output() == b"\xc0\x00"


def test_an_unacknowledged_packet_is_repeated_with_the_same_id_and_the_duplicate_flag():
    session = connected(keepalive=60)
    session.publish("t", b"x", 0)
    first = session.output()
    for now in range(0, 60000, 10000):
        session.receive(b"\xd0\x00", now)
        session.check(now)
    session.receive(b"\xd0\x00", 60000)
    session.output()
    session.check(60000)
    assert session.output()[-len(first) :] == bytes((first[0] | 8,)) + first[1:]
    session.check(60001)
    assert session.output() == b""
    assert session.receive(b"\x40\x02\x00\x01", 60001) == [("acked", 1)]


def test_ticks_wrap_at_2_to_the_30():
    session = ClientSession(60)
    session.connect("d", None, None, (1 << 30) - 1000)
    session.output()
    session.receive(CONNACK, (1 << 30) - 1000)
    session.check(28999)
    assert session.output() == b""
    session.check(29000)
    assert session.output() == b"\xc0\x00"

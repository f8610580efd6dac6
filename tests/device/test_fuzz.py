"""Whatever a broker sends or a file contains, there is a clear refusal and never another exception."""

import contextlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertone_device.host.sources.source import parse_sample
from undertone_device.host.status import parse_status
from undertone_device.mqtt.packets import ClientSession, ProtocolError
from undertone_device.setup.config import parse_config
from undertone_device.setup.tls_context import certificates
from undertone_shared.errors import Invalid

CONNACK = b"\x20\x02\x00\x00"
KINDS = {"connected": 1, "message": 4, "acked": 2, "denied": 2}
MANY = settings(max_examples=800, deadline=None)


def session():
    made = ClientSession(largest=300)
    made.connect("d", "u", "p", 0)
    made.subscribe("c", 0)
    made.publish("t", b"x", 0)
    made.output()
    return made


def feed(made, data, cuts=()):
    """(events, the error's text or None) of these bytes, which come in pieces cut at these places."""
    events = []
    start = 0
    try:
        for cut in [*sorted(cuts), len(data)]:
            events += made.receive(data[start:cut], 0)
            start = cut
    except ProtocolError as error:
        return events, str(error)
    for event in events:
        assert len(event) == KINDS[event[0]]
    assert len(made._unacked) in (0, 1)
    made.check(0)
    return events, None


@st.composite
def streams(draw):
    """Bytes like those of a broker: packets whose types, lengths and bodies are right or wrong."""
    data = CONNACK if draw(st.booleans()) else b""
    for _ in range(draw(st.integers(0, 6))):
        body = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from([b"\0\1", b"\0\2", b"\0\1\0", b"\0\1\x80", b"\0\3abcpayload", b"\0\1c" + bytes(400)]),
            )
        )
        first = draw(st.one_of(st.sampled_from([0x20, 0x30, 0x31, 0x40, 0x90, 0xD0]), st.integers(0, 255)))
        length = draw(st.one_of(st.just(len(body)), st.integers(0, 127)))
        encoded = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        data += bytes([first]) + encoded + body
    return data


@pytest.mark.slow
@MANY
@given(streams(), st.lists(st.integers(0, 500), max_size=5))
def test_a_brokers_bytes_however_they_are_cut(data, cuts):
    cuts = [min(cut, len(data)) for cut in cuts]
    whole = feed(session(), data)
    parts = feed(session(), data, cuts)
    assert whole[1] == parts[1]
    if whole[1] is None:
        assert whole[0] == parts[0]


@pytest.mark.slow
def test_a_hundred_thousand_random_packets():
    """Random bytes after a valid beginning. There are many, so they come from a seed and not from Hypothesis."""
    source = random.Random(3111)
    outcomes = {True: 0, False: 0}
    for _ in range(100_000):
        made = session()
        data = CONNACK + source.randbytes(source.randrange(12))
        outcomes[feed(made, data)[1] is None] += 1
    assert min(outcomes.values()) > 1000, "both outcomes occur"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
GOOD = {
    "name": "m",
    "broker": {"host": "h", "port": 1, "user": "u", "password": "p", "tls": {"ca": "c"}, "keepalive": 9},
    "prefix": "a/b",
    "campaigns": ["c"],
    "policy": "p",
    "state": "s",
    "counter_modulus": 5,
    "source": {"kind": "command", "command": ["x"], "timeout_seconds": 1, "seconds": 5},
    "publish": {"in_flight": 1, "spread_percent": 3},
    "wifi": {"ssid": "s", "password": "p"},
    "ntp": "t",
}


def accepted_or_invalid(parse, data):
    with contextlib.suppress(Invalid):
        parse(data)


@pytest.mark.slow
@MANY
@given(st.sampled_from(sorted(GOOD)), st.sampled_from(["", "host", "tls", "kind", "command", "password"]), JSON)
def test_a_configuration_with_one_field_replaced(field, inner, value):
    changed = json.loads(json.dumps(GOOD))
    if inner and isinstance(changed[field], dict):
        changed[field][inner] = value
    else:
        changed[field] = value
    accepted_or_invalid(parse_config, json.dumps(changed).encode())


@pytest.mark.slow
@MANY
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_as_files(data):
    accepted_or_invalid(parse_config, data)
    accepted_or_invalid(parse_status, data)
    accepted_or_invalid(certificates, data)


@pytest.mark.slow
@MANY
@given(st.binary(max_size=80) | st.text(max_size=80))
def test_any_line_as_a_sample(line):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_sample(line), int)


def test_a_configuration_nested_too_deep():
    with pytest.raises(Invalid, match="not JSON"):
        parse_config(b'{"a":' * 1600)

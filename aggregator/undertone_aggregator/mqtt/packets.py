"""Packets of MQTT 3.1.1: splits a buffer into packets, parses them and builds them.

Section numbers are those of the OASIS standard of 29 October 2014.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from undertone_shared.errors import Invalid

CONNECT = 0x10
CONNACK = 0x20
PUBLISH = 0x30
PUBACK = 0x40
SUBSCRIBE = 0x82
SUBACK = 0x90
UNSUBSCRIBE = 0xA2
UNSUBACK = 0xB0
PINGREQ = 0xC0
PINGRESP = 0xD0
DISCONNECT = 0xE0

TYPE = 0xF0
RETAINED = 0x01
DUPLICATE = 0x08
QOS = 0x06
QOS1 = 0x02
FAILURE = 0x80
# Return codes of CONNACK (section 3.2.2.3).
ACCEPTED = 0
WRONG_LEVEL = 1
UNAVAILABLE = 3
NOT_AUTHORISED = 5

LARGEST = (1 << 28) - 1
# First bytes of a PUBACK before the packet identifier, and its whole length in bytes.
PUBACK_HEAD = bytes((PUBACK, 2))
PUBACK_BYTES = 4
_U16 = 0xFFFF
_CLEAN, _USER, _PASSWORD = 0x02, 0x80, 0x40
_WILL, _WILL_QOS, _WILL_RETAINED, _RESERVED = 0x04, 0x18, 0x20, 0x01
# Connect flags allowed to a device: clean session, no will (3.1.2.3). User and password are optional, because a device
# may show a certificate instead.
_DEVICE_FLAGS = (_CLEAN | _USER | _PASSWORD, _CLEAN | _USER, _CLEAN)

# (first byte, start of the body, end) of a packet in its buffer.
Packet = tuple[int, int, int]


class ProtocolError(Exception):
    """The other side broke the protocol, or asked for an unsupported feature, so the connection must be closed.

    ``reason``: a word under which the error is counted. ``code``: return code of the CONNACK that reports it, if any.
    """

    def __init__(self, reason: str, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.code = code


@dataclass(frozen=True)
class Connect:
    """The fields of a CONNECT packet that the server uses: the will is not among them."""

    client_id: str
    user: str
    password: str = field(repr=False)
    keepalive: int
    flags: int


def split(data: bytes, largest: int = LARGEST) -> tuple[list[Packet], int]:
    """Return (first byte, start of the body, end) of each complete packet, and where the incomplete rest begins.

    Raises ProtocolError for a body of more than ``largest`` bytes, or for a length that is written with more than four
    bytes, even if the packet is incomplete.
    """
    packets: list[Packet] = []
    add = packets.append
    at, end = 0, len(data)
    while end - at >= 2:
        size = data[at + 1]
        start = at + 2
        if size > 127:
            size, start = _length_at(data, at + 1)
            if not start:
                break
        if size > largest:
            raise ProtocolError("oversized", f"a packet has {size} bytes, expected at most {largest}")
        stop = start + size
        if stop > end:
            break
        add((data[at], start, stop))
        at = stop
    return packets, at


def _length_at(data: bytes, at: int) -> tuple[int, int]:
    """Return (length, start of the body) from the variable-length encoding at ``at`` (2.2.3).

    The start is 0 if the encoding is incomplete.
    """
    size = 0
    for i, byte in enumerate(data[at : at + 4]):
        size |= (byte & 127) << 7 * i
        if byte < 128:
            return size, at + i + 1
    if len(data) - at >= 4:
        raise ProtocolError("malformed", "a packet's length has more than 4 bytes")
    return size, 0


def topic_end(data: bytes, start: int, stop: int) -> int:
    """Return the end of the topic of a PUBLISH in ``data[start:stop]``.

    Raises ProtocolError if the topic does not fit (3.3.2).
    """
    end = start + 2 + (data[start] << 8 | data[start + 1]) if stop - start >= 2 else stop + 1
    if end > stop:
        raise ProtocolError("malformed", "a message's topic is longer than its packet")
    return end


def packet_id(data: bytes, start: int, stop: int) -> int:
    """Return the packet identifier at ``start``. Raises ProtocolError if it is missing or 0 (2.3.1)."""
    number = data[start] << 8 | data[start + 1] if stop - start >= 2 else 0
    if not number:
        raise ProtocolError("malformed", "a packet has no identifier")
    return number


def parse_connect(body: bytes) -> Connect:
    """Parse a CONNECT (3.1). Raises ProtocolError for another protocol than MQTT 3.1.1 and for a malformed packet."""
    name, at = _text(body, 0)
    if name != "MQTT" or len(body) < at + 4:
        raise ProtocolError("malformed", "a CONNECT does not begin with the name MQTT")
    level, flags, keepalive = struct.unpack_from(">BBH", body, at)
    if level != 4:
        raise ProtocolError("level", f"the protocol level is {level}, expected 4 (MQTT 3.1.1)", WRONG_LEVEL)
    if flags & _RESERVED or (flags & _PASSWORD and not flags & _USER):
        raise ProtocolError("flags", f"the CONNECT has the flags 0x{flags:02x}, which MQTT forbids")
    if (not flags & _WILL and flags & (_WILL_QOS | _WILL_RETAINED)) or flags & _WILL_QOS == _WILL_QOS:
        raise ProtocolError("flags", f"the CONNECT has the flags 0x{flags:02x}, which MQTT forbids")
    client_id, at = _text(body, at + 4)
    if flags & _WILL:
        _, at = _text(body, at)
        _, at = _field_at(body, at)
    user, at = _text(body, at) if flags & _USER else ("", at)
    password, at = _text(body, at) if flags & _PASSWORD else ("", at)
    if at != len(body):
        raise ProtocolError("malformed", "a CONNECT has more fields than its flags say")
    return Connect(client_id, user, password, keepalive, flags)


def check_device(asked: Connect) -> None:
    """Raise ProtocolError unless a device may connect in this way: with a clean session, a keepalive and no will.

    The packet may give user name and password, the user name alone, or neither.
    """
    if asked.flags not in _DEVICE_FLAGS:
        flags = f"connect flags 0x{asked.flags:02x}"
        raise ProtocolError("flags", f"{flags}, expected a clean session without a will")
    if not asked.keepalive:
        raise ProtocolError("keepalive", "keepalive is 0 s, expected 1 to 65535 s")


def parse_subscribe(body: bytes) -> tuple[int, list[tuple[str, int]]]:
    """Return (packet identifier, topic filters with the wanted QoS) of a SUBSCRIBE (3.8). Raises ProtocolError."""
    number = packet_id(body, 0, len(body))
    filters, at = [], 2
    while at < len(body):
        topic, at = _text(body, at)
        if at >= len(body) or body[at] > 2:
            raise ProtocolError("malformed", "a subscription has no QoS")
        filters.append((topic, body[at]))
        at += 1
    if not filters:
        raise ProtocolError("malformed", "a SUBSCRIBE names no topic filter")
    return number, filters


def parse_unsubscribe(body: bytes) -> tuple[int, list[str]]:
    """Return (packet identifier, topic filters) of an UNSUBSCRIBE (3.10). Raises ProtocolError."""
    number = packet_id(body, 0, len(body))
    filters, at = [], 2
    while at < len(body):
        topic, at = _text(body, at)
        filters.append(topic)
    if not filters:
        raise ProtocolError("malformed", "an UNSUBSCRIBE names no topic filter")
    return number, filters


def _field_at(body: bytes, at: int) -> tuple[bytes, int]:
    """Return (bytes, their end) of a length-prefixed field. Raises ProtocolError."""
    end = at + 2 + (body[at] << 8 | body[at + 1]) if len(body) - at >= 2 else len(body) + 1
    if end > len(body):
        raise ProtocolError("malformed", "a field is longer than its packet")
    return body[at + 2 : end], end


def _text(body: bytes, at: int) -> tuple[str, int]:
    """Return (text, its end) of a length-prefixed UTF-8 field (1.5.3). Raises ProtocolError, also for U+0000."""
    data, end = _field_at(body, at)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("malformed", "a field is not UTF-8") from None
    if "\0" in text:
        raise ProtocolError("malformed", "a field contains the character U+0000")
    return text, end


# --- Functions that build packets.


def connect(client_id: str, user: str, password: str, keepalive: int, *, clean: bool) -> bytes:
    """Return a CONNECT with user name and password (3.1). Raises Invalid for a field that does not fit."""
    flags = _USER | _PASSWORD | (_CLEAN if clean else 0)
    fields = _field("client identifier", client_id) + _field("user name", user) + _field("password", password)
    return _packet(CONNECT, struct.pack(">H4sBBH", 4, b"MQTT", 4, flags, keepalive) + fields)


def connack(code: int) -> bytes:
    """Return a CONNACK without the session-present flag (3.2)."""
    return bytes((CONNACK, 2, 0, code))


def subscribe(number: int, filters: Iterable[str]) -> bytes:
    """Return a SUBSCRIBE at QoS 1 (3.8)."""
    return _packet(SUBSCRIBE, struct.pack(">H", number) + b"".join(_field("topic", topic) + b"\1" for topic in filters))


def unsubscribe(number: int, filters: Iterable[str]) -> bytes:
    """Return an UNSUBSCRIBE (3.10)."""
    return _packet(UNSUBSCRIBE, struct.pack(">H", number) + b"".join(_field("topic", topic) for topic in filters))


def suback(number: int, codes: Sequence[int]) -> bytes:
    """Return a SUBACK with one return code per filter (3.9)."""
    return _packet(SUBACK, struct.pack(">H", number) + bytes(codes))


def unsuback(number: int) -> bytes:
    """Return an UNSUBACK (3.11)."""
    return _packet(UNSUBACK, struct.pack(">H", number))


def publish(topic: str, payload: bytes, *, retained: bool, number: int = 0) -> bytes:
    """Return a PUBLISH at QoS 0, or with a packet identifier ``number`` at QoS 1 (3.3)."""
    first = PUBLISH | (RETAINED if retained else 0) | (QOS1 if number else 0)
    identifier = struct.pack(">H", number) if number else b""
    return _packet(first, _field("topic", topic) + identifier + payload)


def report_head(topic: bytes, payload: int) -> tuple[bytes, int]:
    """Return (first bytes of a QoS 1 PUBLISH to ``topic`` up to its identifier, its length with ``payload`` bytes)."""
    body = struct.pack(">H", len(topic)) + topic
    whole = _packet(PUBLISH | QOS1, body + bytes(2 + payload))
    return whole[: len(whole) - 2 - payload], len(whole)


def puback(number: int) -> bytes:
    """Return a PUBACK (3.4)."""
    return PUBACK_HEAD + number.to_bytes(2, "big")


def pubacks(numbers: Iterable[int]) -> bytes:
    """Return one PUBACK per packet identifier, in one buffer."""
    return b"".join(map(puback, numbers))


PING = bytes((PINGREQ, 0))
PONG = bytes((PINGRESP, 0))
GOODBYE = bytes((DISCONNECT, 0))


def _packet(first: int, body: bytes) -> bytes:
    size, encoded = len(body), bytearray()
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    encoded.append(size)
    return bytes((first,)) + bytes(encoded) + body


def _field(name: str, value: str) -> bytes:
    data = value.encode()
    if len(data) > _U16:
        raise Invalid(f"{name} has {len(data)} bytes, expected at most {_U16}")
    return struct.pack(">H", len(data)) + data

"""MQTT 3.1.1 for devices, without a socket or a clock: it takes received bytes, and returns events and bytes to send.

Only what reports need is here: clean session, user name and password, a keepalive that is never 0, subscriptions at
QoS 0 (the campaign is retained), publications at QoS 1; no will, no QoS 2. Section numbers are those of the OASIS
standard of 29 October 2014. Times are ticks: milliseconds modulo 2^30.
"""

import struct

from undertone_device.core.slot_value import TICKS_MASK
from undertone_shared.campaign import HEADER_BYTES, LARGEST_BODY, SIGNATURE_BYTES
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    Event = tuple[str] | tuple[str, int] | tuple[str, str] | tuple[str, str, bytes | memoryview, bool]

CONNECTED = "connected"  # event ("connected",): the broker accepted the connection
MESSAGE = "message"  # event ("message", topic, payload, retained): a message arrived
ACKED = "acked"  # event ("acked", packet id): the broker acknowledged a publication
LOST = "lost"  # event ("lost", why), from transports only and once per connection: it has ended
DENIED = "denied"  # event ("denied", topic): the broker refused the subscription

DEFAULT_KEEPALIVE = 60
# Largest body of a PUBLISH that is read; a campaign message with a topic of up to 256 bytes fits into it.
LARGEST_PACKET = HEADER_BYTES + LARGEST_BODY + SIGNATURE_BYTES + 2 + 256
_U16 = 0xFFFF

_CONNACK = 0x20
_PUBLISH = 0x30
_PUBACK = 0x40
_SUBACK = 0x90
_PINGRESP = 0xD0
_DUPLICATE = 0x08
_QOS1 = 0x02
_RETAINED = 0x01

# Why a broker refuses a connection, by the CONNACK's return code. One text needs less of a board's memory than a list.
_REFUSALS = (
    "|it does not speak MQTT 3.1.1|it does not accept this client identifier|it is unavailable"
    "|bad user name or password|not authorised"
)


class ProtocolError(Exception):
    """The broker broke the protocol, refused the connection or fell silent: the connection must be closed."""


def _length(size: int) -> bytes:
    """Return the variable-length encoding of ``size`` (2.2.3)."""
    encoded = bytearray()
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _field(name: str, value: "str | bytes") -> bytes:
    """Return a length-prefixed field (1.5.3). Raises Invalid if it exceeds 65,535 bytes."""
    data = value.encode() if isinstance(value, str) else value
    if len(data) > _U16:
        raise Invalid("%s has %d bytes, expected at most %d" % (name, len(data), _U16))
    return struct.pack(">H", len(data)) + data


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + _length(len(body)) + body


def encode_connect(client_id: str, user: "str | None", password: "str | None", keepalive: int) -> bytes:
    """Encode CONNECT with a clean session (3.1).

    Raises Invalid for a keepalive outside 1 to 65,535, and for a text above 65,535 bytes.
    """
    check_integer("keepalive", keepalive, 1, _U16)
    flags = 0x02
    fields = _field("client identifier", client_id)
    if user is not None:
        flags |= 0x80
        fields += _field("user name", user)
        if password is not None:
            flags |= 0x40
            fields += _field("password", password)
    return _packet(0x10, struct.pack(">H4sBBH", 4, b"MQTT", 4, flags, keepalive) + fields)


def encode_subscribe(packet_id: int, topic: str) -> bytes:
    """Encode SUBSCRIBE to one topic at QoS 0 (3.8)."""
    return _packet(0x82, struct.pack(">H", packet_id) + _field("topic", topic) + b"\0")


def encode_publish(packet_id: int, topic: str, payload: bytes) -> bytes:
    """Encode PUBLISH at QoS 1, not retained, not a duplicate (3.3).

    Raises Invalid for a topic or a payload above 65,535 bytes.
    """
    check_integer("payload's length", len(payload), 0, _U16)
    return _packet(_PUBLISH | _QOS1, _field("topic", topic) + struct.pack(">H", packet_id) + payload)


class ClientSession:
    """One connection from CONNECT to its end; make a new session for the next connection.

    Calls queue packets; ``output()`` returns all of them as one buffer for one write. ``oversized`` counts messages
    that were skipped unread.
    """

    def __init__(self, keepalive: int = DEFAULT_KEEPALIVE, largest: int = LARGEST_PACKET):
        # After half the keepalive of silence the session pings; after another half without an answer it ends.
        self._quiet = check_integer("keepalive", keepalive, 1, _U16) * 500
        self.largest = largest
        self.connected = False
        self.oversized = 0
        self._id = 0
        self._unacked: dict[int, tuple[bytes, int]] = {}
        self._topics: dict[int, str] = {}
        self._output = b""
        self._sent = 0
        self._heard = 0
        self._pinged: int | None = None
        # Parser state: the packet's first byte (0 between packets), its length so far, then its body or the bytes to
        # skip.
        self._kind = 0
        self._size = 0
        self._scale = 1
        self._body: bytearray | None = None
        self._filled = 0
        self._skip = 0

    # Methods that send packets.

    def connect(self, client_id: str, user: "str | None", password: "str | None", now: int) -> None:
        """Queue CONNECT. Raises Invalid for fields that are too long."""
        self._heard = now
        self._queue(encode_connect(client_id, user, password, self._quiet // 500), now)

    def subscribe(self, topic: str, now: int) -> None:
        """Queue SUBSCRIBE; a refusal arrives as DENIED."""
        packet_id = self._next_id()
        self._topics[packet_id] = topic
        self._queue(encode_subscribe(packet_id, topic), now)

    def publish(self, topic: str, payload: bytes, now: int) -> int:
        """Queue PUBLISH; the returned packet id comes back in ACKED."""
        packet_id = self._next_id()
        packet = encode_publish(packet_id, topic, payload)
        self._unacked[packet_id] = (packet, now)
        self._queue(packet, now)
        return packet_id

    def disconnect(self, now: int) -> None:
        """Queue DISCONNECT."""
        self._queue(b"\xe0\0", now)

    def output(self) -> bytes:
        """Return the queued bytes in one buffer, and empty the queue."""
        output = self._output
        self._output = b""
        return output

    def check(self, now: int) -> None:
        """Ping after half a keepalive of silence, and repeat what was not acknowledged in one keepalive.

        Call it at least twice per keepalive. A repetition has the same packet id and bytes, and the duplicate flag.
        Raises ProtocolError if a ping has no answer in half a keepalive, because the connection is then half-open.
        """
        quiet = self._quiet
        if self._pinged is not None:
            if (now - self._pinged) & TICKS_MASK >= quiet:
                raise ProtocolError("the broker does not answer")
        elif (now - self._heard) & TICKS_MASK >= quiet or (now - self._sent) & TICKS_MASK >= quiet:
            self._pinged = now
            self._queue(b"\xc0\0", now)
        for packet_id in self._unacked:
            packet, sent = self._unacked[packet_id]
            if (now - sent) & TICKS_MASK >= 2 * quiet:
                packet = bytes((packet[0] | _DUPLICATE,)) + packet[1:]
                self._unacked[packet_id] = (packet, now)
                self._queue(packet, now)

    def _queue(self, packet: bytes, now: int) -> None:
        self._output += packet
        self._sent = now

    def _next_id(self) -> int:
        """Return the next id: 1 to 65,535, then 1 again.

        An id that waits for its acknowledgement is skipped (2.3.1).
        """
        packet_id = self._id
        while True:
            packet_id = packet_id % _U16 + 1
            if packet_id not in self._unacked and packet_id not in self._topics:
                self._id = packet_id
                return packet_id
            if packet_id == self._id:
                raise ProtocolError("65,535 packets wait for their acknowledgement")

    # Methods that receive packets.

    def receive(self, data: "bytes | bytearray | memoryview", now: int) -> "list[Event]":
        """Return the events that these bytes complete, in order. Raises ProtocolError; the session is over then."""
        self._heard = now
        events: list[Event] = []
        position = 0
        end = len(data)
        while position < end:
            if self._skip:
                step = min(self._skip, end - position)
                self._skip -= step
                position += step
            elif self._body is not None:
                step = min(len(self._body) - self._filled, end - position)
                self._body[self._filled : self._filled + step] = data[position : position + step]
                self._filled += step
                position += step
            else:
                self._header(data[position])
                position += 1
            body = self._body
            if body is not None and self._filled == len(body):
                self._body = None
                kind = self._kind
                self._kind = 0
                self._handle(kind, body, events)
        return events

    def _header(self, byte: int) -> None:
        if not self._kind:
            if not byte:
                raise ProtocolError("packet type 0")
            self._kind = byte
            self._size = 0
            self._scale = 1
            return
        self._size += (byte & 127) * self._scale
        if byte & 128:
            if self._scale == 1 << 21:
                raise ProtocolError("a packet's length field has more than 4 bytes")
            self._scale <<= 7
            return
        kind = self._kind
        size = self._size
        if kind & 0xF0 == _PUBLISH:
            if kind & 0x06:
                raise ProtocolError("the broker sent a message with QoS above 0")
            if size > self.largest:
                self._drop(size)
                return
        elif size > 4:
            raise ProtocolError("a wrong packet: type %d with %d bytes" % (kind >> 4, size))
        try:
            self._body = bytearray(size)
        except MemoryError:
            self._drop(size)
        self._filled = 0

    def _drop(self, size: int) -> None:
        self._kind = 0
        self._skip = size
        self.oversized += 1

    def _handle(self, kind: int, body: bytearray, events: "list[Event]") -> None:
        if not self.connected:
            self._handle_connack(kind, body)
            events.append((CONNECTED,))
        elif kind & 0xF0 == _PUBLISH:
            events.append(_message(kind, body))
        elif kind == _PUBACK and len(body) == 2:
            packet_id = body[0] << 8 | body[1]
            # A repeated packet may be acknowledged twice.
            if self._unacked.pop(packet_id, None) is not None:
                events.append((ACKED, packet_id))
        elif kind == _SUBACK and len(body) == 3:
            topic = self._topics.pop(body[0] << 8 | body[1], None)
            if topic is None:
                raise ProtocolError("the broker confirmed an unknown subscription")
            if body[2] > 2:
                events.append((DENIED, topic))
        elif kind == _PINGRESP and not body:
            self._pinged = None
        else:
            raise ProtocolError("a wrong packet: type %d with %d bytes" % (kind >> 4, len(body)))

    def _handle_connack(self, kind: int, body: bytearray) -> None:
        if kind != _CONNACK or len(body) != 2 or body[0] > 1:
            raise ProtocolError("the broker's first packet is not a CONNACK")
        code = body[1]
        if code:
            reasons = _REFUSALS.split("|")
            reason = reasons[code] if code < len(reasons) else "return code %d" % code
            raise ProtocolError("the broker refuses the connection: %s" % reason)
        self.connected = True


def _message(kind: int, body: bytearray) -> "Event":
    size = (body[0] << 8 | body[1]) if len(body) >= 2 else 0
    if not size or len(body) < 2 + size:
        raise ProtocolError("the topic of a message is empty or too long")
    try:
        topic = bytes(body[2 : 2 + size]).decode()
    except (UnicodeError, ValueError):
        raise ProtocolError("a topic is not UTF-8")
    # A memoryview is returned, because a copy of a campaign is too large for a board.
    return (MESSAGE, topic, memoryview(body)[2 + size :], bool(kind & _RETAINED))

"""A reader's session: it subscribes to what the access rules let it read. What it publishes is ignored.

While a reader takes no more bytes, only the newest message of each topic waits for it. Nothing is kept for a reader
that is not connected: when it comes back, it gets the retained messages.
"""

from collections.abc import Mapping
from typing import Protocol

from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.access import ReadRules
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.filters import check_filter, matches
from undertone_aggregator.mqtt.packets import ProtocolError
from undertone_shared.errors import Invalid

# Messages are added to a write while it has fewer bytes than this.
_WRITE_BYTES = 1 << 14
_U16 = 0xFFFF
# A SUBSCRIBE costs one token, and another for every so many comparisons of a filter with a topic.
_COMPARISONS = 10_000


class Outbound(Protocol):
    """The connection of a reader."""

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closed."""

    @property
    def pending(self) -> bool:
        """True if sent bytes wait for the other side to take them."""


class ReaderSession:
    """The session of one reader's connection. ``retained``: topic -> message, for new subscriptions.

    ``sent``: number of messages that no longer wait.
    """

    __slots__ = (
        "_filters",
        "_flying",
        "_granted",
        "_limits",
        "_number",
        "_retained",
        "_rules",
        "_unread",
        "_waiting",
        "_wire",
        "sent",
    )

    def __init__(self, wire: Outbound, rules: ReadRules, retained: Mapping[str, bytes], limits: Limits) -> None:
        self._wire = wire
        self._rules = rules
        self._retained = retained
        self._limits = limits
        # Filter -> QoS; and a cache of topic -> QoS of its messages, None if the reader does not get them.
        self._filters: dict[str, int] = {}
        self._granted: dict[str, int | None] = {}
        # Topic -> newest message that is not sent yet, and whether it was retained before the subscription.
        self._waiting: dict[str, tuple[bytes, bool]] = {}
        self.sent = 0
        self._number = 0
        # Number of bytes in answers to packets, counted from the last time at which the other side had taken all bytes.
        self._unread = 0
        # Packet identifiers without PUBACK.
        self._flying: set[int] = set()

    @property
    def blocked(self) -> bool:
        """True if messages wait until the reader takes bytes or acknowledges messages."""
        return bool(self._waiting)

    def handle(self, first: int, body: bytes) -> float:
        """Handle a packet; return how many tokens it costs. Raises ProtocolError."""
        kind, cost = first & packets.TYPE, 1.0
        if first == packets.PINGREQ and not body:
            self._answer(packets.PONG)
        elif first == packets.SUBSCRIBE:
            number, asked = packets.parse_subscribe(body)
            self._answer(packets.suback(number, [self._subscribe(topic, qos) for topic, qos in asked]))
            cost += len(asked) * (1 + len(self._retained)) / _COMPARISONS
            self._resend([topic for topic, _ in asked])
        elif first == packets.UNSUBSCRIBE:
            number, filters = packets.parse_unsubscribe(body)
            for topic in filters:
                self._filters.pop(topic, None)
            self._granted.clear()
            self._answer(packets.unsuback(number))
        elif first == packets.PUBACK and len(body) == 2:
            acknowledged = packets.packet_id(body, 0, 2)
            if acknowledged in self._flying:
                # A reader that only acknowledges what was sent to it is never slowed down.
                cost = 0.0
                self._flying.discard(acknowledged)
                self.pump()
        elif kind == packets.PUBLISH:
            self._drop(first, body)
        else:
            raise ProtocolError("packet", f"a packet of type {first >> 4}, which a reader does not send")
        return cost

    def offer(self, topic: str, payload: bytes) -> None:
        """Send a message if the reader has subscribed to it; keep it if it cannot be sent now."""
        if self._qos(topic) is not None:
            self._waiting[topic] = payload, False
            self.pump()

    def pump(self) -> None:
        """Send waiting messages as far as the reader takes them."""
        while self._waiting and not self._wire.pending:
            data = self._next()
            if not data:
                return
            self._wire.write(data)

    def _subscribe(self, topic: str, qos: int) -> int:
        """Return the return code of SUBACK: the granted QoS, or FAILURE."""
        try:
            check_filter(topic)
        except Invalid:
            return packets.FAILURE
        if not self._rules.may_subscribe(topic):
            return packets.FAILURE
        if topic not in self._filters and len(self._filters) >= self._limits.reader_subscriptions:
            return packets.FAILURE
        self._filters[topic] = min(qos, 1)
        self._granted.clear()
        return self._filters[topic]

    def _resend(self, filters: list[str]) -> None:
        """Send the retained messages of new subscriptions (3.8.4)."""
        asked = [topic for topic in filters if topic in self._filters]
        for topic, payload in self._retained.items():
            if any(matches(each, topic) for each in asked) and self._qos(topic) is not None:
                self._waiting[topic] = payload, True
        self.pump()

    def _qos(self, topic: str) -> int | None:
        """Return the largest QoS of the subscriptions to a topic; None without one, or if the topic may not be read."""
        if topic not in self._granted:
            wanted = [qos for each, qos in self._filters.items() if matches(each, topic)]
            self._granted[topic] = max(wanted) if wanted and self._rules.may_read(topic) else None
        return self._granted[topic]

    def _next(self) -> bytes:
        """Return the next packets, and remove their messages from those that wait."""
        data = bytearray()
        while self._waiting and len(data) < _WRITE_BYTES:
            topic = next(iter(self._waiting))
            qos = self._qos(topic)
            if qos and len(self._flying) >= self._limits.reader_flying:
                break
            payload, retained = self._waiting.pop(topic)
            self.sent += 1
            if qos is not None:
                data += packets.publish(topic, payload, retained=retained, number=self._identifier() if qos else 0)
        return bytes(data)

    def _identifier(self) -> int:
        while True:
            self._number = self._number % _U16 + 1
            if self._number not in self._flying:
                self._flying.add(self._number)
                return self._number

    def _answer(self, data: bytes) -> None:
        """Send the answer to a packet. Raises ProtocolError if too many answers wait for the reader to take them."""
        self._unread = self._unread + len(data) if self._wire.pending else 0
        if self._unread > self._limits.unread_bytes:
            raise ProtocolError("unread", "a reader sends packets and does not read the answers")
        self._wire.write(data)

    def _drop(self, first: int, body: bytes) -> None:
        """Acknowledge a publication and do nothing with it: Home Assistant announces its start in this way."""
        end = packets.topic_end(body, 0, len(body))
        if first & packets.QOS == packets.QOS1:
            self._answer(packets.puback(packets.packet_id(body, end, len(body))))
        elif first & packets.QOS:
            raise ProtocolError("qos", "a reader published with a QoS of 2 or more, expected 0 or 1")

"""The protocol of a subscriber's connection to a broker, without a socket: bytes in, deliveries and bytes out."""

from collections.abc import Sequence
from typing import cast

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.packets import ProtocolError, packet_id, split, topic_end

# A publication of more bytes than this cannot be a report. Its first bytes are handed over, and the rest is skipped
# unread. If the connection were closed instead, the broker would send the publication again for ever.
LARGEST_KEPT = (1 << 16) + 16
_SUBSCRIPTION = 1
_REFUSALS = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not accept this client identifier",
    3: "it is unavailable",
    4: "bad user name or password",
    5: "not authorised",
}


_PACKET = 0xFFFF
_REPEATED = 1 << 16
_CONNECTION = 17


def packet_of(delivery: Delivery) -> int:
    """Return the packet identifier of a delivery of a `Subscriber`; 0 at QoS 0."""
    return cast(int, delivery.receipt) & _PACKET


def is_repeated(delivery: Delivery) -> bool:
    """Return True if the broker had sent this delivery before."""
    return bool(cast(int, delivery.receipt) & _REPEATED)


def connection_of(delivery: Delivery) -> int:
    """Return the number of the connection by which a delivery came."""
    return cast(int, delivery.receipt) >> _CONNECTION


class Subscriber:
    """One connection to a broker, with the number ``connection``. Each new connection needs a new object.

    ``filters`` are subscribed at QoS 1 once the connection is ``accepted``, or unsubscribed with ``unsubscribe``.
    ``denied``: the broker refused the subscription. A delivery's topic is empty if it is not valid UTF-8. Times are in
    seconds.
    """

    def __init__(
        self, connection: int, filters: Sequence[str], keepalive: int, now: float, *, unsubscribe: bool = False
    ) -> None:
        self._connection = connection << _CONNECTION
        self._filters = list(filters)
        self._unsubscribe = unsubscribe
        self._keepalive = keepalive
        self._rest = b""
        self._skip = 0
        self._output = bytearray()
        self._heard = self._sent = now
        self._pinged: float | None = None
        self.accepted = False
        self.subscribed = False
        self.denied = False

    def connect(self, client_id: str, user: str, password: str) -> None:
        """Queue a CONNECT to a persistent session for sending."""
        self._output += packets.connect(client_id, user, password, self._keepalive, clean=False)

    def output(self, now: float) -> bytes:
        """Return the bytes to send, and forget them.

        They include a ping if nothing was sent, or nothing received, for half the keepalive. Raises ProtocolError if a
        ping or the CONNECT has had no answer for half the keepalive.
        """
        quiet = self._keepalive / 2
        if self._pinged is not None or not self.accepted:
            if now - (self._sent if self._pinged is None else self._pinged) >= quiet:
                raise ProtocolError("silent", "the broker does not answer")
        elif now - self._heard >= quiet or now - self._sent >= quiet:
            self._pinged = now
            self._output += packets.PING
        output = bytes(self._output)
        if output:
            self._output.clear()
            self._sent = now
        return output

    def receive(self, data: bytes, now: float) -> list[Delivery]:
        """Return the deliveries that these bytes complete. On ProtocolError the connection must be closed."""
        self._heard = now
        if self._skip:
            self._skip, data = max(0, self._skip - len(data)), data[self._skip :]
        if self._rest:
            data = self._rest + data
        whole, at = split(data)
        if not self.accepted and whole:
            self._handle_connack(data, whole.pop(0))
        received = self._deliveries(data, whole)
        self._rest = data[at:]
        if len(self._rest) > LARGEST_KEPT + 5:
            received += self._cut()
        return received

    def _deliveries(self, data: bytes, whole: list[packets.Packet]) -> list[Delivery]:
        """Return the deliveries of these complete packets, and handle the packets that are no deliveries."""

        received: list[Delivery] = []
        add, new, connection = received.append, tuple.__new__, self._connection
        for first, start, stop in whole:
            if first & packets.TYPE != packets.PUBLISH:
                self._handle(first, data, start, stop)
                continue
            end = at = topic_end(data, start, stop)
            receipt = connection
            if first & packets.QOS == packets.QOS1:
                receipt |= (first & packets.DUPLICATE) << 13 | packet_id(data, end, stop)
                at += 2
            elif first & packets.QOS:
                raise ProtocolError("qos", "a message with QoS 2, which was not asked for")
            try:
                topic = str(data[start + 2 : end], "utf-8")
            except UnicodeDecodeError:
                topic = ""
            add(new(Delivery, (topic, data[at:stop], first & packets.RETAINED == 1, receipt)))
        return received

    def _cut(self) -> list[Delivery]:
        """Return, as a delivery, the received part of a publication that is too large. The rest will be skipped."""
        data, self._rest = self._rest, b""
        if data[0] & packets.TYPE != packets.PUBLISH:
            raise ProtocolError("oversized", "a packet that is too large")
        start = 2 + sum(byte > 127 for byte in data[1:4])
        size = sum((byte & 127) << 7 * i for i, byte in enumerate(data[1:start]))
        self._skip = size - (len(data) - start)
        return self._deliveries(data, [(data[0], start, len(data))])

    def _handle_connack(self, data: bytes, packet: packets.Packet) -> None:
        first, start, stop = packet
        if first != packets.CONNACK or stop - start != 2 or data[start] > 1:
            raise ProtocolError("malformed", "the broker's first packet is not a CONNACK")
        code = data[start + 1]
        if code:
            raise ProtocolError("refused", _REFUSALS.get(code, f"return code {code}"))
        self.accepted = True
        encode = packets.unsubscribe if self._unsubscribe else packets.subscribe
        self._output += encode(_SUBSCRIPTION, self._filters)

    def _handle(self, first: int, data: bytes, start: int, stop: int) -> None:
        size = stop - start
        if first == packets.PINGRESP and not size:
            self._pinged = None
        elif first == packets.UNSUBACK and self._unsubscribe and size == 2:
            self.subscribed = True
        elif first == packets.SUBACK and not self._unsubscribe and size == 2 + len(self._filters):
            self.denied = max(data[start + 2 : stop]) >= packets.FAILURE
            self.subscribed = not self.denied
        else:
            raise ProtocolError("malformed", f"a packet of type {first >> 4} with {size} bytes")

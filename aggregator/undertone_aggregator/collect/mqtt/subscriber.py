"""A subscriber's side of one connection to a broker: bytes in, publications and bytes to send out."""

from collections.abc import Sequence
from typing import NamedTuple

from undertone_aggregator.collect.mqtt import packets
from undertone_aggregator.collect.mqtt.packets import ProtocolError, packet_id, split, topic_end

# A larger publication is no report. It is handed over cut to what has come of it, and its rest is skipped unread:
# to break off would bring it again for ever.
LARGEST_KEPT = (1 << 16) + 16
_SUBSCRIPTION = 1
_REFUSALS = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not accept this client identifier",
    3: "it is unavailable",
    4: "bad user name or password",
    5: "not authorised",
}


class Publication(NamedTuple):
    """A message as it came. ``topic`` is empty where it is not UTF-8; ``number``: 0 at QoS 0."""

    topic: str
    payload: bytes
    retained: bool
    number: int


class Subscriber:
    """One connection, from its CONNECT on; make a new one for the next. Times are seconds of a steady clock.

    ``filters`` are subscribed at QoS 1 once it is accepted, or given up with ``unsubscribe``. ``refusal``: the broker's
    sentence when it refused the connection or the subscription.
    """

    def __init__(self, filters: Sequence[str], keepalive: int, now: float, *, unsubscribe: bool = False) -> None:
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
        self.refusal: str | None = None

    def connect(self, client_id: str, user: str, password: str) -> None:
        """Queue the CONNECT to a persistent session."""
        self._output += packets.connect(client_id, user, password, self._keepalive, clean=False)

    def output(self, now: float) -> bytes:
        """Everything to send, once; a ping when the connection was silent for half the keepalive.

        Raises ProtocolError when a ping has had no answer for another half.
        """
        quiet = self._keepalive / 2
        if self._pinged is not None:
            if now - self._pinged >= quiet:
                raise ProtocolError("silent", "the broker does not answer")
        elif self.accepted and (now - self._heard >= quiet or now - self._sent >= quiet):
            self._pinged = now
            self._output += packets.PING
        output = bytes(self._output)
        if output:
            self._output.clear()
            self._sent = now
        return output

    def receive(self, data: bytes, now: float) -> list[Publication]:
        """The publications that these bytes complete. Raises ProtocolError; the connection is over then."""
        self._heard = now
        if self._skip:
            self._skip, data = max(0, self._skip - len(data)), data[self._skip :]
        if self._rest:
            data = self._rest + data
        whole, at = split(data)
        if not self.accepted and whole:
            self._handle_connack(data, whole.pop(0))
        received = self._publications(data, whole)
        self._rest = data[at:]
        if len(self._rest) > LARGEST_KEPT + 5:
            received += self._cut()
        return received

    def _publications(self, data: bytes, whole: list[packets.Packet]) -> list[Publication]:
        received: list[Publication] = []
        add = received.append
        for first, start, stop in whole:
            if first & packets.TYPE != packets.PUBLISH:
                self._handle(first, data, start, stop)
                continue
            end = at = topic_end(data, start, stop)
            number = 0
            if first & packets.QOS == packets.QOS1:
                number = packet_id(data, end, stop)
                at += 2
            elif first & packets.QOS:
                raise ProtocolError("qos", "a message with QoS 2, which was not asked for")
            # Decoded alone and without a call: this is the loop that every report goes through.
            try:
                topic = str(data[start + 2 : end], "utf-8")
            except UnicodeDecodeError:
                topic = ""
            add(Publication(topic, data[at:stop], first & 1 == 1, number))
        return received

    def _cut(self) -> list[Publication]:
        """What has come of a publication that is too large, handed over; the rest of it will be skipped."""
        data, self._rest = self._rest, b""
        if data[0] & packets.TYPE != packets.PUBLISH:
            raise ProtocolError("oversized", "a packet that is too large")
        start = 2 + sum(byte > 127 for byte in data[1:4])
        size = sum((byte & 127) << 7 * i for i, byte in enumerate(data[1:start]))
        self._skip = size - (len(data) - start)
        return self._publications(data, [(data[0], start, len(data))])

    def _handle_connack(self, data: bytes, packet: packets.Packet) -> None:
        first, start, stop = packet
        if first != packets.CONNACK or stop - start != 2 or data[start] > 1:
            raise ProtocolError("malformed", "the broker's first packet is not a CONNACK")
        code = data[start + 1]
        if code:
            self.refusal = f"the broker refused the connection: {_REFUSALS.get(code, f'return code {code}')}"
            raise ProtocolError("refused", self.refusal)
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
            self.subscribed = max(data[start + 2 : stop]) < packets.FAILURE
            if not self.subscribed:
                self.refusal = "the broker refused the subscription: its access rules must let this user read reports"
        else:
            raise ProtocolError("malformed", f"a packet of type {first >> 4} with {size} bytes")

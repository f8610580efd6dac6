"""The connection of one device or reader: the part of MQTT 3.1.1 that they need. Everything else is refused."""

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.reader import ReaderSession
from undertone_aggregator.mqtt.endpoint.shares import network_of
from undertone_aggregator.mqtt.endpoint.stream import Stream
from undertone_aggregator.mqtt.packets import (
    Connect,
    ProtocolError,
    check_device,
    parse_connect,
    parse_subscribe,
    split,
)
from undertone_shared import report

if TYPE_CHECKING:
    from undertone_aggregator.mqtt.endpoint.websocket import WebSocket

# A report's receipt: the connection that delivered the report, and the PUBACK packet that is due.
Receipt = tuple["Connection", bytes]
# State of a token bucket: its number of tokens, and the time in seconds at which they were counted.
Bucket = tuple[float, float]
# Placeholder for the queue until a connection has published.
_NOWHERE = Queue("")


class Host(Protocol):
    """What connections need of their owner; `Roster` is one.

    ``refused``, ``throttled``, ``unknown``: counters. ``retained``: topic -> newest retained message.
    """

    limits: Limits
    gate: Gate
    refused: Counter[str]
    throttled: int
    unknown: int
    retained: dict[str, bytes]
    # A function that returns the seconds of a monotonic clock. It is called for each report, so it is an attribute: a
    # method is slower.
    now: Callable[[], float]

    def route(self, user: str, topic: bytes) -> tuple[Queue | None, str]:
        """Return (the queue of the campaign named in ``topic``, the topic as text).

        The queue is None if the campaign is not served. The text is "" if this device may not report to the topic.
        """

    def subscribe(self, connection: "Connection", topic: str) -> bytes | None:
        """Subscribe the connection to a topic; return the retained message as a packet, or b"" if there is none.

        Return None if the connection may not subscribe to the topic.
        """

    def arrived(self, connection: "Connection") -> None:
        """Register a new connection that has not authenticated yet."""

    def full(self, connection: "Connection", user: str) -> bool:
        """Return True if the limit of connected devices, or of readers, leaves no room for this connection."""

    def entered(self, connection: "Connection") -> None:
        """Register the connection as that of an authenticated device or reader."""

    def left(self, connection: "Connection") -> None:
        """Remove a connection that was closed."""


class Connection:
    """One client connection, from accept to close. An unsupported request closes it, and the reason is counted.

    ``user`` is the device's or reader's name, "" until it has authenticated. ``waiting`` counts the reports without
    PUBACK. ``subscriptions``: the topics that a device has subscribed to. ``session``: the session of a reader, None
    for a device. ``client_id``: the client identifier of its CONNECT, or a unique text if that is empty. ``network``:
    see `network_of`. ``websocket``: True for MQTT over WebSocket. ``stalled``: True while the limits forbid reading.
    """

    __slots__ = (
        "_begun",
        "_filled_at",
        "_full",
        "_heard",
        "_host",
        "_keepalive",
        "_own",
        "_queue",
        "_report_head",
        "_report_length",
        "_rest",
        "_stream",
        "_stuck",
        "_tokens",
        "_topic",
        "client_id",
        "network",
        "session",
        "stalled",
        "subscriptions",
        "user",
        "waiting",
        "websocket",
    )

    def __init__(self, host: Host, stream: "Stream | WebSocket", address: str) -> None:
        self._host = host
        self._stream = stream
        self._rest = b""
        self._begun = self._heard = self._filled_at = host.now()
        self._tokens = float(host.limits.burst)
        self._keepalive = 0.0
        # For a reader for which messages wait: the number of messages sent to it, and the time of the first sweep that
        # saw this number. A later sweep that sees the same number knows since when nothing was sent.
        self._stuck = (-1, 0.0)
        # The device's own topic to which it published last, as text and as bytes, and the queue of its campaign.
        self._topic = ""
        self._own: bytes | None = None
        self._queue = _NOWHERE
        # The campaign's queue, if it had no room for this connection's next report; else None.
        self._full: Queue | None = None
        # How a report to the same topic as the last one begins, up to the packet identifier, and the report's length in
        # bytes.
        self._report_head = b""
        self._report_length = 0
        self.network = network_of(address)
        self.websocket = stream.websocket
        self.session: ReaderSession | None = None
        self.client_id = ""
        self.user = ""
        self.waiting = 0
        self.subscriptions: set[str] = set()
        self.stalled = False
        stream.reader = self
        host.arrived(self)

    # --- Methods that the stream calls.

    def received(self, data: bytes) -> None:
        """Handle the complete packets in the received bytes; keep the rest for later."""
        self._heard = now = self._host.now()
        if self._rest:
            data = self._rest + data
        elif self.user:
            self._begun = now
            if self._take_reports(data, now):
                return
        self._rest = data
        self._read()

    def ended(self, reason: str) -> None:
        """Note that the stream is closed: nothing more can be received or sent."""
        self._rest = b""
        if reason:
            self._host.refused[reason] += 1
        self._host.left(self)

    def drained(self) -> None:
        """Send what waits for a reader."""
        if self.session is not None:
            self.session.pump()

    # --- Methods that the host calls.

    @property
    def bucket(self) -> Bucket:
        """State of the token bucket that limits how many packets the device may send."""
        return self._tokens, self._filled_at

    @bucket.setter
    def bucket(self, bucket: Bucket) -> None:
        self._tokens, self._filled_at = bucket

    def acknowledge(self, pubacks: bytes, reports: int) -> None:
        """Send the PUBACKs of these committed reports in one write."""
        self.waiting -= reports
        self._stream.write(pubacks)
        if self.stalled:
            self.resume()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closed."""
        self._stream.write(data)

    @property
    def pending(self) -> bool:
        """True if sent bytes wait for the other side to take them."""
        return self._stream.pending

    def abort(self, reason: str) -> None:
        """Close the connection at once and count the reason."""
        self._stream.end(reason)

    def close(self) -> None:
        """Close the connection when all pending bytes are sent."""
        self._stream.close()

    def forget_route(self) -> None:
        """Forget the cached campaign, so that the next report looks it up again."""
        self._own, self._queue, self._full, self._report_length = None, _NOWHERE, None, 0

    def resume(self) -> None:
        """Continue reading after a pause, as far as the limits now allow."""
        if self._full is not None and len(self._full.waiting) >= self._host.limits.backlog:
            return
        if self.stalled and not self._stream.closed and self._may_send(now := self._host.now()):
            self.stalled, self._full = False, None
            self._heard = now
            self._stream.resume()
            self._read()

    def check(self, now: float) -> None:
        """Close the connection if a deadline has passed; resume a stalled connection if the limits allow it.

        There are deadlines for the CONNECT, the rest of a packet, the keepalive, and a reader that takes no messages.
        """
        limits = self._host.limits
        if not self.user:
            if now - self._begun > limits.connect_seconds:
                self.abort("slow_connect")
        elif self.stalled:
            self.resume()
        elif self._rest and now - self._begun > limits.packet_seconds:
            self.abort("slow_packet")
        elif now - self._heard > 1.5 * self._keepalive:
            self.abort("silent")
        elif self.session is not None and self.session.blocked:
            if self.session.sent != self._stuck[0]:
                self._stuck = self.session.sent, now
            elif now - self._stuck[1] > limits.reader_seconds:
                self.abort("unread")

    # --- Handling of packets.

    def _read(self) -> None:
        try:
            if not self.user and self._rest:
                self._handle_connect()
            if self.user and self._rest:
                self._handle_all()
        except ProtocolError as wrong:
            if wrong.code is None:
                self.abort(wrong.reason)
            else:
                self._host.refused[wrong.reason] += 1
                self.write(packets.connack(wrong.code))
                self.close()

    def _handle_connect(self) -> None:
        data = self._rest
        if data[0] != packets.CONNECT:
            raise ProtocolError("not_connect", "the first packet is not a CONNECT")
        whole, _ = split(data[: self._host.limits.connect_bytes + 5], self._host.limits.connect_bytes)
        if not whole:
            return
        _, start, stop = whole[0]
        asked = parse_connect(data[start:stop])
        user = self._admitted(asked)
        rules = self._host.gate.reader(user)
        if rules is None:
            check_device(asked)
        else:
            self.session = ReaderSession(self, rules, self._host.retained, self._host.limits)
            # Few messages wait for a reader at a time, but one of them may be large. So the number of unread bytes is
            # not limited.
            self._stream.unread = math.inf
        if self._host.full(self, user):
            raise ProtocolError("connections", "there is no room for more connections", packets.UNAVAILABLE)
        self.user = user
        # A client without an identifier gets a unique one. MQTT does not allow its null character in a client's own.
        self.client_id = asked.client_id or f"\0{id(self)}"
        # Keepalive 0 means that the client need not send pings. Only readers may ask for this.
        self._keepalive = asked.keepalive or math.inf
        self._rest = data[stop:]
        self._host.entered(self)
        self.write(packets.connack(packets.ACCEPTED))

    def _admitted(self, asked: Connect) -> str:
        """Return the name of the device or reader that connects.

        Raises ProtocolError for a wrong certificate or password.
        """
        gate, shown = self._host.gate, self._stream.certificate
        if shown is None:
            if gate.admits(asked.user, asked.password):
                return asked.user
            raise ProtocolError("password", "bad user name or password", packets.NOT_AUTHORISED)
        name, certificate = shown
        if asked.user in ("", name) and gate.admits_certificate(name, certificate):
            return name
        raise ProtocolError("certificate", f"not the certificate of {name!r}", packets.NOT_AUTHORISED)

    def _handle_all(self) -> None:
        """Handle the complete packets in `_rest`, as far as the connection's limits allow; keep the others there."""
        data = self._rest
        limits, session = self._host.limits, self.session
        whole, end = split(data, limits.packet_bytes if session is None else limits.reader_packet_bytes)
        at = 0
        for first, start, stop in whole:
            if not self._may_send(self._heard):
                self._stall()
                end = at
                break
            if first == packets.DISCONNECT:
                self.close()
                end = len(data)
                break
            cost = 1.0
            if session is not None:
                cost = session.handle(first, data[start:stop])
            elif first & packets.TYPE == packets.PUBLISH:
                if not self._handle_publish(data, first, start, stop):
                    self._stall()
                    end = at
                    break
            else:
                self._handle(data, first, start, stop)
            self._tokens -= cost
            at = stop
        if at:
            self._begun = self._heard
        self._rest = data[end:]

    def _take_reports(self, data: bytes, now: float) -> bool:
        """Handle the most frequent input without parsing it: complete reports to the cached topic, and nothing else.

        Return False, and handle nothing, for any other input, and if a limit does not allow all of the reports.
        """
        length, head, queue = self._report_length, self._report_head, self._queue
        if not length or len(data) % length:
            return False
        starts = range(0, len(data), length)
        reports = len(starts)
        if not self._may_send(now, reports) or len(queue.waiting) + reports > self._host.limits.backlog:
            return False
        number, payload, topic, deliveries = len(head), len(head) + 2, self._topic, []
        for at in starts:
            packet = data[at + number : at + payload]
            if packet == b"\0\0" or not data.startswith(head, at):
                return False
            receipt = self, packets.PUBACK_HEAD + packet
            deliveries.append(Delivery(topic, data[at + payload : at + length], False, receipt))
        self._tokens -= reports
        self.waiting += reports
        queue.put(deliveries)
        return True

    def _handle_publish(self, data: bytes, first: int, start: int, stop: int) -> bool:
        """Queue a report for its campaign; return False if the campaign's queue is full."""
        if first & packets.QOS != packets.QOS1:
            raise ProtocolError("qos", "a device published with another QoS, expected 1")
        end = packets.topic_end(data, start, stop)
        number = packets.packet_id(data, end, stop)
        name = data[start + 2 : end]
        queue, topic = (self._queue, self._topic) if name == self._own else self._route(name)
        if queue is None:
            # A PUBACK would promise that the report is counted, but none of this server's campaigns counts it.
            self._host.unknown += 1
            return True
        if len(queue.waiting) >= self._host.limits.backlog:
            self._full = queue
            return False
        self.waiting += 1
        retained = first & packets.RETAINED == packets.RETAINED
        queue.put([Delivery(topic, data[end + 2 : stop], retained, (self, packets.puback(number)))])
        return True

    def _route(self, name: bytes) -> tuple[Queue | None, str]:
        """Return `Host.route` of the topic ``name``; cache the result if the device may report to this topic."""
        queue, topic = self._host.route(self.user, name)
        if queue is not None and topic:
            self._own, self._topic, self._queue = name, topic, queue
            self._report_head, self._report_length = packets.report_head(name, report.LENGTH)
        return queue, topic

    def _handle(self, data: bytes, first: int, start: int, stop: int) -> None:
        if first == packets.PINGREQ and start == stop:
            self.write(packets.PONG)
        elif first == packets.SUBSCRIBE:
            number, filters = parse_subscribe(data[start:stop])
            retained = [self._host.subscribe(self, topic) for topic, _ in filters]
            answer = packets.suback(number, [packets.FAILURE if message is None else 0 for message in retained])
            self.write(answer + b"".join(message for message in retained if message))
        else:
            raise ProtocolError("packet", f"a packet of type {first >> 4}, which a device does not send")

    def _may_send(self, now: float, number: int = 1) -> bool:
        """Refill the token bucket, and return True if the limits allow ``number`` more packets."""
        host = self._host
        limits = host.limits
        tokens = self._tokens + (now - self._filled_at) * limits.per_second
        self._tokens = tokens if tokens < limits.burst else limits.burst
        self._filled_at = now
        return self._tokens >= number and self.waiting + number <= limits.unacknowledged

    def _stall(self) -> None:
        self.stalled = True
        self._host.throttled += 1
        self._stream.pause()

"""One device's connection: MQTT 3.1.1 as far as reports need it, and nothing else of it."""

from collections import Counter
from collections.abc import Callable, Sized
from typing import Protocol

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.stream import Stream
from undertone_aggregator.mqtt.packets import Connect, ProtocolError, parse_connect, parse_subscribe, split
from undertone_shared import report

# Who delivered, and the PUBACK that is due.
Receipt = tuple["Connection", bytes]
# Tokens, and when there were so many.
Bucket = tuple[float, float]


class Host(Protocol):
    """What connections ask of where they are. ``refused``, ``throttled``: counters."""

    limits: Limits
    gate: Gate
    config_topic: str
    retained: bytes
    refused: Counter[str]
    throttled: int
    # What waits for the store.
    backlog: Sized
    # Called for each report, hence no methods: seconds of a steady clock, and a report for the next batch.
    now: Callable[[], float]
    deliver: Callable[[Delivery], None]

    def topic_of(self, user: str) -> str:
        """The topic of a device's reports."""

    def arrived(self, connection: "Connection") -> None:
        """Take in a stranger."""

    def full(self, user: str) -> bool:
        """Whether there is no room for this device."""

    def entered(self, connection: "Connection") -> None:
        """It is a device."""

    def left(self, connection: "Connection") -> None:
        """It is closed."""


class Connection:
    """From accept to its end. Whatever is not offered ends it, with a counted reason.

    ``user`` is the device, "" until it has shown who it is. ``waiting`` counts its reports without PUBACK.
    """

    __slots__ = (
        "_begun",
        "_filled_at",
        "_heard",
        "_host",
        "_keepalive",
        "_own",
        "_report_head",
        "_report_length",
        "_rest",
        "_stream",
        "_tokens",
        "_topic",
        "address",
        "stalled",
        "subscribed",
        "user",
        "waiting",
    )

    def __init__(self, host: Host, stream: Stream, address: str) -> None:
        self._host = host
        self._stream = stream
        self._rest = b""
        self._begun = self._heard = self._filled_at = host.now()
        self._tokens = float(host.limits.burst)
        self._keepalive = 0
        # The one topic that it may publish to, as text and as bytes.
        self._topic = ""
        self._own = b""
        # How a report of its own begins, up to the packet identifier, and its length.
        self._report_head = b""
        self._report_length = 0
        self.address = address
        self.user = ""
        self.waiting = 0
        self.subscribed = False
        self.stalled = False
        stream.reader = self
        host.arrived(self)

    # --- what the stream calls

    def received(self, data: bytes) -> None:
        """Take packets, as far as they are whole."""
        self._heard = now = self._host.now()
        if self._rest:
            data = self._rest + data
        elif self.user:
            self._begun = now
            if len(data) == self._report_length and data.startswith(self._report_head) and self._may_send(now):
                self._take_report(data)
                return
        self._rest = data
        self._read()

    def ended(self, reason: str) -> None:
        """Nothing more comes, and nothing can be sent."""
        self._rest = b""
        if reason:
            self._host.refused[reason] += 1
        self._host.left(self)

    # --- what its host calls

    @property
    def bucket(self) -> Bucket:
        """What its device may still send at once."""
        return self._tokens, self._filled_at

    @bucket.setter
    def bucket(self, bucket: Bucket) -> None:
        self._tokens, self._filled_at = bucket

    def acknowledge(self, pubacks: bytes, reports: int) -> None:
        """These reports are committed: one write for all of them."""
        self.waiting -= reports
        self._stream.write(pubacks)
        if self.stalled:
            self.resume()

    def write(self, data: bytes) -> None:
        """Send, unless it is over."""
        self._stream.write(data)

    def abort(self, reason: str) -> None:
        """End it at once, and count why."""
        self._stream.end(reason)

    def close(self) -> None:
        """End it when everything is sent."""
        self._stream.close()

    def resume(self) -> None:
        """Read on where it was stalled, as far as its limits allow by now."""
        if self.stalled and not self._stream.closed and self._may_send(now := self._host.now()):
            self.stalled = False
            self._heard = now
            self._stream.resume()
            self._read()

    def check(self, now: float) -> None:
        """End it if it has overrun a deadline: of its CONNECT, of a packet that it began, of its keepalive."""
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

    # --- packets

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
        if self._host.full(user):
            raise ProtocolError("connections", "as many devices as there may be", packets.UNAVAILABLE)
        self.user = user
        self._keepalive = asked.keepalive
        self._topic = self._host.topic_of(self.user)
        self._own = self._topic.encode()
        self._report_head, self._report_length = packets.report_head(self._own, report.LENGTH)
        self._rest = data[stop:]
        self._host.entered(self)
        self.write(packets.connack(packets.ACCEPTED))

    def _admitted(self, asked: Connect) -> str:
        """The device that asks. Raises ProtocolError for a certificate or a password that is not that device's."""
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
        """Every whole packet, until its limits stop it: what is left then stays unread."""
        data = self._rest
        whole, end = split(data, self._host.limits.packet_bytes)
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
            self._tokens -= 1
            if first & packets.TYPE == packets.PUBLISH:
                self._handle_publish(data, first, start, stop)
            else:
                self._handle(data, first, start, stop)
            at = stop
        if at:
            self._begun = self._heard
        self._rest = data[end:]

    def _take_report(self, data: bytes) -> None:
        """What devices send nearly always, without taking it apart: one report, whole and alone."""
        at = len(self._report_head)
        number = data[at : at + 2]
        if number == b"\0\0":
            self.abort("malformed")
            return
        self._tokens -= 1
        self.waiting += 1
        self._host.deliver(Delivery(self._topic, data[at + 2 :], False, (self, packets.PUBACK_HEAD + number)))

    def _handle_publish(self, data: bytes, first: int, start: int, stop: int) -> None:
        if first & packets.QOS != packets.QOS1:
            raise ProtocolError("qos", "a publication that is not at QoS 1")
        end = packets.topic_end(data, start, stop)
        number = packets.packet_id(data, end, stop)
        # What a broker's access rules would drop is counted under no topic, and never as its owner's.
        topic = self._topic if data[start + 2 : end] == self._own else ""
        self.waiting += 1
        retained = first & packets.RETAINED == packets.RETAINED
        self._host.deliver(Delivery(topic, data[end + 2 : stop], retained, (self, packets.puback(number))))

    def _handle(self, data: bytes, first: int, start: int, stop: int) -> None:
        if first == packets.PINGREQ and start == stop:
            self.write(packets.PONG)
        elif first == packets.SUBSCRIBE:
            number, filters = parse_subscribe(data[start:stop])
            granted = [topic == self._host.config_topic for topic in filters]
            answer = packets.suback(number, [0 if yes else packets.FAILURE for yes in granted])
            if any(granted):
                self.subscribed = True
                answer += self._host.retained
            self.write(answer)
        else:
            raise ProtocolError("packet", f"a packet of type {first >> 4}, which devices have no use for")

    def _may_send(self, now: float) -> bool:
        host = self._host
        limits = host.limits
        tokens = self._tokens + (now - self._filled_at) * limits.per_second
        self._tokens = tokens if tokens < limits.burst else limits.burst
        self._filled_at = now
        return tokens >= 1 and self.waiting < limits.unacknowledged and len(host.backlog) < limits.backlog

    def _stall(self) -> None:
        self.stalled = True
        self._host.throttled += 1
        self._stream.pause()

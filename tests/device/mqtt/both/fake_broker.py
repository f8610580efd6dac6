"""A broker and a network in memory. Tests let them fail while a client uses them, under every interpreter."""


class FakeBroker:
    """Answers one client at a time.

    ``published`` holds (packet id, duplicate, topic, payload). Faults: ``refuse`` is CONNACK's return code;
    ``unreachable`` makes connecting fail; ``silent`` ignores all packets; with ``acknowledges`` False there are no
    PUBACKs; ``denies`` refuses subscriptions.
    """

    def __init__(self):
        self.retained = {}
        self.published = []
        self.connects = []
        self.subscribed = []
        self.pings = 0
        self.refuse = 0
        self.unreachable = False
        self.silent = False
        self.acknowledges = True
        self.denies = False
        self.stream = None

    def open(self):
        """Connect. A transport calls this function."""
        if self.unreachable:
            raise OSError(111)
        self.stream = FakeStream(self)
        return self.stream

    def drop(self):
        """End the connection as a killed broker does."""
        self.stream.ended = True

    def payloads(self):
        return [entry[3] for entry in self.published]

    def send(self, topic, payload, first=0x31):
        """Send a message to the client."""
        name = topic.encode()
        self.stream.incoming += packet(first, bytes((len(name) >> 8, len(name) & 255)) + name + payload)

    def handle(self, first, body):
        if self.silent:
            return
        kind = first & 0xF0
        if kind == 0x10:
            self.connects.append(body)
            self.stream.incoming += bytes((0x20, 2, 0, self.refuse))
        elif kind == 0x80:
            topic = body[4:-1].decode()
            self.subscribed.append(topic)
            self.stream.incoming += bytes((0x90, 3, body[0], body[1], 0x80 if self.denies else 0))
            if topic in self.retained and not self.denies:
                self.send(topic, self.retained[topic])
        elif kind == 0x30:
            size = body[0] << 8 | body[1]
            packet_id = body[2 + size] << 8 | body[3 + size]
            self.published.append((packet_id, bool(first & 8), body[2 : 2 + size].decode(), body[4 + size :]))
            if self.acknowledges:
                self.stream.incoming += bytes((0x40, 2, packet_id >> 8, packet_id & 255))
        elif kind == 0xC0:
            self.pings += 1
            self.stream.incoming += b"\xd0\0"


def packet(first, body):
    """A packet with this first byte and body."""
    size = len(body)
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes((first,)) + bytes(length) + body


def split(data):
    """([(first byte, body)], the rest) of a stream of bytes."""
    packets = []
    start = 0
    while True:
        size = 0
        scale = 1
        i = start + 1
        while i < len(data):
            size += (data[i] & 127) * scale
            scale <<= 7
            i += 1
            if data[i - 1] < 128:
                break
        else:
            return packets, data[start:]
        if i + size > len(data):
            return packets, data[start:]
        packets.append((data[start], bytes(data[i : i + size])))
        start = i + size


class FakeStream:
    """The client's end of the connection. ``room`` bounds what one write takes, ``piece`` what one read returns."""

    def __init__(self, broker):
        self.broker = broker
        self.incoming = b""
        self.ended = False
        self.closed = False
        self.reached = True
        self.room = None
        self.piece = 512
        self.writes = []
        self.waits = []
        self._rest = b""

    def read(self, buffer):
        if not self.incoming:
            return 0 if self.ended else None
        count = min(len(buffer), len(self.incoming), self.piece)
        buffer[:count] = self.incoming[:count]
        self.incoming = self.incoming[count:]
        return count

    def write(self, data):
        if self.ended:
            raise OSError(32)
        if self.room == 0:
            return None
        taken = bytes(data if self.room is None else data[: self.room])
        self.writes.append(taken)
        packets, self._rest = split(self._rest + taken)
        for first, body in packets:
            self.broker.handle(first, body)
        return len(taken)

    def wait(self, milliseconds, writing):
        self.waits.append((milliseconds, writing))

    def close(self):
        self.closed = True

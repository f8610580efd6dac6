"""The transport of boards: an MQTT session over any non-blocking byte stream."""

from undertone_device.core.slot_value import TICKS_MASK
from undertone_device.mqtt.packets import DEFAULT_KEEPALIVE, LOST, ClientSession, ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from undertone_device.mqtt.packets import Event
    from undertone_device.mqtt.protocols import ByteStream

# One deadline for the TLS handshake and the answer to CONNECT together, from the moment at which the stream is open.
ANSWER_MILLISECONDS = 30000
_BUFFER_BYTES = 512
_READS = 32


class SessionTransport:
    """A `Transport` over the byte stream that ``open_stream()`` returns.

    ``ticks``: milliseconds modulo 2^30. ``places``: addresses that ``open_stream`` reads, see `Transport`. Events are
    those of `packets`, and ("lost", why) once per connection.
    """

    def __init__(
        self,
        open_stream: "Callable[[], ByteStream]",
        ticks: "Callable[[], int]",
        client_id: str,
        user: "str | None" = None,
        password: "str | None" = None,
        keepalive: int = DEFAULT_KEEPALIVE,
        places: "list[tuple[str, int]] | None" = None,
    ):
        self.places = places or [("", 0)]
        self.configured = self.places[-1]
        self._tried = False
        self.open_stream = open_stream
        self.ticks = ticks
        self._credentials = (client_id, user, password)
        self.keepalive = keepalive
        self._buffer = bytearray(_BUFFER_BYTES)
        self._line: ByteStream | None = None
        self._session = ClientSession(keepalive)
        self._pending: memoryview | None = None
        self._opened = 0
        self.oversized = 0
        self.reached = False

    def connect(self) -> None:
        """Open the stream and send CONNECT; ("connected",) or ("lost", why) follows. Raises OSError."""
        self._drop()
        if self._tried and not self._session.connected:
            self.places.append(self.places.pop(0))
        self._tried = True
        self._session = ClientSession(self.keepalive)
        self.reached = False
        self._line = self.open_stream()
        self._opened = self.ticks()
        client_id, user, password = self._credentials
        self._session.connect(client_id, user, password, self._opened)

    def subscribe(self, topic: str) -> None:
        """Subscribe to a topic."""
        self._session.subscribe(topic, self.ticks())

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message; its token comes back in ("acked", token)."""
        return self._session.publish(topic, payload, self.ticks())

    def poll(self, milliseconds: int) -> "list[Event]":
        """Send, wait for at most ``milliseconds``, read until a read completes a message, and return its events.

        Nothing more is read then, because a board has no memory for two campaigns at once.
        """
        stream = self._line
        if not stream:
            return []
        events: list[Event] = []
        try:
            self._flush(stream)
            # TLS may hold bytes that the last poll did not read; ``wait`` would not notice them.
            self._receive(stream, events)
            if not events:
                stream.wait(milliseconds, self._pending is not None)
                self._receive(stream, events)
            now = self.ticks()
            if not self._session.connected and (now - self._opened) & TICKS_MASK > ANSWER_MILLISECONDS:
                raise ProtocolError("the broker does not answer")
            self._session.check(now)
            self._flush(stream)
        except (OSError, ProtocolError) as error:
            self.reached = stream.reached
            self._drop()
            events.append((LOST, str(error)))
        return events

    def close(self) -> None:
        """Send DISCONNECT and release the descriptor."""
        if self._line is not None and self._session.connected:
            self._session.disconnect(self.ticks())
            try:
                self._flush(self._line)
            except OSError:
                pass
        self._drop()

    def _drop(self) -> None:
        self.oversized += self._session.oversized
        self._session.oversized = 0
        self._pending = None
        if self._line is not None:
            self._line.close()
            self._line = None

    def _flush(self, stream: "ByteStream") -> None:
        while True:
            if self._pending is None:
                output = self._session.output()
                if not output:
                    return
                self._pending = memoryview(output)
            count = stream.write(self._pending)
            if count is None:
                return
            # After a refused write TLS requires exactly the same bytes again, so nothing is added to them.
            self._pending = self._pending[count:] if count < len(self._pending) else None

    def _receive(self, stream: "ByteStream", events: "list[Event]") -> None:
        view = memoryview(self._buffer)
        for _ in range(_READS):
            count = stream.read(self._buffer)
            if count is None:
                return
            if not count:
                raise OSError("the broker closed the connection")
            events.extend(self._session.receive(view[:count], self.ticks()))
            if events:
                return

"""What the client asks of its connection. For type checkers and readers: no device loads this."""

from typing import Any, Protocol


class Transport(Protocol):
    """An MQTT connection; no call blocks longer than it says. Events are those of `packets`."""

    oversized: int

    def connect(self) -> None:
        """Begin a connection; ("connected",) or ("lost", why) follows. Raises OSError if it has failed at once."""

    def subscribe(self, topic: str) -> None:
        """Ask for a topic's messages."""

    def publish(self, topic: str, payload: bytes) -> int:
        """Hand a message over at QoS 1; the token comes back in ("acked", token)."""

    def poll(self, milliseconds: int) -> "list[Any]":
        """Send, wait for at most this long, receive: the events since."""

    def close(self) -> None:
        """Say goodbye and release the descriptor."""


class ByteStream(Protocol):
    """A connected byte stream that never blocks."""

    def read(self, buffer: bytearray) -> "int | None":
        """Bytes read, 0 at the end of the stream, None if there are none now. Raises OSError."""

    def write(self, data: memoryview) -> "int | None":
        """Bytes taken, None if there is no room now; then repeat with the same data. Raises OSError."""

    def wait(self, milliseconds: int, writing: bool) -> None:
        """Until there is something to read (or room to write), at most this long."""

    def close(self) -> None:
        """Release the descriptor."""

"""Interfaces of the client's configuration and connection. For type checkers and readers: no device loads this."""

from typing import Any, Protocol


class ClientSettings(Protocol):
    """What a client reads of the device's configuration, `undertone_device.setup.config.DeviceConfig`."""

    prefix: str
    # Names of the campaigns to whose config topics the client subscribes; a hand-over changes them.
    campaigns: "tuple[str, ...]"
    # The client reads the sensor once in this many seconds; 0 means once per slot.
    sample_seconds: int
    # The client spreads its reports over this share of the following slot, in percent.
    spread_percent: int
    # Largest number of reports without PUBACK at a time.
    in_flight: int


class Transport(Protocol):
    """An MQTT connection; no call blocks longer than stated. Events are those of `packets`."""

    oversized: int
    # True if a server answered the last ``connect``, whether or not it let the device in.
    reached: bool
    # Addresses (host, port). The first one is tried next; an address that does not accept the connection goes to the
    # end. ``configured`` is the one in the device's own configuration.
    places: "list[tuple[str, int]]"
    configured: "tuple[str, int]"

    def connect(self) -> None:
        """Begin a connection; ("connected",) or ("lost", why) follows. Raises OSError if it fails at once."""

    def subscribe(self, topic: str) -> None:
        """Subscribe to a topic."""

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message at QoS 1; its token comes back in ("acked", token)."""

    def poll(self, milliseconds: int) -> "list[Any]":
        """Send, wait for at most ``milliseconds``, receive; return the events since the last call."""

    def close(self) -> None:
        """Send DISCONNECT and release the descriptor."""


class ByteStream(Protocol):
    """A byte stream that never blocks. ``reached``: True once a server has answered at its address."""

    reached: bool

    def read(self, buffer: bytearray) -> "int | None":
        """Read into ``buffer``: return the number of bytes, 0 at the end of the stream, None if there are none now.

        Raises OSError.
        """

    def write(self, data: memoryview) -> "int | None":
        """Return the number of bytes that were taken. None means no room now: then call again with the same data.

        Raises OSError.
        """

    def wait(self, milliseconds: int, writing: bool) -> None:
        """Wait at most ``milliseconds`` until there is something to read or, if ``writing``, room to write."""

    def close(self) -> None:
        """Release the descriptor."""

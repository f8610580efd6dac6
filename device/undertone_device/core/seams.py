"""What the client asks of the objects it is given. For type checkers and readers: a device never loads this module."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertone_shared.campaign import Campaign


# What a sensor gives: a number, or a number for each coordinate.
Sample = int | tuple[int, ...]


class Value(Protocol):
    """What accumulates a slot's samples."""

    measure: str

    def add(self, sample: "Sample", ticks: int) -> None:
        """Take one sample. Raises Invalid."""

    def add_many(self, samples: "Sequence[Sample]", ticks: int) -> None:
        """Take a buffer of samples. Raises Invalid."""

    def close(self, ticks: int) -> "Sample | None":
        """The slot's value, None if nothing was sampled; the next slot starts empty."""


class Carried(Protocol):
    """What one kind of rule carries, counts and charges from report to report."""

    def lost(self, now: int) -> None:
        """The ledger was lost: what it may have counted is spent."""

    def charge(self, campaign: "Campaign", now: int) -> None:
        """Charge the campaign as a whole. Raises Refused."""

    def restart(self) -> None:
        """Another campaign is the current one."""

    def forget(self) -> None:
        """Carry nothing on."""

    def obstacle(self, campaign: "Campaign", slot: int) -> "str | None":
        """One word why this kind may not draw the slot, or None."""

    def draw(self, campaign: "Campaign", slot: int, reading: "tuple[int, ...]") -> "tuple[tuple[int, ...], int]":
        """(values, chain index) of the slot's report. Raises EntropyError."""


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


class Stream(Protocol):
    """A connected byte stream that never blocks."""

    def read(self, buffer: bytearray) -> "int | None":
        """Bytes read, 0 at the end of the stream, None if there are none now. Raises OSError."""

    def write(self, data: memoryview) -> "int | None":
        """Bytes taken, None if there is no room now; then repeat with the same data. Raises OSError."""

    def wait(self, milliseconds: int, writing: bool) -> None:
        """Until there is something to read (or room to write), at most this long."""

    def close(self) -> None:
        """Release the descriptor."""

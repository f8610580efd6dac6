"""Intake: the protocol by which ingest gets deliveries, wherever they come from."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Delivery(NamedTuple):
    """One message as it arrived, unchecked.

    ``receipt``: what the intake needs to acknowledge this delivery; only the intake uses it.
    """

    topic: str
    payload: bytes
    retained: bool
    receipt: object = None


class Intake(Protocol):
    """A source that keeps unacknowledged messages and delivers them again. One thread uses it."""

    @property
    def ready(self) -> bool:
        """True if the source queues reports for this server, even while the server is away."""

    def take(self, seconds: float) -> Sequence[Delivery]:
        """Return the next batch, waiting up to ``seconds`` for its first delivery; empty if none arrived.

        The intake limits the batch in number and time. No content of a message raises an error. A lost connection
        raises none either, because the intake connects again by itself.
        """

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge some of the deliveries that ``take`` returned, after they were committed.

        If this fails, they are delivered again.
        """

    def close(self) -> None:
        """Disconnect from the source, which continues to queue reports. Unacknowledged messages are delivered again."""

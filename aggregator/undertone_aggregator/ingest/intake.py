"""Intake: the source of deliveries. Ingest uses only this protocol."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Delivery(NamedTuple):
    """One message as it arrived, without any check.

    ``receipt`` belongs to the intake, which needs it to acknowledge this delivery.
    """

    topic: str
    payload: bytes
    retained: bool
    receipt: object = None


class Intake(Protocol):
    """A source that stores unacknowledged deliveries and delivers them again. Only one thread uses it."""

    @property
    def ready(self) -> bool:
        """True if the source stores reports for us from now on, also while we are disconnected."""

    def take(self, seconds: float) -> Sequence[Delivery]:
        """Return the next batch, waiting up to ``seconds`` for its first delivery; empty if none came.

        The intake limits the batch in number and time. It does not raise for the content of a message or a lost
        connection: it reconnects by itself.
        """

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge these deliveries, a part of a batch of ``take``, after their commit.

        If it fails, they are redelivered.
        """

    def close(self) -> None:
        """Disconnect from the source, which goes on storing reports for us. Unacknowledged deliveries come again."""

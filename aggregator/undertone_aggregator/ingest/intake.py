"""Intake: where deliveries come from. Ingest knows nothing of it but this protocol."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Delivery(NamedTuple):
    """One message as it arrived; none of it is checked.

    ``receipt`` is the intake's own: what it needs to acknowledge this delivery.
    """

    topic: str
    payload: bytes
    retained: bool
    receipt: object = None


class Intake(Protocol):
    """A source that keeps what is not acknowledged and delivers it again. Used by one thread."""

    @property
    def ready(self) -> bool:
        """Whether the source keeps reports for us from now on, also while we are away."""

    def take(self, seconds: float) -> Sequence[Delivery]:
        """The next batch, waiting up to ``seconds`` for its first delivery; empty when none came.

        The intake bounds the batch in number and time. Nothing that a message holds raises in here, and no loss of
        the connection does: the intake connects again by itself.
        """

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """These deliveries, a part of what ``take`` gave, are committed. Where it fails they come again."""

    def close(self) -> None:
        """Let go of the source, which goes on keeping reports for us. What was not acknowledged comes again."""

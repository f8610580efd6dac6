"""An intake from a list: a `undertone_aggregator.ingest.intake.Intake`, with further methods for tests."""

from collections.abc import Iterable, Sequence

from undertone_aggregator.ingest.intake import Delivery


class ListIntake:
    """Delivers the list in batches. After ``break_connection``, it delivers again what was not acknowledged."""

    def __init__(self, deliveries: Iterable[Delivery], batch: int = 1000) -> None:
        self._kept = {n: delivery._replace(receipt=n) for n, delivery in enumerate(deliveries)}
        self._batch = batch
        self._next = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether the intake is ready: always."""
        return True

    @property
    def waiting(self) -> int:
        """The number of deliveries that are not acknowledged."""
        return len(self._kept)

    def take(self, seconds: float) -> list[Delivery]:
        """Return the next deliveries of the list at once."""
        batch = [delivery for n, delivery in self._kept.items() if n >= self._next][: self._batch]
        self._next += len(batch)
        return batch

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Forget these deliveries."""
        for delivery in deliveries:
            del self._kept[int(str(delivery.receipt))]

    def break_connection(self) -> None:
        """Deliver everything again that is not acknowledged."""
        self._next = min(self._kept, default=self._next)

    def close(self) -> None:
        """Set ``closed``, which a test may ask for."""
        self.closed = True

"""An intake from a list: what `undertone_aggregator.ingest.intake.Intake` asks for, and no more."""

from collections.abc import Iterable, Sequence

from undertone_aggregator.ingest.intake import Delivery


class ListIntake:
    """Delivers the list in batches, again after ``break_connection`` what was not acknowledged."""

    def __init__(self, deliveries: Iterable[Delivery], batch: int = 1000) -> None:
        self._kept = {n: delivery._replace(receipt=n) for n, delivery in enumerate(deliveries)}
        self._batch = batch
        self._next = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    @property
    def waiting(self) -> int:
        """Deliveries that are not acknowledged."""
        return len(self._kept)

    def take(self, seconds: float) -> list[Delivery]:
        """The next ones of the list, at once."""
        batch = [delivery for n, delivery in self._kept.items() if n >= self._next][: self._batch]
        self._next += len(batch)
        return batch

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Forget them."""
        for delivery in deliveries:
            del self._kept[int(str(delivery.receipt))]

    def break_connection(self) -> None:
        """From now on everything that is not acknowledged comes again."""
        self._next = min(self._kept, default=self._next)

    def close(self) -> None:
        """Done."""
        self.closed = True

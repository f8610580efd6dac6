"""The queue of a campaign's reports at the endpoint: the age of reports, and who takes them."""

from collections import deque
from collections.abc import Iterable

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.endpoint.queue import Queue

REPORT = Delivery("topic", b"report", False, None)


class Watched(deque):
    """The queue's waiting reports. When one arrives, its age is asked for and it is taken, as by another thread."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue
        self.ages = []

    def extend(self, deliveries: Iterable[Delivery]) -> None:
        super().extend(deliveries)
        self.ages.append(self.queue.oldest_seconds)
        self.queue.take(1)
        self.ages.append(self.queue.oldest_seconds)


def test_a_report_has_its_age_from_its_arrival_on_whoever_looks_in_between():
    """An age that is asked for during ``put`` is that of the report, and not the time since the machine started."""
    queue = Queue("meters")
    queue.waiting = waiting = Watched(queue)
    for _ in range(3):
        queue.put([REPORT])
    assert len(waiting.ages) == 6
    assert max(waiting.ages) < 60


def test_what_is_put_back_keeps_its_age_and_comes_first():
    queue = Queue("meters")
    queue.put([REPORT])
    arrived = queue.since
    taken = queue.take(5)
    queue.put([Delivery("topic", b"later", False, None)])
    queue.put_back()
    assert (queue.since, queue.take(1)) == (arrived, taken)
    assert queue.uncommitted == 2

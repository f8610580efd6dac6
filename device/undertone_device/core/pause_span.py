"""A household's pause as the device counts it, by clock and by ticks. Loaded only if a file ``pause`` exists."""

from undertone_device.core.ledger import in_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Storage

# File with the device's own count: "FROM UNTIL" as in ``pause``, then three uptimes: when the pause begins, when it
# ends, and when the device first saw it.
COUNT = "pause.ticks"


class PauseSpan:
    """A pause on the tick counter, in seconds of the ledger's uptime.

    Until the pause begins, every look at the clock may let it begin earlier or end later. Once it has begun, only its
    owner changes it. ``by_ticks``: False if no counter runs through sleep, so that the clock must be trusted.
    """

    def __init__(self, storage: "Storage", by_ticks: bool):
        self._storage = storage
        self._by_ticks = by_ticks
        self._start = self._until = self._begins = self._ends = self._seen = 0
        try:
            numbers = [int(word) for word in (storage.read(COUNT) or b"").split()]
            self._start, self._until, self._begins, self._ends, self._seen = numbers
        except ValueError:
            pass  # If the file has no valid count, the count of the pause begins now.

    def covers(self, pause: bytes, begin: int, end: int, now: int, opened: int, uptime: int) -> bool:
        """Return True if the pause overlaps the slot: [begin, end) by the clock, (opened, uptime] by the ticks.

        ``pause``: the content of the file ``pause``. Raises ValueError if that is not valid, and OSError if the count
        cannot be written.
        """
        start, until = [int(word) for word in pause.split()]
        if until <= start:
            return False
        if self._by_ticks:
            self._look(start, until, now, uptime, end)
        return (begin < until and start < end) or (opened < self._ends and self._begins < uptime)

    def _look(self, start: int, until: int, now: int, uptime: int, end: int) -> None:
        ahead = max(start - now, 0)
        # A slot that ends when the pause begins is not part of the pause, however inexact the oscillator is. A slot
        # that ends later is part of it, even if the clock says that the pause is over: the clock may have jumped since
        # the last look.
        begins = uptime + ahead + ahead // 32 + 1 if ahead else min(uptime, uptime + start - end)
        ends = uptime + ahead + in_ticks(until - start)
        if start != self._start or uptime < self._seen:
            # The pause is new, or its ticks were counted with a ledger that was lost since.
            self._begins, self._ends, self._seen = begins, ends, uptime
        elif until < self._until:
            self._ends = min(self._ends, uptime + max(until - now, 0))
        elif until > self._until:
            self._ends += in_ticks(until - self._until)
        else:
            if ahead:
                self._begins, self._ends = min(self._begins, begins), max(self._ends, ends)
            return
        self._start, self._until = start, until
        record = (start, until, self._begins, self._ends, self._seen)
        self._storage.write(COUNT, b"%d %d %d %d %d" % record)

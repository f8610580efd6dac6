"""A household's pause: which slots it leaves out is decided ahead, so that no reading can decide it.

The file ``pause`` holds ``FROM UNTIL`` in Unix seconds; a slot that touches [FROM, UNTIL) is not reported, and nothing
is sent about it. That the device is silent shows; a pause on the days that matter shows which days those are.

A clock that lies does not end a pause: the device also counts 31/32 of its length in ticks (`PauseSpan`).
"""

from undertone_device.core.ledger import PAUSE, in_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Storage

DAY = 86400
ENDLESS = 0xFFFFFFFF
# The device's own count: "FROM UNTIL" as it was in ``pause``, then the uptimes at which that begins, ends, was seen.
COUNT = "pause.ticks"


def begin(now: int, slot: int, rest: int, at_once: bool, seconds: int) -> tuple[int, int]:
    """(from, until) of a pause asked for at ``now``, slots of ``slot`` seconds, the policy's rest ``rest``.

    It starts at the first slot's edge after now and a rest: what is measured by then was not known. ``at_once``: now,
    the open slot included, and for a rest and a day at least. ``seconds``: how long, 0 until it is ended.
    """
    start = now if at_once else _edge(now + rest, slot)
    least = max(rest, DAY) if at_once else max(rest, slot)
    return start, _edge(start + max(seconds, least), slot) if seconds else ENDLESS


def end(pause: tuple[int, int], now: int, slot: int, rest: int) -> tuple[int, int]:
    """The pause, ending at the first slot's edge after now, and after a rest of it; nothing if it is not in force.

    One that began at once, and so at no slot's edge, lasts a day at least: it was made by somebody who knew what was
    measured, and must not leave out one slot alone.
    """
    start, until = pause
    if not start <= now < until:
        return 0, 0
    least = max(rest, DAY if start % slot else slot)
    return start, min(until, _edge(max(now, start + least), slot))


def extend(pause: tuple[int, int], more: tuple[int, int], now: int) -> tuple[int, int]:
    """Both pauses as one, with the time between them; ``more`` alone if the other one is over."""
    if pause[1] <= now:
        return more
    return min(pause[0], more[0]), max(pause[1], more[1])


def _edge(seconds: int, slot: int) -> int:
    return -(-seconds // slot) * slot


def read(storage: "Storage", now: int) -> tuple[int, int]:
    """The pause on file, (0, 0) without one; an endless one for a file that holds something else. Raises OSError."""
    try:
        start, until = (storage.read(PAUSE) or b"0 0").split()
        return int(start), int(until)
    except ValueError:
        return now, ENDLESS


def write(storage: "Storage", pause: tuple[int, int]) -> None:
    """Put a pause on file, for a running device and every one after it. Raises OSError."""
    storage.write(PAUSE, b"%d %d" % pause)


class PauseSpan:
    """A pause on the tick counter, in seconds of the ledger's uptime.

    Before it begins, every look at the clock may bring its beginning forward or its end back; once it has begun, only
    its owner shortens it. ``by_ticks``: False where no counter survives the sleep, and the clock has to be trusted.
    """

    def __init__(self, storage: "Storage", by_ticks: bool):
        self._storage = storage
        self._by_ticks = by_ticks
        self._start = self._until = self._begins = self._ends = self._seen = 0
        try:
            numbers = [int(word) for word in (storage.read(COUNT) or b"").split()]
            self._start, self._until, self._begins, self._ends, self._seen = numbers
        except ValueError:
            pass  # none, or damaged: the pause counts as new

    def covers(self, pause: bytes, begin: int, end: int, now: int, opened: int, uptime: int) -> bool:
        """Whether any of the pause is in the slot's interval: [begin, end) by the clock, (opened, uptime] by the ticks.

        ``pause``: the file's content. Raises ValueError for one that cannot be read, OSError.
        """
        start, until = [int(word) for word in pause.split()]
        if until <= start:
            return False
        if self._by_ticks:
            self._look(start, until, now, uptime, end)
        return (begin < until and start < end) or (opened < self._ends and self._begins < uptime)

    def _look(self, start: int, until: int, now: int, uptime: int, end: int) -> None:
        ahead = max(start - now, 0)
        # A slot that ends as the pause begins is not in it, whatever the oscillator is off by. One that ends later is
        # in it: a clock that says that the pause is over, too, may have jumped before anybody looked.
        begins = uptime + ahead + ahead // 32 + 1 if ahead else min(uptime, uptime + start - end)
        ends = uptime + ahead + in_ticks(until - start)
        if start != self._start or uptime < self._seen:
            # New, or the ledger is not the one that counted.
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

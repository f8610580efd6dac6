"""A household's pause: which slots it leaves out is decided ahead, so that no reading can decide it.

The file ``pause`` holds ``FROM UNTIL`` in Unix seconds; a slot that touches [FROM, UNTIL) is not reported, and nothing
is sent about it. That the device is silent shows; a pause on the days that matter shows which days those are.

A clock that lies does not end a pause: the device also counts 31/32 of its length in ticks (``pause_span.py``).
"""

from undertone_device.core.ledger import PAUSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Storage

DAY = 86400
ENDLESS = 0xFFFFFFFF


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

"""A household's pause: the slots that it omits are decided in advance, so that no reading can influence the choice.

The file ``pause`` contains ``FROM UNTIL`` in Unix seconds; a slot that touches [FROM, UNTIL) is not reported, and
nothing is sent about it. The silence itself is visible: a pause on sensitive days shows which days those are.

If the policy's ``rest_by`` is "ticks", a wrong clock does not end a pause: the device also counts 31/32 of the pause's
length in ticks (``pause_span.py``).
"""

from undertone_device.core.ledger import PAUSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Storage

DAY = 86400
ENDLESS = 0xFFFFFFFF


def begin(now: int, slot: int, rest: int, at_once: bool, seconds: int) -> tuple[int, int]:
    """Return (from, until) of a pause requested at ``now``, with slots of ``slot`` seconds and the policy's ``rest``.

    It starts at the first edge of a slot once ``rest`` has passed, so that its owner does not know the readings that it
    omits. ``at_once``: it starts now and omits the open slot. ``seconds``: its length, 0 for no end. It
    lasts at least a slot and at least the rest (with ``at_once``: a day and the rest), and until an edge of a slot.
    """
    start = now if at_once else _edge(now + rest, slot)
    least = max(rest, DAY) if at_once else max(rest, slot)
    return start, _edge(start + max(seconds, least), slot) if seconds else ENDLESS


def end(pause: tuple[int, int], now: int, slot: int, rest: int) -> tuple[int, int]:
    """Return the pause with an earlier end, at the next edge of a slot. Return (0, 0) if no pause is in force now.

    The pause lasts at least a slot and at least the policy's rest. A pause that began at once, and so not at a slot's
    edge, lasts at least a day: its owner knew the open slot's measurement, and must not be able to omit just this slot.
    """
    start, until = pause
    if not start <= now < until:
        return 0, 0
    least = max(rest, DAY if start % slot else slot)
    return start, min(until, _edge(max(now, start + least), slot))


def extend(pause: tuple[int, int], more: tuple[int, int], now: int) -> tuple[int, int]:
    """Return one pause from the earlier beginning to the later end of both; ``more`` alone if ``pause`` is over."""
    if pause[1] <= now:
        return more
    return min(pause[0], more[0]), max(pause[1], more[1])


def _edge(seconds: int, slot: int) -> int:
    return -(-seconds // slot) * slot


def read(storage: "Storage", now: int) -> tuple[int, int]:
    """Return the pause on file, (0, 0) without one; an endless pause if the file is not valid. Raises OSError."""
    try:
        start, until = (storage.read(PAUSE) or b"0 0").split()
        return int(start), int(until)
    except ValueError:
        return now, ENDLESS


def write(storage: "Storage", pause: tuple[int, int]) -> None:
    """Write a pause to its file, which a running device reads in every slot. Raises OSError."""
    storage.write(PAUSE, b"%d %d" % pause)

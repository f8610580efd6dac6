"""The garbage collector's threshold during work that makes much garbage: a signature, a TLS handshake.

A board collects garbage after every few KB, which keeps its heap in one piece. Work that makes a megabyte of garbage
would then cause 250 collections, half of the work's time. Without the threshold the board collects when the heap is
full.
"""

import gc


def pause() -> int:
    """Switch the threshold off; return what it was before, -1 if there was none."""
    threshold = getattr(gc, "threshold", None)
    if threshold is None:
        # CPython has no such threshold.
        return -1
    before: int = threshold()
    threshold(-1)
    return before


def resume(before: int) -> None:
    """Set the threshold that `pause` returned."""
    threshold = getattr(gc, "threshold", None)
    if threshold is not None:
        threshold(before)


def collect() -> None:
    """Collect the garbage now, on MicroPython.

    CPython collects by itself, and a fleet whose devices share one process would wait for seconds here.
    """
    if getattr(gc, "threshold", None) is not None:
        gc.collect()

"""The garbage collector's threshold during work that makes much garbage: a signature, a TLS handshake.

A board collects garbage after every few KB, which keeps its heap in one piece. Work that makes a megabyte of garbage
would then cause 250 collections, which take half of the work's time. Without the threshold the board collects when the
heap is full.
"""

import gc


def set_threshold(size: int) -> int:
    """Set the number of allocated bytes at which garbage is collected, -1 for none; return the previous number.

    CPython has no such threshold: there the function does nothing, and returns -1.
    """
    threshold = getattr(gc, "threshold", None)
    if threshold is None:
        return -1
    before: int = threshold()
    threshold(size)
    return before


def collect() -> None:
    """Collect the garbage now, on MicroPython.

    CPython collects by itself, and a fleet whose devices share one process would wait for seconds here.
    """
    if hasattr(gc, "threshold"):
        gc.collect()

"""Delays signals while child processes are started, recorded or ended: a signal in between would leave children
running.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back SIGINT and SIGTERM, each if it has a handler in Python, until the block has ended.

    Python runs signal handlers in the main thread alone, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    delayed: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in handled:
            signal.signal(number, lambda arrived, _: delayed.append(arrived))
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for arrived in delayed:
            signal.raise_signal(arrived)

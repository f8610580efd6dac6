"""Protection while a child process is started and recorded: a signal in between would leave an orphan."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, and SIGTERM if it has a handler, until the block ends.

    Only in the main thread, which receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in handled:
            signal.signal(number, lambda came, _: held.append(came))
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for came in held:
            signal.raise_signal(came)

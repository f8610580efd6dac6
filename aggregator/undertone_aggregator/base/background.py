"""Background threads that can be stopped, and that pass on the exception that ended them."""

import threading
from collections.abc import Callable

# The work of a thread calls this function with True when it becomes ready, and with False when it is ready no more.
Ready = Callable[[bool], None]
# The work of a thread. It runs until the event is set, and calls `Ready` whenever it becomes ready or unready.
Body = Callable[[threading.Event, Ready], None]


class Background:
    """A thread that runs ``body`` until it is stopped."""

    def __init__(self, name: str, body: Body) -> None:
        self._ready = False
        self._failure: BaseException | None = None
        self._stop = threading.Event()

        def work() -> None:
            try:
                body(self._stop, self._note)
            except BaseException as failure:
                self._failure = failure

        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """True if the thread runs and its work last said that it is ready."""
        return self._ready and not self.ended

    @property
    def ended(self) -> bool:
        """True if the thread has ended."""
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise the exception that ended the thread, if there was one."""
        if self._failure is not None:
            raise self._failure

    def ask_to_stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stop.set()

    def stop(self) -> None:
        """Ask the thread to end, and wait until it has finished its work."""
        self._stop.set()
        self._thread.join()

    def _note(self, ready: bool) -> None:
        self._ready = ready

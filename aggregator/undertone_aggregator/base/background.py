"""A background thread that can be asked to stop and that reports the error that ended it."""

import threading
from collections.abc import Callable

# Callback with the current readiness of the work: called when the work is first ready, and at each change.
Ready = Callable[[bool], None]
# The thread's work: it runs until the event is set, and calls the Ready function when its readiness changes.
Body = Callable[[threading.Event, Ready], None]


class Background:
    """A thread that works until it is stopped."""

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
        """True if the work is ready and the thread has not ended."""
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
        """Ask the thread to stop; it ends soon."""
        self._stop.set()

    def stop(self) -> None:
        """Stop the thread after it has committed and acknowledged what it has read, and wait for its end."""
        self._stop.set()
        self._thread.join()

    def _note(self, ready: bool) -> None:
        self._ready = ready

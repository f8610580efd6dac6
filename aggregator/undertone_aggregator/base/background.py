"""Work in a thread: told to stop, asked what ended it."""

import threading
from collections.abc import Callable

# Says whether work goes on as it should now: at the first time that it does, and at each change.
Ready = Callable[[bool], None]
# Works until the event is set; calls the function when it is ready, and when it is no longer.
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
        """Whether it says that it is."""
        return self._ready and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it works no more."""
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raises what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def ask_to_stop(self) -> None:
        """It ends soon."""
        self._stop.set()

    def stop(self) -> None:
        """Let it commit and acknowledge what it has read, then end it."""
        self._stop.set()
        self._thread.join()

    def _note(self, ready: bool) -> None:
        self._ready = ready

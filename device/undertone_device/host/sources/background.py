"""Reads a slow source in a thread, so that a slow meter or server does not delay other devices."""

import threading

from undertone_device.host.sources.source import Reading, SensorSource


class BackgroundReader:
    """Runs one read of a polled source at a time; ``answer`` returns its sample once it has arrived."""

    def __init__(self, source: SensorSource):
        self._source = source
        self._asked: int | None = None
        self._done = threading.Event()
        self._sample: Reading | None = None
        self._error: OSError | ValueError | None = None
        self._refused = ""

    @property
    def trouble(self) -> str:
        """The reason why there is no sample, or an empty text."""
        return self._refused or self._source.trouble

    def read(self, now: int) -> None:
        """Start a read, unless the last one is still running. Never waits."""
        if self._asked is not None:
            self._refused = f"no sample: the source was asked {now - self._asked} s ago and has not answered"
            return
        self._asked = now
        self._done.clear()
        threading.Thread(target=self._ask, args=(now,), daemon=True).start()

    def _ask(self, now: int) -> None:
        self._sample = self._error = None
        try:
            self._sample = self._source.read(now)
        except (OSError, ValueError) as error:
            self._error = error
        self._done.set()

    def answer(self, now: int, slot_seconds: int) -> Reading | None:
        """Return the sample that has arrived since the last call, None if there is none. Raises OSError or ValueError.

        A sample belongs to the slot in which it was requested. A sample that arrives after the end of that slot is
        dropped.
        """
        asked = self._asked
        if asked is None or not self._done.is_set():
            return None
        self._asked = None
        self._refused = ""
        if self._error is not None:
            raise self._error
        if asked // slot_seconds != now // slot_seconds:
            self._refused = "no sample: the answer came after the end of its slot"
            raise ValueError(self._refused)
        return self._sample

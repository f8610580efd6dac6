"""Asks a slow source for samples in a thread: a meter or a server that dribbles keeps no other device waiting."""

import threading

from undertone_device.host.sources.source import SensorSource


class BackgroundReader:
    """One question at a time to a polled source; ``answer`` has its sample as soon as it has come."""

    def __init__(self, source: SensorSource):
        self._source = source
        self._asked: int | None = None
        self._done = threading.Event()
        self._sample: int | None = None
        self._error: OSError | ValueError | None = None
        self._refused = ""

    @property
    def trouble(self) -> str:
        """Why there is no sample to be had, or nothing."""
        return self._refused or self._source.trouble

    def read(self, now: int) -> None:
        """Ask for a sample, unless the last question still has no answer. Never waits."""
        if self._asked is not None:
            self._refused = f"no sample: asked {now - self._asked} s ago, and there is no answer yet"
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

    def answer(self, now: int, slot_seconds: int) -> int | None:
        """The sample that has come since the last call, None if there is none. Raises OSError or ValueError.

        A sample belongs to the slot in which it was asked for: one that comes after its end is none.
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

"""Answers of the API that stay the same until a slot settles. They are kept, so that pages share one computation."""

import threading
from collections.abc import Callable, Hashable

# The largest number of bytes of all kept answers together.
LARGEST_BYTES = 24_000_000


class Answers:
    """The answers that were asked for last, by key: at most `LARGEST_BYTES` bytes. Several threads may share this
    object.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, key: Hashable, compute: Callable[[], bytes]) -> bytes:
        """Return the answer for ``key``; compute it if it is not kept. An answer that is too large is not kept."""
        with self._lock:
            answer = self._kept.pop(key, None)
            if answer is not None:
                self._kept[key] = answer
                return answer
        answer = compute()
        with self._lock:
            if len(answer) <= LARGEST_BYTES and key not in self._kept:
                self._kept[key] = answer
                self._bytes += len(answer)
            while self._bytes > LARGEST_BYTES:
                self._bytes -= len(self._kept.pop(next(iter(self._kept))))
        return answer

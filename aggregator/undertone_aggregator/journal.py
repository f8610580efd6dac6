"""The server's log: one line an event, for people or as JSON."""

import json
import sys
import threading
import time
from typing import Any, TextIO


class Journal:
    """Writes events to ``stream``: ``12:03:05 sentence``, or with ``as_json`` one object a line with all fields."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._as_json = as_json
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def say(self, event: str, sentence: str, **fields: Any) -> None:
        """Log one event."""
        if self._as_json:
            line = json.dumps(
                {"time": round(time.time(), 3), "event": event, "message": sentence, **fields}, default=str
            )
        else:
            line = f"{time.strftime('%H:%M:%S')} {sentence}"
        with self._lock:
            print(line, file=self._stream, flush=True)

    def alarm(self, event: str, sentence: str, **fields: Any) -> None:
        """Log what an operator has to look at."""
        self.say(event, f"alarm: {sentence}", level="alarm", **fields)

    def say_once(self, event: str, sentence: str, **fields: Any) -> None:
        """Log one event unless its sentence is the same as the last time."""
        if self._last.get(event) != sentence:
            self._last[event] = sentence
            self.say(event, sentence, **fields)

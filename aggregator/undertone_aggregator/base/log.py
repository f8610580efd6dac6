"""The server's log: one line per event, as text or JSON. An alarm is an event that an operator has to look at."""

import contextlib
import json
import math
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, TextIO

ALARM = "alarm"
WARNING = "warning"
INFO = "info"
# `Journal.say_once` logs the same sentence again after this time.
REPEAT_SECONDS = 600.0
_ALARMS = 100


@dataclass(frozen=True)
class Alarm:
    """One alarm. ``time``: Unix seconds; ``campaign``: empty for an alarm of the whole server."""

    time: float
    campaign: str
    event: str
    sentence: str


class Journal:
    """Writes events to ``stream``: ``2026-11-21 12:03:05 [campaign] sentence``, or one JSON object a line.

    ``alarms``: the newest alarms of all campaigns. ``alarm_counts``: number of alarms by (campaign, event).
    """

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False, campaign: str = "") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._as_json = as_json
        self._campaign = campaign
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, float]] = {}
        self.alarms: deque[Alarm] = deque(maxlen=_ALARMS)
        self.alarm_counts: Counter[tuple[str, str]] = Counter()

    def of(self, campaign: str) -> "Journal":
        """Return a journal that writes the events of one campaign to the same log."""
        journal = Journal(self._stream, as_json=self._as_json, campaign=campaign)
        journal._lock, journal.alarms, journal.alarm_counts = self._lock, self.alarms, self.alarm_counts
        return journal

    def say(self, event: str, sentence: str, **fields: Any) -> None:
        """Log one event. The field ``level`` is `INFO` unless ``fields`` has another one."""
        now, level = time.time(), fields.pop("level", INFO)
        if level == ALARM:
            self.alarms.append(Alarm(now, self._campaign, event, sentence))
            self.alarm_counts[self._campaign, event] += 1
        if self._as_json:
            head = {"time": round(now, 3), "level": level, "event": event, "message": sentence}
            if self._campaign:
                head["campaign"] = self._campaign
            line = json.dumps({**head, **fields}, default=str)
        else:
            campaign = f"[{self._campaign}] " if self._campaign else ""
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))} {campaign}{sentence}"
        # A line that cannot be written is dropped, because a full disk or a pipe without a reader must not stop ingest.
        with self._lock, contextlib.suppress(OSError):
            print(line, file=self._stream, flush=True)

    def alarm(self, event: str, sentence: str, **fields: Any) -> None:
        """Log an event that an operator has to look at."""
        self.say(event, f"alarm: {sentence}", level=ALARM, **fields)

    def recent_alarms(self, since: float) -> list[Alarm]:
        """Return the alarms since a Unix second, newest first, of this campaign and of the whole server."""
        # Copy the alarms first, because other threads add alarms while this function searches.
        newest = reversed(tuple(self.alarms))
        return [alarm for alarm in newest if alarm.time > since and alarm.campaign in ("", self._campaign)]

    def say_once(self, event: str, sentence: str, **fields: Any) -> None:
        """Log one event, unless the last sentence of this event was the same and is younger than `REPEAT_SECONDS`.

        A sentence that begins with ``alarm:`` is logged as an alarm.
        """
        last, at = self._last.get(event, ("", -math.inf))
        now = time.monotonic()
        if last != sentence or now > at + REPEAT_SECONDS:
            self._last[event] = (sentence, now)
            self.say(event, sentence, level=ALARM if sentence.startswith("alarm: ") else INFO, **fields)

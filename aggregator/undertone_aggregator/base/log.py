"""The server's log: one line per event, for people or as JSON; alarms are events that an operator has to look at."""

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
# Seconds after which an unchanged sentence is logged again.
REPEAT_SECONDS = 600.0
_ALARMS = 100


@dataclass(frozen=True)
class Alarm:
    """One alarm: when (Unix seconds), which campaign, which event, in a sentence."""

    time: float
    campaign: str
    event: str
    sentence: str


class Journal:
    """Writes events to ``stream``: ``2026-11-21 12:03:05 [campaign] sentence``, or with ``as_json`` one object per
    line.

    ``alarms``: the newest ones, of all campaigns; ``rung``: number of alarms by campaign and event.
    """

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False, campaign: str = "") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._as_json = as_json
        self._campaign = campaign
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, float]] = {}
        self.alarms: deque[Alarm] = deque(maxlen=_ALARMS)
        self.rung: Counter[tuple[str, str]] = Counter()

    def of(self, campaign: str) -> "Journal":
        """Return the same log for one campaign's events."""
        journal = Journal(self._stream, as_json=self._as_json, campaign=campaign)
        journal._lock, journal.alarms, journal.rung = self._lock, self.alarms, self.rung
        return journal

    def say(self, event: str, sentence: str, **fields: Any) -> None:
        """Log one event; the field ``level`` is `INFO` unless given."""
        now, level = time.time(), fields.pop("level", INFO)
        if level == ALARM:
            self.alarms.append(Alarm(now, self._campaign, event, sentence))
            self.rung[self._campaign, event] += 1
        if self._as_json:
            head = {"time": round(now, 3), "level": level, "event": event, "message": sentence}
            if self._campaign:
                head["campaign"] = self._campaign
            line = json.dumps({**head, **fields}, default=str)
        else:
            of = f"[{self._campaign}] " if self._campaign else ""
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))} {of}{sentence}"
        # Reports must be counted even if the log's disk is full, or its reader is gone.
        with self._lock, contextlib.suppress(OSError):
            print(line, file=self._stream, flush=True)

    def alarm(self, event: str, sentence: str, **fields: Any) -> None:
        """Log an alarm, which an operator has to look at."""
        self.say(event, f"alarm: {sentence}", level=ALARM, **fields)

    def rang(self, since: float) -> list[Alarm]:
        """Return the alarms of this campaign, and those of no campaign, since a Unix second, the newest first."""
        # The copy is atomic, because other threads may add alarms at the same time.
        newest = reversed(tuple(self.alarms))
        return [alarm for alarm in newest if alarm.time > since and alarm.campaign in ("", self._campaign)]

    def say_once(self, event: str, sentence: str, **fields: Any) -> None:
        """Log an event unless its sentence is the same as the last time and was logged recently.

        A sentence that begins with ``alarm:`` is logged as an alarm.
        """
        last, at = self._last.get(event, ("", -math.inf))
        now = time.monotonic()
        if last != sentence or now > at + REPEAT_SECONDS:
            self._last[event] = (sentence, now)
            self.say(event, sentence, level=ALARM if sentence.startswith("alarm: ") else INFO, **fields)

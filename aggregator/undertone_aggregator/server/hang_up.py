"""Reload of passwords and certificates after SIGHUP or a change of their files."""

import contextlib
import signal
import threading
from collections.abc import Callable

from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.source import Source
from undertone_shared.errors import Invalid

_WATCH_SECONDS = 0.2


def watch_hang_up(source: Source, journal: Journal, stop: threading.Event, settled: Callable[[], bool]) -> None:
    """Start a thread that reloads passwords and certificates after SIGHUP or a change of the source's files.

    Before a broker is reloaded, this server's own sessions must be connected again (``settled``). Mosquitto deletes a
    session whose password it can no longer verify, for example after a restart before the session has reconnected.
    Messages for that session are then dropped. The server's own endpoint (mode direct) has no such sessions, so it is
    reloaded at once.
    """
    hung_up = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: hung_up.set())

    def watch() -> None:
        # A broker that outlives this server may have missed changes made while no server ran, so it is reloaded now.
        before: list[int] | None = None if source.outlives else _changed(source)
        while not stop.is_set():
            asked = hung_up.wait(_WATCH_SECONDS)
            if stop.is_set():
                # The source is being closed and must not be called any more.
                return
            if (not source.outlives or settled()) and (asked or _changed(source) != before):
                hung_up.clear()
                before = _changed(source)
                _reload(source, journal)
            elif asked:
                stop.wait(_WATCH_SECONDS)

    threading.Thread(target=watch, name="hang-up", daemon=True).start()


def _changed(source: Source) -> list[int]:
    """Return when each of the source's files was last modified. A file that is missing for a moment is skipped."""
    times = []
    for path in source.files:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return times


def _reload(source: Source, journal: Journal) -> None:
    try:
        source.reload()
        journal.say("reload", "passwords and certificates were read again")
    except (Invalid, OSError) as wrong:
        journal.say("reload", f"passwords and certificates were not read again, and the old ones stay in use: {wrong}")

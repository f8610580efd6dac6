"""SIGHUP, and changes of the files of passwords and certificates: the source reads them again."""

import contextlib
import signal
import threading
from collections.abc import Callable

from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.source import Source
from undertone_shared.errors import Invalid

_WATCH_SECONDS = 0.2


def watch_hang_up(source: Source, journal: Journal, stop: threading.Event, settled: Callable[[], bool]) -> None:
    """From now on SIGHUP, or a change of its files, makes the source read its passwords and certificates again.

    It waits until this server's own sessions are ``settled``. Mosquitto throws a session off when it cannot verify its
    password any more, as after a restart until the session comes back; what arrives for it until then is dropped.
    """
    hung_up = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: hung_up.set())

    def watch() -> None:
        # What was changed while no server ran is read now, by a broker that is not ours to start.
        before: list[int] | None = None if source.outlives else _changed(source)
        while not stop.is_set():
            asked = hung_up.wait(_WATCH_SECONDS)
            if stop.is_set():
                # What would be asked is being closed.
                return
            if settled() and (asked or _changed(source) != before):
                hung_up.clear()
                before = _changed(source)
                _reload(source, journal)
            elif asked:
                stop.wait(_WATCH_SECONDS)

    threading.Thread(target=watch, name="hang-up", daemon=True).start()


def _changed(source: Source) -> list[int]:
    """When each of the source's files was written last; a file that is gone for a moment is none."""
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
        journal.say("reload", f"nothing was read again: {wrong}")

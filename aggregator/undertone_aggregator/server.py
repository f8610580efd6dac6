"""`undertone aggregate`: one campaign, with the source of its reports, put together and taken apart."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable

from undertone_aggregator.collect.ingest import Failpoint, nowhere
from undertone_aggregator.config import Config
from undertone_aggregator.journal import Journal
from undertone_aggregator.running import Options, Running
from undertone_aggregator.source import Source, enter_source
from undertone_shared.errors import Invalid

_WATCH_SECONDS = 0.2


def serve(
    config: Config,
    stop: threading.Event,
    journal: Journal,
    *,
    clock: Callable[[], float] = time.time,
    failpoint: Failpoint = nowhere,
    apply: bool = False,
    take_over: bool = False,
) -> None:
    """Run one campaign until ``stop`` is set; then everything read is committed and acknowledged, a managed broker
    stopped.

    The options: see `undertone_aggregator.running.Options`. Raises Invalid for a store of another campaign, a plan that
    has changed, a campaign of another server, bad files, or a broker that does not start.
    """
    with contextlib.ExitStack() as opened:
        source = enter_source(opened, config, journal, stop)
        if source is None:
            return
        running = Running(config, source, journal, Options(clock, failpoint, apply, take_over))
        watch_hang_up(source, journal, stop)
        outlet = source.outlet(config.broker.prefix, lambda sentence: journal.say_once("outlet", sentence))
        outlet.start()
        try:
            running.run(outlet, stop)
        finally:
            outlet.stop()


def watch_hang_up(source: Source, journal: Journal, stop: threading.Event) -> None:
    """From now on SIGHUP, or a change of its files, makes the source read its passwords and certificates again."""
    if threading.current_thread() is not threading.main_thread():
        return
    hung_up = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: hung_up.set())

    def watch() -> None:
        before = _changed(source)
        while not stop.is_set():
            if hung_up.wait(_WATCH_SECONDS) or _changed(source) != before:
                hung_up.clear()
                before = _changed(source)
                _reload(source, journal)

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

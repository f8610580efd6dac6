"""Runs one campaign of one configuration in this thread, as `undertone serve` runs each of its campaigns."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.runner import Running, RunOptions
from undertone_aggregator.ingest.ingest import Failpoint, no_failpoint
from undertone_aggregator.mqtt.source import enter_source
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_aggregator.settings.config import Config


def serve(
    config: Config,
    stop: threading.Event,
    journal: Journal,
    *,
    clock: Callable[[], float] = time.time,
    failpoint: Failpoint = no_failpoint,
    apply: bool = False,
    take_over: bool = False,
) -> None:
    """Run the campaign until ``stop`` is set.

    Then everything that was read is committed and acknowledged. For the options, see `RunOptions`. Raises Invalid or
    OSError where a server with many campaigns would note the error in its state.
    """
    options = RunOptions(clock, failpoint, apply, take_over)
    with ExitStack() as opened:
        source = enter_source(opened, config, journal, stop)
        if source is None:
            return
        outlet = source.outlet(config.broker.prefix, lambda sentence: journal.say_once("outlet", sentence))
        outlet.start()
        try:
            source.serve({config.campaign.name})
            running = Running(config, source, journal, options)
            watch_hang_up(source, journal, stop, lambda: running.state.ready and outlet.settled)
            running.run(outlet, stop)
        finally:
            outlet.stop()

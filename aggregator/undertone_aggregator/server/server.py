"""One campaign of one configuration, served as `undertone serve` does: for programs and tests."""

import contextlib
import threading
import time
from collections.abc import Callable

from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.runner import RunOptions
from undertone_aggregator.ingest.ingest import Failpoint, no_failpoint
from undertone_aggregator.server.plan_file import PlanFile
from undertone_aggregator.server.supervisor import Stopped, open_server
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
    """Run one campaign until ``stop`` is set.

    Then everything read is committed and acknowledged.

    The options: see `undertone_aggregator.campaign.runner.RunOptions`. Raises Invalid for a store of another campaign,
    a plan that has changed, a campaign of another server, bad files, or a broker that does not start.
    """
    options = RunOptions(clock, failpoint, apply, take_over)
    with contextlib.suppress(Stopped), open_server(PlanFile(config), stop, journal, options) as server:
        server.run(stop)

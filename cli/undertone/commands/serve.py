"""``undertone serve``: the aggregation server for any number of campaigns."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from undertone.running import LogFormat, Seconds, open_journal, stop_event


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    seconds: Seconds = None,
    health: Annotated[
        str | None,
        typer.Option(help="ADDRESS:PORT of /metrics, /healthz and /readyz, else as configured."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace campaigns of these names that another server broadcasts.")
    ] = False,
    log_format: LogFormat = "text",
) -> None:
    """Run all campaigns of a folder: one process, one broker; a campaign that fails does not stop the others.

    It may be killed at any moment: a restart resumes from the stores.
    """
    from undertone_aggregator.health import serve_health
    from undertone_aggregator.home import Home
    from undertone_aggregator.many import open_server
    from undertone_aggregator.notify import notify
    from undertone_aggregator.packages import METRICS, PAGE, check_packages, missing_packages
    from undertone_aggregator.page_process import run_page
    from undertone_aggregator.running import Options

    stop, journal = stop_event(seconds), open_journal(log_format)
    home = Home(folder)
    if home.server.page is not None:
        check_packages(PAGE)
    health = health or home.server.health
    if health is not None and (missing := missing_packages(METRICS)):
        journal.say("health", missing)
    # Until there is something to read again, a SIGHUP asks for nothing; what is started does not inherit that.
    signal.signal(signal.SIGHUP, lambda *_: None)
    with (
        open_server(home, stop, journal, Options(take_over=take_over)) as server,
        serve_health(server, health),
        run_page(home, journal),
    ):
        notify("READY=1")
        server.run(stop)

"""``undertone serve``: the aggregation server for any number of campaigns."""

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    seconds: Annotated[float | None, typer.Option(help="Stop after this long; else at SIGTERM or Ctrl-C.")] = None,
    health: Annotated[
        str | None,
        typer.Option(help="ADDRESS:PORT of /metrics, /healthz and /readyz, else as configured."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace campaigns of these names that another server broadcasts.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json: one object a line.")] = "text",
) -> None:
    """Run all campaigns of a folder: one process, one broker; a campaign that fails does not stop the others.

    It may be killed at any moment: a restart resumes from the stores.
    """
    from undertone_aggregator.health import serve_health
    from undertone_aggregator.home import Home
    from undertone_aggregator.journal import Journal
    from undertone_aggregator.many import open_server
    from undertone_aggregator.notify import notify, watchdog
    from undertone_aggregator.page_process import run_page
    from undertone_aggregator.running import Options

    if log_format not in ("text", "json"):
        raise Invalid(f"--log-format is {log_format!r}, expected text or json")
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    as_json = log_format == "json"
    journal = Journal(sys.stdout if as_json else sys.stderr, as_json=as_json)
    home = Home(folder)
    with (
        open_server(home, stop, journal, Options(take_over=take_over)) as server,
        serve_health(server, health or home.server.health),
        run_page(home, journal),
    ):
        watchdog(stop)
        notify("READY=1")
        server.run(stop)
        notify("STOPPING=1")

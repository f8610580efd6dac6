"""``undertone serve``: runs the aggregation server for any number of campaigns."""

import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

from undertone.long_running import LogFormat, Seconds, open_journal, stop_event


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("serve")(serve)


def serve(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    seconds: Seconds = None,
    health: Annotated[
        str | None,
        typer.Option(help="ADDRESS:PORT that serves /metrics, /healthz and /readyz; by default that of server.toml."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the changes of plans that were edited but not applied.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Replace the campaigns that another server broadcasts under the same names."),
    ] = False,
    log_format: LogFormat = "text",
) -> None:
    """Run the server for all campaigns of a folder.

    A campaign that fails does not stop the others. You may kill the server at any moment: when it
    starts again, it continues from the stores.
    """
    from undertone_aggregator.base.open_files import raise_limit
    from undertone_aggregator.base.packages import JOIN, METRICS, PAGE, check_packages, missing_packages
    from undertone_aggregator.base.systemd import notify
    from undertone_aggregator.campaign.runner import RunOptions
    from undertone_aggregator.server.alert_sender import run_alerts
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.server.health import serve_health
    from undertone_aggregator.server.page_process import run_join, run_page
    from undertone_aggregator.server.supervisor import Stopped, alone, open_server

    # The processes of the page and of the listener for joining inherit this higher limit of open files.
    raise_limit()
    stop, journal = stop_event(seconds), open_journal(log_format)
    home = Home(folder)
    if home.server.page is not None:
        check_packages(PAGE)
    if home.join.listen is not None:
        check_packages(JOIN)
    health = health or home.server.health
    if health is not None and (missing := missing_packages(METRICS)):
        journal.say("health", missing)
    # SIGHUP is ignored until there is something to reload. A handler does this, because child processes would inherit
    # SIG_IGN.
    signal.signal(signal.SIGHUP, lambda *_: None)
    with (
        contextlib.suppress(Stopped),
        alone(home),
        # The page comes first: while there is no campaign, it says what to do.
        run_page(home, journal),
        open_server(home, stop, journal, RunOptions(apply=apply, take_over=take_over)) as server,
        serve_health(server, health),
        run_alerts(server, journal),
        run_join(home, journal),
    ):
        notify("READY=1")
        server.run(stop)

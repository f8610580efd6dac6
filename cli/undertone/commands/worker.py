"""``undertone worker``: one more ingest process, on any machine, for a campaign in a PostgreSQL database."""

from pathlib import Path
from typing import Annotated

import typer

from undertone.long_running import LogFormat, Seconds, open_journal, stop_event
from undertone_shared.errors import Invalid

AUTO = "auto"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("worker")(worker)


def worker(
    store: Annotated[str, typer.Option(help="The campaign's store: postgresql://user@host/database.")],
    password_file: Annotated[Path, typer.Option(help="File with the password that the server uses at the brokers.")],
    campaign: Annotated[str | None, typer.Option(help="The campaign; needed if the database holds several.")] = None,
    shards: Annotated[
        str,
        typer.Option(help=f"Largest number of partitions (parts of the fleet) to take; {AUTO} takes a fair share."),
    ] = AUTO,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            help="Certificate of the authority that signed the brokers' certificates; by default the system's own."
        ),
    ] = None,
    seconds: Seconds = None,
    log_format: LogFormat = "text",
) -> None:
    """Take in reports together with the workers of other machines; the store contains the configuration.

    You may kill the worker at any moment: other workers then take over its partitions.
    """
    from undertone_aggregator.base.open_files import raise_limit
    from undertone_aggregator.base.systemd import notify
    from undertone_aggregator.server.worker import SharedWorkerOptions

    if shards != AUTO and not (shards.isdecimal() and int(shards)):
        raise Invalid(f"--shards is {shards!r}, expected {AUTO} or a number of partitions from 1")
    raise_limit()
    stop, journal = stop_event(seconds), open_journal(log_format)
    notify("READY=1")
    most = None if shards == AUTO else int(shards)
    options = SharedWorkerOptions(store, campaign, password_file, ca_file, most)
    options.run(stop, lambda sentence: journal.say_once("worker", sentence))

"""``undertone worker``: one more process, on any machine, for a campaign whose store is a database."""

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid

AUTO = "auto"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker")(worker)


def worker(
    store: Annotated[str, typer.Option(help="The campaign's store: postgresql://user@host/database.")],
    password_file: Annotated[Path, typer.Option(help="A file with the server's own password at the brokers.")],
    campaign: Annotated[str | None, typer.Option(help="Which one, if the database holds several.")] = None,
    shards: Annotated[
        str, typer.Option(help=f"{AUTO}: its fair share of the partitions; a number: at most so many.")
    ] = AUTO,
    ca_file: Annotated[
        Path | None, typer.Option(help="The authority of the brokers' certificates, if it is not the system's.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after this long; else at SIGTERM or Ctrl-C.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log one JSON object per line.")] = False,
) -> None:
    """Take in reports together with the workers of other machines; how, is read from the store.

    It may be killed at any moment: others take its partitions over.
    """
    from undertone_aggregator.joining import Joining
    from undertone_aggregator.journal import Journal
    from undertone_aggregator.notify import notify

    if shards != AUTO and not (shards.isdecimal() and int(shards)):
        raise Invalid(f"--shards is {shards!r}, expected {AUTO} or a number of partitions")
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    journal = Journal(sys.stdout if as_json else sys.stderr, as_json=as_json)
    notify("READY=1")
    most = None if shards == AUTO else int(shards)
    joining = Joining(store, campaign, password_file, ca_file, most)
    joining.run(stop, lambda sentence: journal.say_once("worker", sentence))

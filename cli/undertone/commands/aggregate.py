"""``undertone aggregate``: the aggregation server."""

from pathlib import Path
from typing import Annotated

import typer

from undertone.running import LogFormat, Seconds, open_journal, stop_event
from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("aggregate")(aggregate)


def aggregate(
    config: Annotated[Path | None, typer.Option(help="The configuration, a TOML file.")] = None,
    seconds: Seconds = None,
    sample_config: Annotated[bool, typer.Option("--sample-config", help="Print a complete configuration.")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes of the plan that are else only shown.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a campaign of this name that another server broadcasts.")
    ] = False,
    log_format: LogFormat = "text",
) -> None:
    """Run the aggregation server: broker, ingest, threshold rounds, estimates.

    It may be killed at any moment: a restart resumes from the store.
    """
    from undertone_aggregator import config as configuration
    from undertone_aggregator.server import serve

    if sample_config:
        from undertone_aggregator import sample

        print(sample.sample_config(), end="")
        return
    if config is None:
        raise Invalid("aggregate needs --config FILE; --sample-config prints one to start from")
    stop, journal = stop_event(seconds), open_journal(log_format)
    serve(configuration.read_config(config), stop, journal, apply=apply, take_over=take_over)

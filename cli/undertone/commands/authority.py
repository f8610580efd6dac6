"""``undertone authority``: the private authority of a server's folder, and the server's certificate, which it signs."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Renew the server's certificate with the private authority of its folder.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.add_typer(app, name="authority")


@app.callback()
def _group() -> None:
    # With a callback, Typer keeps `renew` as a subcommand although it is the only one.
    pass


@app.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; may be repeated. Default: those in the old certificate."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Give the server a new certificate from its own authority, which its devices trust already.

    The running server uses it without a restart, and devices notice nothing. If the folder contains the files of an
    external broker, the running server reloads that broker.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_operate.fleet.authority import renew_server

    names, end = renew_server(Home(folder).folder, host or [])
    if as_json:
        print(json.dumps({"names": names, "end": end}))
        return
    import time

    day = time.strftime("%Y-%m-%d", time.gmtime(end))
    print(f"the server has a new certificate for {', '.join(names)}, valid until {day}")

"""``undertone move``: send the devices of a server to another address."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("move")(move)


def move(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    address: Annotated[
        str, typer.Argument(help="The new address, HOST or HOST:PORT; without a port the present one stays.")
    ],
    endpoint: Annotated[
        bool, typer.Option("--endpoint", help="From an external broker to this server's own endpoint at that address.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send all devices of a server to another address. They go at their next contact, if their policies allow it.

    The running server sends the signed hand-over with its campaigns. A device that is not let in at the new address
    comes back, and tries both in turn. server.toml and the devices' files get the new address, too.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.options import split_address
    from undertone_operate.moving import move_fleets
    from undertone_operate.provision import target_of

    home = Home(folder)
    try:
        host, port = split_address("the address", address)
    except Invalid:
        host, port = address, 0
    if not port:
        names = home.names()
        port = target_of(home.config(names[0])).port if names else 1
    sentences = move_fleets(home, host, port, endpoint=endpoint)
    print(json.dumps({"host": host, "port": port, "notes": sentences}) if as_json else "\n".join(sentences))

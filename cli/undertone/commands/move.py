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
        str, typer.Argument(help="The new address, HOST or HOST:PORT; without PORT the port stays the same.")
    ],
    endpoint: Annotated[
        bool,
        typer.Option(
            "--endpoint", help="Move the devices from an external broker to this server's own endpoint at that address."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send all devices of a server to another address.

    A device moves at its next contact, if its policy allows it. The running server sends the signed hand-over with
    its campaigns. A device that cannot log in at the new address tries the old and the new address in turn. The
    command also writes the new address into server.toml and the devices' files.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.options import is_host, split_address
    from undertone_operate.changes.moving import move_fleets
    from undertone_operate.fleet.device_files import target_of

    home = Home(folder)
    try:
        host, port = split_address("the address", address)
    except Invalid:
        if not is_host(address):
            raise Invalid(f"the address is {address!r}, expected HOST or HOST:PORT") from None
        host, port = address, 0
    if not port:
        names = home.names()
        port = target_of(home.config(names[0])).port if names else 1
    sentences = move_fleets(home, host, port, endpoint=endpoint)
    print(json.dumps({"host": host, "port": port, "notes": sentences}) if as_json else "\n".join(sentences))

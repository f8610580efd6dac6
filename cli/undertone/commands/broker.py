"""``undertone broker``: passwords of the broker of a server's folder."""

from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid

app = typer.Typer(help="Change passwords of the broker of a server's folder.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="broker")


@app.callback()
def _group() -> None:
    # With a single command Typer would drop the command's name.
    pass


@app.command()
def rotate(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    user: Annotated[
        str, typer.Argument(help="aggregator (with its workers' users), or analyst (with analyst-2 to analyst-8).")
    ] = "aggregator",
) -> None:
    """Give a new password to the server, or to the readers of estimates; the old one is refused from now on.

    For a device's password: undertone devices rotate.
    """
    from undertone_aggregator.base.files import write_private
    from undertone_aggregator.mqtt import credentials
    from undertone_aggregator.server.folder import Home

    home = Home(folder)
    if user not in (credentials.AGGREGATOR, credentials.ANALYST):
        raise Invalid(f"user is {user!r}, expected {credentials.AGGREGATOR} or {credentials.ANALYST}")
    password = credentials.new_password()
    users = credentials.server_users if user == credentials.AGGREGATOR else credentials.analyst_users
    changed = users(password)
    with credentials.alone(home.broker):
        credentials.change_passwords(home.broker / "passwords", changed)
    path = home.folder / f"{user}.password"
    write_private(path, password + "\n")
    print(f"{path} holds the new password")
    if user == credentials.AGGREGATOR:
        print("restart the broker and then the server; a SIGHUP would lose the messages that wait for the server")

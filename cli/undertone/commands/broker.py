"""``undertone broker``: passwords of the broker of a server's folder."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Change the password with which a server logs in at its external broker.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="broker")


@app.callback()
def _group() -> None:
    # With a callback, Typer keeps `rotate` as a subcommand although it is the only one.
    pass


@app.command()
def rotate(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
) -> None:
    """Give the server and its workers a new password; the broker refuses the old one after its restart.

    undertone devices rotate and undertone readers rotate change the other passwords.
    """
    from undertone_aggregator.base.files import write_private
    from undertone_aggregator.mqtt import credentials
    from undertone_aggregator.server.folder import Home

    home = Home(folder)
    password = credentials.new_password()
    passwords = home.broker / "passwords"
    with credentials.alone(home.broker):
        credentials.change_passwords(passwords, credentials.server_users(password))
    path = home.folder / f"{credentials.AGGREGATOR}.password"
    write_private(path, password + "\n")
    print(f"{path} holds the new password of the server and its workers")
    if home.broker_options.source.broker:
        print(
            f"copy this file to every other machine that runs a worker, and {passwords} to a broker on another machine"
        )
        print("then restart the broker, and after it the server and the workers")
        print("do not send the broker a SIGHUP instead: this would lose the messages that wait for the server")
    else:
        print("nothing uses this password: devices connect to this server itself, not to an external broker")

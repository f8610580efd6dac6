"""``undertone readers``: users who may read published estimates over MQTT."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.commands.devices import AsJson, Name, broker_advice
from undertone.options import with_options

if TYPE_CHECKING:
    from undertone_operate.fleet.readers import ReaderFiles


@dataclass(frozen=True, kw_only=True)
class ReaderChoice:
    """The server whose readers a command changes."""

    home: Annotated[Path, "The server's folder, as undertone init makes it."]

    def open(self) -> "ReaderFiles":
        """Return the files of the readers. Raises Invalid."""
        from undertone_aggregator.server.folder import Home
        from undertone_operate.fleet.readers import ReaderFiles

        return ReaderFiles.at_home(Home(self.home))


app = typer.Typer(help="Add, list and remove users who may read estimates over MQTT.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="readers")


@app.command()
@with_options(ReaderChoice)
def add(choice: ReaderChoice, name: Name) -> None:
    """Add a reader, such as Home Assistant or a dashboard, with a password of its own."""
    files = choice.open()
    print(f"{files.add(name)} holds the password of {name}")
    print(broker_advice(files.options, files.broker))


@app.command("list")
@with_options(ReaderChoice)
def list_readers(choice: ReaderChoice, as_json: AsJson = False) -> None:
    """List the readers."""
    names = choice.open().names()
    print(json.dumps(names) if as_json else "\n".join(names) or "none")


@app.command()
@with_options(ReaderChoice)
def rotate(choice: ReaderChoice, name: Name) -> None:
    """Give a reader a new password; the old one is refused as soon as the broker or server has the change."""
    files = choice.open()
    print(f"{files.rotate(name)} holds the new password of {name}")
    print(broker_advice(files.options, files.broker))


@app.command()
@with_options(ReaderChoice)
def remove(choice: ReaderChoice, name: Name) -> None:
    """Remove a reader and close its connections."""
    files = choice.open()
    files.remove(name)
    print(f"{name} is removed")
    print(broker_advice(files.options, files.broker))

"""``undertone backup`` and ``undertone restore``: a store's copy, made while its server runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    store: Annotated[str, typer.Argument(help="The store: a file.")],
    file: Annotated[Path, typer.Argument(help="Where the copy goes; nothing is replaced.")],
    as_json: AsJson = False,
) -> None:
    """Copy a store, whole and consistent, while its server goes on."""
    from undertone_aggregator.collect.store import open_store

    with open_store(store, read_only=True) as opened:
        opened.backup(file)
    with open_store(file, read_only=True) as copied:
        counted, newest = copied.outcomes()["counted"], copied.newest_slot()
    print(json.dumps({"file": str(file), "counted": counted, "newest_slot": newest}) if as_json
          else f"{file}: {counted} reports" + (f", the newest of slot {newest}" if counted else ""))  # fmt: skip


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    store: Annotated[Path, typer.Argument(help="The store that it replaces; what is there is kept beside it.")],
    as_json: AsJson = False,
) -> None:
    """Put a backup in a store's place while no server uses it, and say what it cannot know."""
    from undertone_aggregator.backup import restore as put_back

    said = put_back(file, store)
    print(json.dumps({"store": str(store), "notes": said}) if as_json else "\n".join(said))

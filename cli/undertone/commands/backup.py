"""``undertone backup`` and ``undertone restore``, for a server's folder or for one store."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid

PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="A file of mode 0600 with the passphrase, of 12 characters or more, that encrypts the backup."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    source: Annotated[str, typer.Argument(help="A server's folder, or one store: a file.")],
    file: Annotated[Path, typer.Argument(help="File for the copy; an existing file is never replaced.")],
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a consistent copy of a server's folder, or of one store, while the server runs.

    The copy of a folder has all that a new machine needs: plans, stores, keys, the authority, fleets, groups and
    passwords. The command lists the secrets in it. Protect the file as you protect them.
    """
    if Path(source).is_dir():
        _backup_home(Path(source), file, _passphrase(passphrase_file), as_json=as_json)
        return
    if passphrase_file is not None:
        raise Invalid("--passphrase-file encrypts the backup of a server's folder, and this is a store")
    from undertone_aggregator.store.store import open_store

    with open_store(source, read_only=True) as opened:
        opened.backup(file)
    with open_store(file, read_only=True) as copied:
        counted, newest = copied.outcomes()["counted"], copied.newest_slot()
    print(json.dumps({"file": str(file), "counted": counted, "newest_slot": newest}) if as_json
          else f"{file}: {counted} reports" + (f", the newest of slot {newest}" if counted else ""))  # fmt: skip


def _passphrase(file: Path | None) -> str | None:
    from undertone_aggregator.base.files import read_secret
    from undertone_operate.sealed import LEAST_PASSPHRASE

    return None if file is None else read_secret(file, private=True, least=LEAST_PASSPHRASE)


def _backup_home(folder: Path, file: Path, passphrase: str | None, *, as_json: bool) -> None:
    from undertone_operate.home_backup import back_up_home

    backed = back_up_home(folder, file, passphrase)
    if as_json:
        secrets = [{"name": name, "what": what} for name, what in backed.secrets]
        print(json.dumps({"file": str(file), "files": backed.files, "secrets": secrets, "notes": backed.notes}))
        return
    print(f"{file}: {backed.files} files of {folder}. Secrets in it:")
    for name, what in backed.secrets:
        print(f"  {name}: {what}")
    for note in backed.notes:
        print(f"note: {note}")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup of a server's folder, or of a store.")],
    target: Annotated[
        Path,
        typer.Argument(help="An empty or new folder, or the store to replace; the old store is kept beside it."),
    ],
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Restore a server's folder or a store from its backup, and list what the backup cannot know."""
    from undertone_operate.backup import restore as put_back
    from undertone_operate.home_backup import is_home_backup, restore_home, restore_sealed_home
    from undertone_operate.sealed import is_sealed

    passphrase = _passphrase(passphrase_file)
    if is_sealed(file) != (passphrase is not None):
        if passphrase is None:
            raise Invalid(f"{file} is encrypted: give its passphrase by --passphrase-file")
        raise Invalid(f"{file} is not encrypted, expected no --passphrase-file")
    if passphrase is not None:
        sentences, kind = restore_sealed_home(file, target, passphrase), "home"
    elif is_home_backup(file):
        sentences, kind = restore_home(file, target), "home"
    else:
        sentences, kind = put_back(file, target), "store"
    print(json.dumps({kind: str(target), "notes": sentences}) if as_json else "\n".join(sentences))

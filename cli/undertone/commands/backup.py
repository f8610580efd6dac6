"""``undertone backup`` and ``undertone restore`` of a server's folder."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="A file of mode 0600 with the passphrase of the encrypted backup: 12 characters or more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    folder: Annotated[Path, typer.Argument(help="The server's folder.")],
    file: Annotated[Path, typer.Argument(help="File for the copy; an existing file is never replaced.")],
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a consistent copy of a server's folder while the server runs.

    The copy has plans, stores, keys, the authority, fleets, groups and passwords. It has no PostgreSQL database and no
    landed files. The command lists the secrets in the copy. Protect the file as you protect these secrets.
    """
    from undertone_operate.backup.home_backup import back_up_home

    backed = back_up_home(folder, file, _passphrase(passphrase_file))
    if as_json:
        secrets = [{"name": name, "what": what} for name, what in backed.secrets]
        print(json.dumps({"file": str(file), "files": backed.files, "secrets": secrets, "notes": backed.notes}))
        return
    print(f"{file} holds {many(backed.files, 'file')} of {folder}")
    print("secrets in the backup:" if backed.secrets else "the backup holds no secrets")
    for name, what in backed.secrets:
        print(f"  {name}: {what}")
    for note in backed.notes:
        print(f"note: {note}")


def _passphrase(file: Path | None) -> str | None:
    from undertone_aggregator.base.files import read_secret
    from undertone_operate.backup.sealed import LEAST_PASSPHRASE

    return None if file is None else read_secret(file, private=True, least=LEAST_PASSPHRASE)


def restore(
    file: Annotated[Path, typer.Argument(help="A backup of a server's folder.")],
    folder: Annotated[Path, typer.Argument(help="Where to restore: an empty or new folder.")],
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Restore a server's folder from its backup, and list what the backup cannot know."""
    from undertone_operate.backup.home_backup import restore_home, restore_sealed_home
    from undertone_operate.backup.sealed import is_sealed

    if not file.is_file():
        what = "a folder" if file.is_dir() else "not a file" if file.exists() else "not there"
        raise Invalid(f"the backup {file} is {what}, expected a file that undertone backup has made")
    passphrase = _passphrase(passphrase_file)
    if is_sealed(file) != (passphrase is not None):
        if passphrase is None:
            raise Invalid(f"{file} is encrypted: give the file of its passphrase by --passphrase-file")
        raise Invalid(f"undertone backup has not encrypted {file}, expected no --passphrase-file")
    sentences = restore_home(file, folder) if passphrase is None else restore_sealed_home(file, folder, passphrase)
    print(json.dumps({"home": str(folder), "notes": sentences}) if as_json else "\n".join(sentences))

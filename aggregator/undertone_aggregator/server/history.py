"""The history of a campaign: who changed what, and when. Commands append to a file in the server's folder."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import read_utf8
from undertone_aggregator.base.owner import give_to_owner, user_name
from undertone_shared.errors import Invalid

_FOLDER = "history"


@dataclass(frozen=True)
class Entry:
    """One change: Unix second, the user of this machine who made it, and what was changed."""

    time: int
    user: str
    what: str

    def row(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        return asdict(self)


def note(folder: Path, campaign: str, what: str, user: str | None = None) -> None:
    """Append a change of a campaign to its history in a server's folder, by the user who runs this. Raises OSError."""
    path = folder / _FOLDER / f"{campaign}.jsonl"
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700)
        give_to_owner(path.parent, folder)
    entry = Entry(int(time.time()), user or _user(), what)
    # The line is written at once in append mode, so that two commands at the same time do not mix their lines.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, json.dumps(entry.row()).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    give_to_owner(path, folder)


def history(folder: Path, campaign: str) -> list[Entry]:
    """Return the changes of a campaign, oldest first. Raises Invalid for a damaged file, OSError."""
    path = folder / _FOLDER / f"{campaign}.jsonl"
    if not path.is_file():
        return []
    entries = []
    for number, line in enumerate(read_utf8(path).splitlines(), 1):
        try:
            entries.append(Entry(**json.loads(line)))
        except (ValueError, TypeError):
            raise Invalid(f"line {number} of {path} is not an entry of a history") from None
    return entries


def _user() -> str:
    """Return the user who runs the command; under sudo, the user who called sudo."""
    return os.environ.get("SUDO_USER") or user_name()

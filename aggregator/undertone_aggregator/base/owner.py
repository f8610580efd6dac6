"""Whose the files are that a command makes as root for a server that runs as a user of its own."""

import os
from pathlib import Path


def give_to_owner(path: Path, like: Path) -> None:
    """A file that root has made is the owner's of ``like``: a folder, or the file in whose place it comes.

    Nothing happens to who is not root. SQLite does the same with its logs. Raises OSError.
    """
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

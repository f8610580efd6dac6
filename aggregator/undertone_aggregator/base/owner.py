"""Ownership of files that root creates for a server that runs as a user of its own."""

import os
from pathlib import Path


def give_to_owner(path: Path, like: Path) -> None:
    """Give a file that root has created to the owner of ``like``: a folder, or the file that it replaces.

    Does nothing for other users than root. SQLite does the same with its log files. Raises OSError.
    """
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

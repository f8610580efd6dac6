"""Gives files that root creates to the user that the server runs as."""

import os
from pathlib import Path


def give_to_owner(path: Path, like: Path) -> None:
    """Give a file that root has made to the owner of ``like``: its folder, or the file that it replaces.

    Does nothing for other users than root. SQLite treats its logs alike. Raises OSError.
    """
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

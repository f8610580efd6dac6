"""Gives files that root creates to the user that the server runs as."""

import getpass
import os
from pathlib import Path


def give_to_owner(path: Path, like: Path) -> None:
    """Give a file that root has made to the owner of ``like``, for example of its folder, or of the file it replaces.

    Does nothing unless this process runs as root. SQLite itself does the same for a store's log files. Raises OSError.
    """
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def user_name() -> str:
    """Return the name of the user who runs this process, or the user's number if the machine has no name for it, as in
    the image of a container.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

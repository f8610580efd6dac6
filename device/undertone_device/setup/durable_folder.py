"""A folder that an operating system shares between users and processes, and whose writes it delays.

Boards do not carry this: they run one program, and their file systems write a file completely when it is closed.
"""

import os
from typing import BinaryIO

from undertone_device.setup.lock import Lock


class DurableFolder:
    """Base class of `FileStorage`: locks ``directory``, keeps its files private, and brings them to the disk."""

    directory: str
    _lock: Lock | None = None

    def claim(self) -> None:
        """Lock the folder until ``close``, or the object's end. Raises Invalid if another process has locked it."""
        self._lock = self._lock or Lock(self.directory)

    def close(self) -> None:
        """Unlock the folder; its content stays."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def create(self, path: str, mode: str) -> BinaryIO:
        """Open a file that only its owner may read."""
        file: BinaryIO = open(path, mode)  # type: ignore[assignment]  # noqa: SIM115
        os.chmod(path, 0o600)
        return file

    def sync(self, file: BinaryIO | None) -> None:
        """Return once the content of ``file`` is on the disk, or for None the names of the folder's files."""
        if file is not None:
            os.fsync(file.fileno())
            return
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

"""A folder that an operating system shares between users and processes, and whose writes it delays.

Boards do not carry this: they run one program, have no `fcntl`, and write a file completely when it is closed.
"""

import fcntl
import os
from typing import BinaryIO

from undertone_shared.errors import Invalid


class Lock:
    """A lock on ``directory`` until ``release`` or the object's end. Raises Invalid if it is locked.

    The folder is made private, because only its owner may know when and how often a device reported.
    """

    _descriptor = -1

    def __init__(self, directory: str):
        os.chmod(directory, 0o700)
        self._descriptor = os.open(directory + "/lock", os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise Invalid(f"state {directory} is in use by another process: stop that process first") from None

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


class DurableFolder:
    """Base class of `FileStorage`: locks ``directory``, keeps its files private, and brings them to the disk."""

    directory: str
    _lock: Lock | None = None

    def claim(self) -> None:
        """Lock the folder until ``close``, or the object's end. Raises Invalid if it is locked."""
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
        """Wait until the content of ``file`` is on the disk; for None, until the names of the folder's files are."""
        if file is not None:
            os.fsync(file.fileno())
            return
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

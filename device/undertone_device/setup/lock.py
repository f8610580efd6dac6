"""Lock of a device's folder for one process. Boards run one program and have no `fcntl`, so they do not use it."""

import fcntl
import os

from undertone_shared.errors import Invalid


class Lock:
    """Locked until ``release``, or the object's end. Raises Invalid if another process has locked ``directory``.

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
            raise Invalid(f"state {directory} is in use by another process, expected one device on it") from None

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()

"""One process holds a device's folder. Not for boards, which run one program: they have no `fcntl`."""

import fcntl
import os

from undertone_shared.errors import Invalid


class Lock:
    """Held until ``release``, or the object's end. Raises Invalid if another process holds ``directory``.

    When and how often a device reported is its owner's alone to read.
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
        """Let go."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()

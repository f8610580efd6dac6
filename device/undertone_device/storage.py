"""Files that survive power loss at any moment: the new content or the old one, never a mixture; and files to read."""

import os

from undertone_shared.errors import Invalid

LARGEST_SECRET = 1024
_replace = getattr(os, "replace", os.rename)
_fsync = getattr(os, "fsync", None)


class FileStorage:
    """Named byte strings in one directory, each written to a new file that is then renamed over the old one.

    Rename is the commit point on POSIX and on LittleFS; FAT gives no such promise (see the flashing guide).
    """

    def __init__(self, directory: str):
        self._directory = directory

    def _path(self, name: str) -> str:
        return self._directory + "/" + name

    def read(self, name: str) -> "bytes | None":
        """The content last written, or None."""
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except OSError:
            return None

    def write(self, name: str, data: "bytes | memoryview") -> None:
        """Durable when it returns. Raises OSError, the old content kept."""
        path = self._path(name)
        with open(path + ".new", "wb") as file:
            file.write(data)
            file.flush()
            if _fsync is not None:
                _fsync(file.fileno())
        _replace(path + ".new", path)
        if _fsync is not None:
            directory = os.open(self._directory, os.O_RDONLY)
            try:
                _fsync(directory)
            finally:
                os.close(directory)

    def delete(self, name: str) -> None:
        """Remove the content, if any."""
        try:
            os.remove(self._path(name))
        except OSError:
            pass


def read_bounded(path: str, most: int) -> bytes:
    """At most ``most`` + 1 bytes of a file. Raises Invalid naming the file if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise Invalid("%s cannot be read: %s" % (path, error))

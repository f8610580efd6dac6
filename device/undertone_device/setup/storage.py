"""Files that survive power loss at any moment: they have the new content or the old one, never a mixture."""

import errno
import os

from undertone_shared.errors import Invalid

try:
    from undertone_device.setup.durable_folder import DurableFolder
except ImportError:  # boards do not carry the module durable_folder
    DurableFolder = object  # type: ignore[assignment,misc]

LARGEST_SECRET = 1024
_PART = 512


class FileStorage(DurableFolder):
    """Named byte strings in one folder, each written to a new file that is then renamed over the old one.

    Rename is the commit point on POSIX and on LittleFS. FAT first removes the old file; after a power cut at that
    moment only NAME.new exists, which is complete. ``read`` then reads NAME.new, and the next ``write`` first renames
    it to NAME.
    """

    def __init__(self, directory: str):
        self.directory = directory
        self.unnamed: set[str] = set()  # names that were read from NAME.new

    def _path(self, name: str) -> str:
        return self.directory + "/" + name

    def read(self, name: str) -> "bytes | None":
        """Return the content last written, None if there is none. Raises OSError for any other failure."""
        for candidate in (name, name + ".new"):
            try:
                with open(self._path(candidate), "rb") as file:
                    data = file.read()
                if candidate != name:
                    self.unnamed.add(name)
                return data
            except OSError as error:
                if not self._lacks(candidate, error):
                    raise
        return None

    def _lacks(self, name: str, error: OSError) -> bool:
        # Some ports use error numbers other than ENOENT for a missing file, so the folder's listing decides; listing
        # may raise OSError.
        return error.errno == errno.ENOENT or name not in os.listdir(self.directory)

    def write(self, name: str, data: "bytes | memoryview") -> None:
        """Write the content durably. Raises OSError, and keeps the old content then."""
        path = self._path(name)
        if name in self.unnamed:
            # Meanwhile the file may have been deleted, or written by another object.
            present = os.listdir(self.directory)
            if name not in present and name + ".new" in present:
                os.rename(path + ".new", path)
            self.unnamed.remove(name)
        sync = getattr(self, "sync", None)
        with getattr(self, "create", open)(path + ".new", "wb") as file:
            file.write(data)
            file.flush()
            if sync is not None:
                sync(file)
        os.rename(path + ".new", path)
        if sync is not None:
            sync(None)

    def delete(self, name: str) -> None:
        """Delete the content, if any. Raises OSError if it cannot be deleted."""
        # The file NAME.new is deleted first: if only NAME were deleted before a power cut, the next start would read
        # NAME.new as its content.
        for candidate in (name + ".new", name):
            try:
                os.remove(self._path(candidate))
            except OSError as error:
                if not self._lacks(candidate, error):
                    raise


def read_bounded(path: str, most: int) -> bytes:
    """Return at most ``most`` + 1 bytes of a file. Raises Invalid naming the file if it cannot be read."""
    parts = []
    left = most + 1
    try:
        with open(path, "rb") as file:
            # The file is read in parts: MicroPython allocates all the bytes that a read asks for, however small the
            # file is.
            part = file.read(min(left, _PART))
            while part:
                parts.append(part)
                left -= len(part)
                part = file.read(min(left, _PART))
    except OSError as error:
        raise Invalid("%s cannot be read: %s" % (path, error))
    return b"".join(parts)

"""The peak memory of the running process, and a device's storage in memory."""

import resource
import sys


def peak_megabytes() -> float:
    """Return the largest resident set so far in MB; macOS counts it in bytes, Linux in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))


class MemoryStorage:
    """A device's storage in memory: it survives the killing of the device, but not the end of the process."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Return the content last written, or None."""
        return self._files.get(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Replace the content."""
        self._files[name] = bytes(data)

    def delete(self, name: str) -> None:
        """Delete the content, if any."""
        self._files.pop(name, None)

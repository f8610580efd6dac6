"""How much memory this process has taken, and a device's storage that is nothing else."""

import resource
import sys


def peak_megabytes() -> float:
    """The largest resident set so far; macOS counts it in bytes, Linux in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))


class MemoryStorage:
    """A device's storage that lives as long as this object: killing a device leaves it, ending the process does not."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """The content last written, or None."""
        return self._files.get(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Replace the content."""
        self._files[name] = bytes(data)

    def delete(self, name: str) -> None:
        """Remove the content, if any."""
        self._files.pop(name, None)

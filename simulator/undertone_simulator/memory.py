"""How much memory this process has taken."""

import resource
import sys


def peak_megabytes() -> float:
    """The largest resident set so far; macOS counts it in bytes, Linux in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))

"""A command in its own process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def started(log: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run `undertone WORDS` with its output in ``log``. The command gets SIGTERM at the end."""
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "undertone", *map(str, words)], stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)

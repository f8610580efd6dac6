"""A program that runs in another process during a test."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.waiting import PATIENCE_SECONDS


@contextlib.contextmanager
def process(words: list[str], log: Path, environment: Mapping[str, str], **options: Any) -> Iterator[None]:
    """Run a program with its output in ``log``. At the end, stop it, or kill it if it does not end."""
    with log.open("wb") as output:
        running = subprocess.Popen(words, stdout=output, stderr=output, env=environment, **options)
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

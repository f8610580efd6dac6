"""A store of a simulated campaign, as a server would have left it."""

import fcntl
import os
from pathlib import Path

import pytest

from support.command import undertone


def simulated_store(temporary: pytest.TempPathFactory) -> Path:
    """Return the path of a store with 400 households and 120 slots at ε = 4, which a test may only read or copy.

    A command makes it in some seconds of processor time. One worker of a run makes it for all workers, and the others
    wait.
    """
    folder = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / "simulated.sqlite"
    with path.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_suffix(".made")
            done = undertone("simulate", "--devices", 400, "--slots", 120, "--epsilon", 4, "--seed", 5, "--store", made)
            assert done.returncode == 0, done.stderr
            made.rename(path)
    return path

"""Stores of simulated campaigns, as a server would have left them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest


def simulated_store(temporary: pytest.TempPathFactory, devices: int, slots: int) -> Path:
    """A store of a fleet of households at ε = 4, by the command; only to be read, or copied.

    It takes some 20 s of a processor: made once for all workers of a run, and each waits for it.
    """
    folder = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / f"simulated-{devices}-{slots}.sqlite"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_suffix(".made")
            command = [sys.executable, "-m", "undertone", "simulate", "--devices", str(devices), "--slots", str(slots)]
            command += ["--epsilon", "4", "--seed", "5", "--store", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
            assert done.returncode == 0, done.stderr
            made.rename(path)
    return path

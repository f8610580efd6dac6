"""Stores of simulated campaigns, as a server would have left them."""

import subprocess
import sys
from pathlib import Path


def simulated_store(path: Path, devices: int, slots: int, *options: str) -> Path:
    """A store in ``path`` of a fleet of households at ε = 4, by the command."""
    command = [sys.executable, "-m", "undertone", "simulate", "--devices", str(devices), "--slots", str(slots)]
    command += ["--epsilon", "4", "--seed", "5", "--store", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return path

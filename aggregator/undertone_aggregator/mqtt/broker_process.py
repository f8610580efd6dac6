"""A running mosquitto: found by the files in its folder, and told to read its configuration again."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

CONFIG_FILE = "mosquitto.conf"
PID_FILE = "mosquitto.pid"


def kept_port(directory: Path) -> int:
    """Return the port of the managed broker's earlier run in this folder, 0 if there was none."""
    try:
        return int((directory / "port").read_text())
    except (OSError, ValueError):
        return 0


def running_pid(directory: Path) -> int | None:
    """Return the process id in `PID_FILE` if that process lives and runs the configuration in ``directory``."""
    try:
        pid = int((directory / PID_FILE).read_text())
    except (OSError, ValueError):
        return None
    return pid if str(directory.resolve() / CONFIG_FILE) in _command_line(pid) else None


def reload_running(directory: Path) -> bool:
    """Make the mosquitto of ``directory`` read its files again; return False if none runs that we may signal."""
    pid = running_pid(directory)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError:
        return False
    return True


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if the process has ended."""
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    command = ["ps", "-p", str(pid), "-o", "command="]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout

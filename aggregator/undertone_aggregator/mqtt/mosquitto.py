"""What the server needs of a mosquitto: lines for its configuration, and a request to read its files again."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

CONFIG_FILE = "mosquitto.conf"
PID_FILE = "mosquitto.pid"
# Largest message in bytes that mosquitto accepts.
_LARGEST_MESSAGE = 16_384
# Memory limit in bytes beyond which mosquitto refuses messages, so that it does not exhaust the machine.
_MEMORY = 1 << 30
# Interval in seconds at which mosquitto publishes how many messages it has dropped.
_SYS_SECONDS = 5
# Largest number of messages of a session that wait for a PUBACK. A worker's batch can hold no more reports than this.
INFLIGHT = 10_000


def mosquitto_limits(
    queued: int = 1_000_000, inflight: int = INFLIGHT, *, username_as_client_id: bool = True
) -> list[str]:
    """Return the lines of mosquitto.conf on which the server's guarantees depend.

    ``queued``: largest number of messages that wait for a session. ``inflight``: largest number of messages of a
    session that wait for a PUBACK.
    """
    return [
        "allow_anonymous false",
        "allow_zero_length_clientid false",
        "# A client id names a session. No user can take over another user's session.",
        f"use_username_as_clientid {str(username_as_client_id).lower()}",
        f"max_queued_messages {queued}",
        "max_queued_bytes 0",
        f"max_inflight_messages {inflight}",
        "max_inflight_bytes 0",
        f"message_size_limit {_LARGEST_MESSAGE}",
        f"memory_limit {_MEMORY}",
        "set_tcp_nodelay true",
        f"sys_interval {_SYS_SECONDS}",
    ]


def running_pid(directory: Path) -> int | None:
    """Return the process id in `PID_FILE` if that process runs with the configuration in ``directory``; else None."""
    try:
        pid = int((directory / PID_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return pid if str(directory.resolve() / CONFIG_FILE) in _command_line(pid) else None


def reload_running(directory: Path) -> bool:
    """Make the mosquitto of ``directory`` read its files again. Return False if none runs that this user may signal."""
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
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False).stdout

"""Notifications to systemd (sd_notify(3)): the server is ready, is alive, or stops."""

import math
import os
import socket
import time


def notify(state: str) -> None:
    """Send one state to systemd; do nothing if the server does not run under systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        # A leading @ denotes the abstract name space.
        out.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


class Watchdog:
    """systemd's watchdog: systemd restarts a server whose loop does not call ``beat`` within WatchdogSec.

    The loop itself calls ``beat``, so that a loop that hangs is detected.
    """

    def __init__(self) -> None:
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        wanted = microseconds.isdecimal() and int(microseconds) > 0
        # The interval is a quarter of systemd's limit.
        self._every = int(microseconds) / 4e6 if wanted else math.inf
        self._beaten_at = -math.inf

    def beat(self) -> None:
        """Notify systemd that the loop runs, unless that happened just before."""
        now = time.monotonic()
        if self._every < math.inf and now >= self._beaten_at + self._every:
            self._beaten_at = now
            notify("WATCHDOG=1")

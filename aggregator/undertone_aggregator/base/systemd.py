"""Notifications to systemd (sd_notify(3)): the server is ready, works, stops."""

import math
import os
import socket
import time


def notify(state: str) -> None:
    """Send one state to the service manager. Does nothing if there is no service manager."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        # systemd writes an address in Linux's abstract namespace with @ as its first character; the system call wants a
        # zero byte there.
        out.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


class Watchdog:
    """systemd's watchdog: systemd restarts a server whose loop does not call ``beat`` within WatchdogSec.

    The loop itself calls ``beat``, so that systemd notices a loop that hangs.
    """

    def __init__(self) -> None:
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        wanted = microseconds.isdecimal() and int(microseconds) > 0
        # Seconds between two notifications: a quarter of the time after which systemd restarts the server.
        self._every = int(microseconds) / 4e6 if wanted else math.inf
        self._beaten_at = -math.inf

    def beat(self) -> None:
        """Notify systemd that the loop works, unless the last notification is younger than a quarter of WatchdogSec.

        Does nothing if systemd has asked for no watchdog.
        """
        now = time.monotonic()
        if self._every < math.inf and now >= self._beaten_at + self._every:
            self._beaten_at = now
            notify("WATCHDOG=1")

"""What systemd is told (sd_notify(3)): that the server is ready, stops, and is alive."""

import os
import socket
import threading


def notify(state: str) -> None:
    """Send one state; nothing happens where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        # A leading @ stands for the abstract name space.
        out.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


def watchdog(stop: threading.Event) -> None:
    """Say so at half the interval that systemd waits for, until ``stop`` is set."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or not int(microseconds):
        return

    def beat() -> None:
        while not stop.wait(int(microseconds) / 2e6):
            notify("WATCHDOG=1")

    threading.Thread(target=beat, name="watchdog", daemon=True).start()

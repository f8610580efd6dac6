"""amqtt in the place of mosquitto, for a demonstration on a machine where there is none."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from undertone_aggregator.broker import HOST, START_SECONDS, STOP_SECONDS, find_mosquitto
from undertone_shared.errors import Invalid

# With amqtt 0.12.1 and 200 devices or more a campaign reached them seconds late; with 100 and 50 all was on time.
MOST_DEVICES = 50
NOTICE = (
    "amqtt is the broker, for this demonstration only: there is no mosquitto here. It checks passwords, but has no"
    " access rules, keeps nothing on disk, loses what is under way to a client that goes away, and would lose reports"
    " of a device with keepalive 0 (refused here). Use mosquitto for anything else."
)
NO_AMQTT = "; for the demonstration only, pip install 'undertone-ldp[demo-broker]' will do"


def needs_amqtt() -> bool:
    """Whether amqtt must stand in for mosquitto. Raises Invalid where neither is here, or a named one does not run."""
    try:
        find_mosquitto()
    except Invalid as missing:
        if os.environ.get("UNDERTONE_MOSQUITTO"):
            raise
        if importlib.util.find_spec("amqtt") is None:
            raise Invalid(f"{missing}{NO_AMQTT}") from None
        return True
    return False


class AmqttBroker:
    """An amqtt child that listens on 127.0.0.1 only; ``passwords``: mosquitto's password file; its log in ``folder``.

    MQTT 3.1.1. Sessions and retained messages live as long as the child.
    """

    def __init__(self, folder: Path, port: int, passwords: Path) -> None:
        self.host = HOST
        self.port = port
        self._log = folder / "amqtt.log"
        self._passwords = passwords
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the child and return once it accepts connections. Raises Invalid with its log when it does not."""
        command = [sys.executable, "-m", "undertone_simulator.amqtt_process", str(self.port), str(self._passwords)]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demonstration, which stops the broker last.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._child.poll() is None:
            if self._accepts():
                return
            time.sleep(0.05)
        self.stop()
        words = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise Invalid(f"amqtt did not start on {self.host}:{self.port}: {words or 'it said nothing'}")

    def stop(self) -> None:
        """End it, and all that it holds. Harmless when it is not running."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
        self._child = None

    def _accepts(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                return True
        except OSError:
            return False

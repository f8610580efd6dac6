"""A server's folder with a fast clock. Its join listener serves the phone's app with the same clock."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from support.mosquitto import find_mosquitto
from support.phone_site import PATIENCE, FastClock
from support.waiting import wait_for

SLOT = 1800
# A day passes in 192 s, a slot in 4 s.
RATE = 450
# Every Python program of the server begins with this file. It sets the clock, also in the app that the server serves.
FAST = """
import time
real = time.time
time.time = lambda: {begin} + (real() - {at}) * {rate}
time.time_ns = lambda: int(time.time() * 1_000_000_000)
import undertone_device.tools.phone_app as app
plain = app.phone_files
app.phone_files = lambda websocket: plain(websocket) | {{"clock.js": {script!r}}}
"""


class PhoneServer:
    """A server whose devices are phones.

    ``address``: that of the app, as `KilledPhone` needs it. ``external``: devices connect to a mosquitto, and phones to
    its WebSocket. Otherwise, the server's own WebSocket is at 127.0.0.2, so that a test can put a `Tap` at 127.0.0.1,
    to which phones connect.
    """

    def __init__(self, folder: Path, free_port: Callable[[], int], *, external: bool = False) -> None:
        self.folder = folder
        self.clock = FastClock(1_800_000_000, RATE)
        (folder / "fast").mkdir()
        (folder / "fast/sitecustomize.py").write_text(
            FAST.format(begin=self.clock.begin, at=self.clock.at, rate=RATE, script=self.clock.script()),
            encoding="utf-8",
        )
        self.environment = os.environ | {"PYTHONPATH": str(folder / "fast")}
        self.websocket, join, health = free_port(), free_port(), free_port()
        self.address = f"http://127.0.0.1:{join}/join/"
        self._health = f"127.0.0.1:{health}"
        port = str(free_port())
        place = ("--broker", f"mqtts://localhost:{port}") if external else ("--port", port)
        self.run("init", "home", "--audit", *place, "--health", self._health)
        toml = folder / "home/server.toml"
        text = toml.read_text(encoding="utf-8")
        own = f'websocket = "127.0.0.2:{self.websocket}"'
        brokers = f'websocket_url = "wss://localhost:{self.websocket}/mqtt"'
        text = text.replace("\nuser =", f"\n{brokers if external else own}\nuser =")
        head, _, rest = text.partition("[join]\n")
        rest = rest.replace("insecure = false", "insecure = true")
        lines = f'listen = "127.0.0.1:{join}"\nurl = "http://127.0.0.1:{join}"\noperator = "The town of Example"\n'
        toml.write_text(f"{head}[join]\n{lines}{rest}", encoding="utf-8")
        options = ["rounds=[4]", "cycle=4", "epoch_slots=200", "report_slots=2000", "measure=last", "min_reports=1"]
        sets = [word for option in options for word in ("--set", option)]
        self.run("campaign", "create", "home", "meters", "--sensor", "energy", "--unit", "Wh", "--bound", "1000",
                 "--epsilon", "1", "--slot-seconds", str(SLOT), *sets)  # fmt: skip
        self.log = (folder / "serve.log").open("wb")
        self._processes = [self._start(self._broker())] if external else []
        self._processes.append(self._start([sys.executable, "-m", "undertone", "serve", "home"]))

    def _broker(self) -> list[str]:
        """Return the command of a mosquitto that has a WebSocket in addition to what `init` wrote."""
        config = self.folder / "home/broker/mosquitto.conf"
        lines = config.read_text(encoding="utf-8").splitlines()
        files = [line for line in lines if line.startswith(("certfile ", "keyfile "))]
        config.write_text(
            "\n".join([*lines, f"listener {self.websocket}", "protocol websockets", *files, ""]), encoding="utf-8"
        )
        return [find_mosquitto() or "mosquitto", "-c", str(config)]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=self.log, stderr=self.log)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command as an operator would; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "undertone", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def invite(self, *options: str) -> str:
        """Make a code; return it once the listener answers."""
        link = self.run("join", "create", "--home", "home", *options).split()
        wait_for(lambda: _listens(self.address), what="the listener for joining")
        return next(word for word in link if "/join#" in word).partition("#")[2]

    def close(self) -> None:
        """End the server, then the broker."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        self.log.close()


def _listens(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            assert b"app.js" in answer.read(), "the listener serves no app: python scripts/vendor.py fetches it"
            return True
    except OSError:
        return False

"""A server of many campaigns in this process, and the command `undertone` in another process."""

import io
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.runner import RunOptions
from undertone_aggregator.server.alert_sender import run_alerts
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.health import serve_health
from undertone_aggregator.server.supervisor import Server, alone, open_server

PLAN = """[campaign]
name = "{name}"
sensor = "{name}"
unit = "Wh"
bound = 1000
epsilon = "{epsilon}"
slot_seconds = 1
rounds = [1000]
cells = 16
"""


def undertone_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in another process, for tests of what holds between processes."""
    return subprocess.run(
        [sys.executable, "-m", "undertone", *arguments], capture_output=True, encoding="utf-8", timeout=240
    )


class Running:
    """A server in a thread."""

    def __init__(self, folder: Path) -> None:
        self.log = io.StringIO()
        self.server: Server | None = None
        self.port = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(folder,))
        self._thread.start()

    def _run(self, folder: Path) -> None:
        journal = Journal(self.log, as_json=True)
        with (
            alone(Home(folder)),
            open_server(Home(folder), self._stop, journal, RunOptions()) as server,
            serve_health(server, "127.0.0.1:0") as self.port,
            run_alerts(server, journal),
        ):
            self.server = server
            server.run(self._stop)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def healthy(self) -> bool:
        """Whether the server listens already and /readyz finds no problem."""
        return bool(self.port) and self.get("/readyz")[0] == 200

    def ready(self, *names: str) -> bool:
        """Whether these campaigns take in reports."""
        states = self.states()
        return all(states.get(name, {}).get("ready") for name in names)

    def states(self) -> dict[str, Any]:
        """What /readyz says about each campaign."""
        campaigns: dict[str, Any] = json.loads(self.get("/readyz")[1])["campaigns"]
        return campaigns

    def events(self, campaign: str) -> list[str]:
        lines = map(json.loads, self.log.getvalue().splitlines())
        return [line["event"] for line in lines if line.get("campaign") == campaign]

    def end(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

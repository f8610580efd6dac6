"""From `undertone init` to `undertone verify`, with a phone that joins by a link, pauses, is killed and leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.phone_browser import KilledPhone
from support.phone_site import PATIENCE, FastClock
from support.phone_tap import Tap
from support.waiting import wait_for
from undertone_shared.off_board.intake import unpack

SLOT = 1800
REPORTS = 20
# A day passes in 96 s, a slot in 2 s.
RATE = 900
# Every Python program of the server begins with this file: its clock, and the same clock in the app that it serves.
FAST = """
import time
real = time.time
time.time = lambda: {begin} + (real() - {at}) * {rate}
time.time_ns = lambda: int(time.time() * 1_000_000_000)
import undertone_device.tools.phone_app as app
plain = app.phone_files
app.phone_files = lambda: plain() | {{"clock.js": {script!r}}}
"""


class Server:
    """A server's folder on a fast clock. ``address``: that of the app, as `KilledPhone` wants it."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self.folder = folder
        self.clock = FastClock(1_800_000_000, RATE)
        (folder / "fast").mkdir()
        (folder / "fast/sitecustomize.py").write_text(
            FAST.format(begin=self.clock.begin, at=self.clock.at, rate=RATE, script=self.clock.script())
        )
        self._environment = os.environ | {"PYTHONPATH": str(folder / "fast")}
        self.websocket, join, health = free_port(), free_port(), free_port()
        self.address = f"http://127.0.0.1:{join}/join/"
        self._health = f"127.0.0.1:{health}"
        self.run("init", "home", "--audit", "--port", str(free_port()), "--health", self._health)
        toml = folder / "home/server.toml"
        text = toml.read_text()
        text = text.replace("\nuser =", f'\nwebsocket = "127.0.0.2:{self.websocket}"\nuser =')
        head, _, rest = text.partition("[join]\n")
        rest = rest.replace("insecure = false", "insecure = true")
        lines = f'listen = "127.0.0.1:{join}"\nurl = "http://127.0.0.1:{join}"\noperator = "The town of Example"\n'
        toml.write_text(f"{head}[join]\n{lines}{rest}")
        options = ["rounds=[4]", "cycle=4", "epoch_slots=200", "report_slots=2000", "measure=last", "min_reports=1"]
        sets = [word for option in options for word in ("--set", option)]
        self.run("campaign", "create", "home", "meters", "--sensor", "energy", "--unit", "Wh", "--bound", "1000",
                 "--epsilon", "1", "--slot-seconds", str(SLOT), *sets)  # fmt: skip
        self.log = (folder / "serve.log").open("wb")
        self._serving = subprocess.Popen(
            [sys.executable, "-m", "undertone", "serve", "home"],
            cwd=folder, env=self._environment, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command as an operator would; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "undertone", *words],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self) -> None:
        self._serving.send_signal(signal.SIGTERM)
        self._serving.wait(PATIENCE)
        self.log.close()


@pytest.fixture
def server(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Server]:
    running = Server(tmp_path, free_port)
    yield running
    running.close()


class Journey:
    """Notes what the phone sends, and kills its browser while it sends a report, as often as it is armed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ledger = (server.folder / "phone.log").open("w")
        self.phone: KilledPhone | None = None
        self.reports: dict[int, bytes] = {}
        self.armed = False
        self.killed = threading.Event()

    def sent(self, topic: str, report: bytes) -> None:
        """Note a report; the server has not received it yet."""
        milliseconds = int(self._server.clock.now() * 1000)
        self._ledger.write(f"{milliseconds} sent {topic.split('/')[-2]} {report.hex()}\n")
        self._ledger.flush()
        assert self.reports.setdefault(unpack(report).slot, report) == report, "a slot was drawn twice"
        if self.armed and self.phone is not None:
            self.armed = False
            self.phone.kill()
            self.killed.set()

    def close(self) -> None:
        self._ledger.close()


@pytest.mark.services
def test_a_phone_joins_reports_for_a_day_survives_kills_and_everything_is_accounted_for(
    chromium: Any, server: Server, tmp_path: Path
) -> None:
    journey = Journey(server)
    tap = Tap(server.websocket, ("127.0.0.2", server.websocket), journey.sent)
    try:
        link = server.run("join", "create", "--home", "home", "--about", "How much do homes use?").split()
        code = next(word for word in link if "/join#" in word).partition("#")[2]
        wait_for(lambda: listens(server.address), what="the listener for joining")
        phone = journey.phone = KilledPhone(chromium, server, tmp_path / "profile")
        with phone.running(f"#{code}") as page:
            wait_for_screen(page, "join")
            assert "How much do homes use?" in page.inner_text("#screen")
            page.get_by_role("button", name="How am I protected?").click()
            assert "fifty to fifty" in page.inner_text("#screen")
            page.get_by_role("button", name="I agree and take part").click()
            wait_for_screen(page, "running")
            wait_for_reports(page, journey, 3)
            page.get_by_text("Pause", exact=True).click()
            page.get_by_role("button", name="For a day").click()
            wait_for_screen(page, "paused")
            page.get_by_role("button", name="Go on").click()
            wait_for_screen(page, "running")
        for kill in range(5):
            journey.killed.clear()
            with phone.running() as page:
                wait_for_screen(page, "running")
                journey.armed = True
                assert journey.killed.wait(PATIENCE), f"kill {kill}"
        with phone.running() as page:
            wait_for_screen(page, "running")
            wait_for_reports(page, journey, REPORTS)
            page.on("dialog", lambda dialog: dialog.accept())
            page.get_by_role("button", name="Leave").click()
            wait_for_screen(page, "left")
        slots = sorted(journey.reports)
        assert (slots[-1] - slots[0]) * SLOT < 2 * 86400
        sequences = [unpack(report).sequence for report in journey.reports.values()]
        assert sorted(sequences) == list(range(1, len(sequences) + 1))
        verify = ["verify", "--ledger", "phone.log", "--store", "home/stores/meters.sqlite", "--json"]
        accounts = json.loads(server.run(*verify))
        assert accounts["unexplained"] == {}
        assert accounts["reports"]["counted"] == len(sequences)
    finally:
        tap.close()
        journey.close()


def listens(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_for_screen(page: Any, name: str) -> None:
    page.wait_for_selector(f"#screen[data-screen={name}]", timeout=1000 * PATIENCE)


def wait_for_reports(page: Any, journey: Journey, count: int) -> None:
    """Wait until the phone has sent so many, and the server has acknowledged them."""
    deadline = time.monotonic() + 5 * PATIENCE
    while len(journey.reports) < count or "to be sent" in page.inner_text("#screen"):
        assert time.monotonic() < deadline
        page.wait_for_timeout(100)

"""The page of a server's folder: all its campaigns, also new ones, and its buttons. `serve` runs the page."""

import errno
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import undertone
from support.many import PLAN
from support.refusal import refused
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.binding import STATE
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.passwords import read_passwords
from undertone_aggregator.server import page_process
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.lifecycle import actions
from undertone_aggregator.server.page_process import run_page
from undertone_aggregator.settings.options import split_address
from undertone_aggregator.store.inventory import ACTIVE, REVOKED, Device
from undertone_aggregator.store.store import open_store
from undertone_aggregator.web.login import COOKIE, HEADER
from undertone_aggregator.web.site import HomeSite
from undertone_shared.errors import Invalid

TOKEN = "a-token-of-at-least-thirty-two-characters"


def begun(home: Home, name: str) -> None:
    """Write a campaign's plan, and a store with two devices, as its server leaves it."""
    home.write_plan(name, PLAN.format(name=name, epsilon=1))
    with open_store(home.config(name).store_url, campaign=name) as store:
        store.set_meta({"campaign": name, STATE: "running"})
        store.set_devices([Device(f"{name}-{number:03d}", "all", ACTIVE, 0) for number in (1, 2)])


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> Home:
    page = free_port()
    (tmp_path / "page.token").write_text(TOKEN, encoding="utf-8")
    (tmp_path / "page.token").chmod(0o600)
    (tmp_path / "server.toml").write_text(
        f'[server]\npage = "127.0.0.1:{page}"\npage_token = "page.token"\n', encoding="utf-8"
    )
    made = Home(tmp_path)
    begun(made, "power")
    made.broker.mkdir()
    credentials.write_passwords(made.broker / "passwords", {"power-001": "secret", "power-002": "secret"})
    return made


def ask(
    home: Home, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    host, _, port = (home.server.page or "").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request(method, f"/api/v1/{path}", body, {"Origin": f"http://{home.server.page}", **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_campaigns_that_come_later_are_shown_and_one_that_is_broken_hides_none(home: Home) -> None:
    site = HomeSite(home)
    try:
        assert site.names() == ["power"]
        begun(home, "water")
        home.write_plan("gas", "[campaign]\nname = 3\n")
        assert site.names() == ["power", "water"]
        assert site.actions() == {}
    finally:
        site.close()
    acting = HomeSite(home, actions(home))
    assert sorted(acting.actions()) == ["pause", "resume", "retire"]
    assert acting.actions()["retire"]("water", "") == "campaign water is set to retired; before, it was set to running"
    with pytest.raises(Invalid, match="retired for good"):
        acting.actions()["resume"]("water", "")
    with refused("device", "'water-001'"):
        acting.actions()["pause"]("power", "water-001")
    acting.close()


@pytest.mark.slow
@pytest.mark.waits
def test_serve_runs_it_and_whoever_has_the_token_pauses(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    with run_page(home, Journal()):

        def answers() -> bool:
            try:
                return ask(home, "GET", "campaigns")[0] == 200
            except OSError:
                return False

        wait_for(answers)
        assert ask(home, "POST", "campaigns/power/actions/pause")[0] == 403
        status, headers, body = ask(home, "POST", "session", json.dumps({"token": TOKEN}))
        assert status == 200
        cookie = headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(COOKIE)
        logged_in = {"Cookie": cookie, HEADER: json.loads(body)["token"]}
        assert ask(home, "POST", "campaigns/power/actions/pause", **logged_in)[0] == 200
        revoke = "campaigns/power/actions/revoke"
        device = json.dumps({"device": "power-001"})
        assert ask(home, "POST", revoke, device)[0] == 403
        # A second call finishes what an interrupted one left.
        assert [ask(home, "POST", revoke, device, **logged_in)[0] for _ in range(2)] == [200, 200]
        for wrong, said in (("power-009", "not in the inventory"), ("../x", "1 to 32")):
            status, _, body = ask(home, "POST", revoke, json.dumps({"device": wrong}), **logged_in)
            assert (status, said in json.loads(body)["error"]) == (400, True), body
        with open_store(home.config("power").store_url, campaign="power", read_only=True) as store:
            assert store.meta()[STATE] == "paused"
            assert store.devices()["power-001"].state == REVOKED
        assert list(read_passwords(home.broker / "passwords")) == ["power-002"]
    with pytest.raises(OSError, match="refused"):
        ask(home, "GET", "campaigns")
    assert "Traceback" not in capfd.readouterr().err


def test_a_page_that_could_not_be_started_is_started_later(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page fails to start, for example, while the machine can start no further process."""
    started, begin = threading.Event(), subprocess.Popen
    failures = [OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))] * 2

    def popen(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        started.set()
        return begin([sys.executable, "-c", "input()"], **options)

    monkeypatch.setattr(page_process.subprocess, "Popen", popen)
    monkeypatch.setattr(page_process, "_AGAIN_SECONDS", 0.01)
    log = io.StringIO()
    with run_page(home, Journal(log)):
        assert started.wait(120)
    assert "cannot be started" in log.getvalue()


@pytest.mark.waits
def test_a_server_that_is_killed_leaves_no_page_behind(home: Home) -> None:
    code = """
import sys, time
from pathlib import Path
from undertone_aggregator.server.folder import Home
from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.page_process import run_page
with run_page(Home(Path(sys.argv[1])), Journal()):
    time.sleep(600)
"""
    place = split_address("page", home.server.page)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(place) == 0

    server = subprocess.Popen([sys.executable, "-c", code, str(home.folder)], stdin=subprocess.DEVNULL)
    try:
        wait_for(listens)
    finally:
        server.kill()
        server.wait()
    wait_for(lambda: not listens())


@pytest.mark.slow
@pytest.mark.waits
def test_slow_and_silent_readers_hold_nobody_up(home: Home) -> None:
    """Many event streams are opened and never read.

    Others still get answers. After the streams are closed, as many new ones are accepted.
    """
    with run_page(home, Journal()):
        host, _, port = (home.server.page or "").rpartition(":")

        def connects() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        wait_for(connects)
        readers = []
        for _ in range(200):
            made = socket.create_connection((host, int(port)), 120)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.sendall(b"GET /api/v1/campaigns/power/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            readers.append(made)
        began = time.monotonic()
        done = threading.Event()

        def others() -> None:
            for _ in range(20):
                assert ask(home, "GET", "campaigns")[0] == 200
            done.set()

        thread = threading.Thread(target=others)
        thread.start()
        assert done.wait(150), f"no answers within {time.monotonic() - began:.0f} s"
        thread.join()
        for reader in readers:
            reader.close()
        # Streams that were closed made room: as many new ones are accepted.
        again = [socket.create_connection((host, int(port)), 120) for _ in range(200)]
        for made in again:
            made.sendall(b"GET /api/v1/campaigns/power/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert made.recv(12) == b"HTTP/1.1 200"
            made.close()


def test_whose_page_it_is_has_to_be_said(home: Home, tmp_path: Path) -> None:
    assert "expected stores or --home DIR" in undertone("web").stderr
    assert "--token cannot be given without --home" in undertone("web", "x.sqlite", "--token", "t").stderr
    refused = undertone(
        "web", "--home", str(tmp_path), "--listen", "0.0.0.0:1", "--token", str(tmp_path / "page.token")
    )
    assert "expected a loopback address" in refused.stderr

"""The page's buttons in a real browser with a real server: whoever has the token pauses, resumes and retires."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chromium import MISSING, browser, find_chromium
from support.ci import unavailable
from support.command import undertone
from support.page import pages, until
from support.waiting import wait_for
from undertone_aggregator.campaign.binding import STATE
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store

pytestmark = pytest.mark.services
TOKEN = "a-token-of-at-least-thirty-two-characters"
PLAN = ("--sensor", "load", "--unit", "Wh", "--bound", "90", "--epsilon", "1")


@pytest.fixture
def served(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Home]:
    """A server's folder with the campaign power, and the server that runs it."""
    folder, port, page = tmp_path / "home", free_port(), free_port()
    where = ("--port", port, "--health", "127.0.0.1:0", "--page", f"127.0.0.1:{page}")
    assert undertone("init", folder, *where).returncode == 0
    assert undertone("campaign", "create", folder, "power", *PLAN).returncode == 0
    (folder / "page.token").write_text(TOKEN, encoding="utf-8")
    (folder / "page.token").chmod(0o600)
    settings = folder / "server.toml"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace('# page_token = "page.token"', 'page_token = "page.token"'),
        encoding="utf-8",
    )
    assert Home(folder).server.page_token == "page.token"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "undertone", "serve", str(folder)], stdout=log, stderr=log)
        try:
            wait_for(lambda: accepts(page))
            yield Home(folder)
        finally:
            server.terminate()
            server.wait(60)
    assert "Traceback" not in (folder / "log").read_text(encoding="utf-8")


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def state(home: Home) -> str | None:
    with open_store(home.config("power").store_url, campaign="power", read_only=True) as store:
        return store.meta().get(STATE)


BUTTONS = "[...document.querySelectorAll('#actions button')].map((button) => button.textContent).join()"


def test_a_campaign_is_paused_resumed_and_retired_by_whoever_has_the_token(served: Home) -> None:
    if find_chromium() is None:
        unavailable(MISSING)
    with browser() as chromium, pages(chromium, f"http://{served.server.page}/") as open_it:
        page: Any = open_it("#power")
        until(page, "!document.querySelector('#login').hidden")
        assert page.evaluate(BUTTONS) == "", "nobody acts without the token"
        page.fill("#login input[name=token]", TOKEN)
        page.press("#login input[name=token]", "Enter")
        until(page, f"{BUTTONS} === 'pause power,retire power,revoke a device'")
        assert page.input_value("#login input[name=token]") == "", "the page keeps no token"

        asked: list[str] = []

        def answer(yes: bool) -> None:
            def decide(dialog: Any) -> None:
                asked.append(dialog.message)
                (dialog.accept if yes else dialog.dismiss)()

            page.once("dialog", decide)

        def press(button: str, *, yes: bool = True) -> None:
            answer(yes)
            page.click(f"#actions button:text-is('{button}')")

        press("pause power", yes=False)
        assert state(served) != "paused", "the person thought better of it"
        press("pause power")
        until(page, f"{BUTTONS} === 'resume power,retire power,revoke a device'")
        assert state(served) == "paused"
        press("resume power")
        until(page, f"{BUTTONS} === 'pause power,retire power,revoke a device'")
        assert state(served) == "running"
        press("retire power")
        until(page, f"{BUTTONS} === ''")
        assert state(served) == "retired"
        assert asked == [f"Really {verb} power?" for verb in ("pause", "pause", "resume", "retire")]
        page.click("#logout")
        until(page, "!document.querySelector('#login').hidden")

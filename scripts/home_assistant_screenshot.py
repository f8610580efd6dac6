"""Take the guide's picture of Home Assistant's dialog in which a household is asked to join, with a real server.

.venv/bin/python scripts/home_assistant_screenshot.py     # after make services

It writes docs/home-assistant.png. Home Assistant's page needs two more packages in its environment:
.tools/home-assistant/bin/pip install numpy==2.2.0 PyTurboJPEG==1.7.5
"""

import contextlib
import json
import socket
import sys
import tempfile
import time
import urllib.error
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.chromium import browser
from support.home_assistant import HomeAssistant
from support.joined_home import ENERGY, METER, Server

TARGET = Path(__file__).resolve().parent.parent / "docs/home-assistant.png"
ABOUT = "For the neighbourhood's battery: how much power do our streets need in the evening?"
_PATIENCE_MILLISECONDS = 300_000


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_onboarding(home: HomeAssistant) -> None:
    """Mark the steps of Home Assistant's own introduction as done, because some need integrations that are missing."""
    for step in ("core_config", "analytics", "integration"):
        with contextlib.suppress(urllib.error.HTTPError):
            home.post(f"/api/onboarding/{step}", {"client_id": f"{home.url}/", "redirect_uri": f"{home.url}/"})


def take(home: HomeAssistant, link: str) -> None:
    """Walk through the dialog's steps to the question, and take its picture."""
    tokens = home.tokens() | {
        "hassUrl": home.url,
        "clientId": f"{home.url}/",
        "expires": 1000 * int(time.time() + 1700),
    }
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 900, "height": 960}, locale="en")
        page.set_default_timeout(_PATIENCE_MILLISECONDS)
        page.goto(f"{home.url}/auth/authorize", wait_until="commit")
        page.evaluate("tokens => localStorage.setItem('hassTokens', JSON.stringify(tokens))", tokens)
        page.goto(f"{home.url}/config/integrations/dashboard/add?domain=undertone", wait_until="commit")
        page.get_by_role("button", name="OK", exact=True).click()
        page.locator("step-flow-form input").first.fill(link)
        page.get_by_role("button", name="Submit").click()
        page.get_by_text("How often").wait_for()
        page.locator("dialog-data-entry-flow .mdc-dialog__surface").screenshot(path=str(TARGET))


def main() -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(folder / "server", free_port)
        options = folder / "server/server.toml"
        options.write_text(
            options.read_text(encoding="utf-8").replace('# operator = "', 'operator = "'), encoding="utf-8"
        )
        server.run("campaign", "create", server.folder, "load", *ENERGY, "--epsilon", "1")
        home = HomeAssistant(folder / "home", free_port(), extra="frontend:\n")
        try:
            server.start()
            home.start()
            end_onboarding(home)
            home.set(METER, 1234.5, friendly_name="Electricity meter")
            made = server.run(
                "join", "create", "--home", server.folder, "--campaign", "load", "--about", ABOUT, "--json"
            )
            take(home, json.loads(made)["links"][0])
        finally:
            home.stop()
            server.stop()


if __name__ == "__main__":
    main()

"""Debian's Firefox ESR without a window, driven by WebDriver BiDi over its WebSocket."""

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from support.process import process
from support.waiting import PATIENCE_SECONDS, wait_for

MISSING = "Firefox ESR was not found: apt-get install firefox-esr"
_ADDRESS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
# With these settings, Firefox asks no other hosts, and asks nothing when it starts.
_QUIET = {
    "app.update.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}


def find_firefox() -> str | None:
    """Return the path of Firefox, or None if it is not installed."""
    return shutil.which("firefox-esr")


class Page:
    """One tab. If the browser itself asks a question, nobody answers."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._ask("session.new", capabilities={})
        self._tab = self._ask("browsingContext.create", type="tab")["context"]

    def _ask(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE_SECONDS))
            if answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def goto(self, url: str) -> None:
        """Open an address."""
        self._ask("browsingContext.navigate", context=self._tab, url=url, wait="interactive")

    def resize(self, width: int, height: int) -> None:
        """Give the tab's page a size in CSS pixels."""
        self._ask("browsingContext.setViewport", context=self._tab, viewport={"width": width, "height": height})

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression: a text, a number or a Boolean."""
        found = self._ask(
            "script.evaluate",
            expression=expression,
            target={"context": self._tab},
            awaitPromise=True,
            userActivation=True,
        )
        assert found["type"] == "success", found
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        wait_for(lambda: self.evaluate(f"Boolean({expression})"), 2 * PATIENCE_SECONDS, what=expression)

    def screen(self, name: str) -> None:
        """Wait for a screen of the app."""
        self.wait(f"document.getElementById('screen')?.dataset.screen === {json.dumps(name)}")

    def press(self, label: str) -> None:
        """Press the button with this label."""
        buttons = "[...document.querySelectorAll('button')]"
        self.evaluate(f"{buttons}.find((each) => each.textContent === {json.dumps(label)}).click()")

    def says(self, text: str) -> None:
        """Wait until the page shows the text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def picture(self) -> str:
        """Return a picture of the whole page, as PNG in base64."""
        return str(self._ask("browsingContext.captureScreenshot", context=self._tab, origin="document")["data"])


@contextlib.contextmanager
def firefox(folder: Path, **settings: Any) -> Iterator[Page]:
    """A running Firefox with a new profile in ``folder``.

    ``settings``: further settings, with _ for a dot and __ for _.
    """
    folder.mkdir()
    lines = _QUIET | {
        name.replace("__", "\0").replace("_", ".").replace("\0", "_"): value for name, value in settings.items()
    }
    (folder / "user.js").write_text(
        "".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in lines.items()),
        encoding="utf-8",
    )
    log = folder / "output.log"
    words = [str(find_firefox()), "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port", "0"]
    with process([*words, "about:blank"], log, os.environ | {"HOME": str(folder)}):
        wait_for(lambda: _ADDRESS.search(log.read_text(encoding="utf-8")), 4 * PATIENCE_SECONDS, "Firefox's address")
        found = _ADDRESS.search(log.read_text(encoding="utf-8"))
        assert found is not None
        with connect(f"{found[1]}/session", open_timeout=PATIENCE_SECONDS, max_size=None) as socket:
            yield Page(socket)

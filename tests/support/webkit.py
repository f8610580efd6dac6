"""Debian's WebKitGTK: its MiniBrowser on a virtual screen, driven by WebDriver over HTTP."""

import contextlib
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.ports import free_port
from support.process import process
from support.waiting import PATIENCE_SECONDS, wait_for

MISSING = "WebKitGTK's driver or Xvfb was not found: apt-get install webkit2gtk-driver xvfb"
_SIZE = (1280, 900)


def find_webkit() -> str | None:
    """Return the driver's path, or None if there is no driver or no virtual screen."""
    return shutil.which("WebKitWebDriver") if shutil.which("Xvfb") else None


class Page:
    """One window."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session = ""
        options = {"args": ["--automation", "--private"]}
        patience = {"script": 4000 * PATIENCE_SECONDS}
        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": options, "timeouts": patience}}
        self._session = "/" + self._ask("POST", "", capabilities=capabilities)["sessionId"]

    def _ask(self, method: str, path: str, **parameters: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5 * PATIENCE_SECONDS)
        body = json.dumps(parameters) if method == "POST" else None
        connection.request(method, f"/session{self._session}{path}", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
        connection.close()
        assert not isinstance(answer, dict) or "error" not in answer, answer
        return answer

    def goto(self, url: str) -> None:
        """Open an address."""
        self._ask("POST", "/url", url=url)

    def resize(self, width: int, height: int) -> None:
        """Give the window a size."""
        self._ask("POST", "/window/rect", x=0, y=0, width=width, height=height)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression. If the value is a promise, return what it resolves to."""
        script = f"const done = arguments[0]; Promise.resolve({expression}).then(done, (error) => done(String(error)))"
        return self._ask("POST", "/execute/async", script=script, args=[])

    def run(self, script: str) -> None:
        """Run a program in the page. The page's policy would forbid it to a script of the page."""
        self._ask("POST", "/execute/sync", script=script, args=[])

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        wait_for(lambda: self.evaluate(f"Boolean({expression})"), 2 * PATIENCE_SECONDS, what=expression)

    def picture(self) -> str:
        """Return a picture of the window, as PNG in base64."""
        return str(self._ask("GET", "/screenshot"))

    def close(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def webkit(folder: Path, language: str = "en_US.UTF-8") -> Iterator[Page]:
    """A running MiniBrowser whose files are in ``folder``."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        reading, writing = os.pipe()
        words = ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{_SIZE[0]}x{_SIZE[1]}x24", "-nolisten", "tcp"]
        stack.enter_context(process(words, folder / "screen.log", os.environ, pass_fds=[writing]))
        os.close(writing)
        with open(reading, encoding="ascii") as number:
            display = f":{number.readline().strip()}"
        # The browser's own sandbox needs rights that a container does not give. The browser only reads pages of this
        # machine.
        environment = os.environ | {
            "DISPLAY": display,
            "HOME": str(folder),
            "LC_ALL": language,
            "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
        }
        port = free_port()
        log = folder / "output.log"
        stack.enter_context(process([str(find_webkit()), f"--port={port}"], log, environment))

        def answers() -> bool:
            with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as at:
                at.connect()
                return True
            return False

        wait_for(answers, 2 * PATIENCE_SECONDS, what="WebKit's driver")
        page = Page(port)
        stack.callback(page.close)
        yield page

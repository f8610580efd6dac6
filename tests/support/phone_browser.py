"""A phone whose browser a test kills: Chromium in its own process, with a profile that stays."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from support.chromium import QUIET, find_chromium
from support.phone_site import PATIENCE


class Served(Protocol):
    """A server of the phone's app. ``address``: that of the page."""

    @property
    def address(self) -> str: ...


class KilledPhone:
    """A phone whose browser the test kills.

    Its profile stays. ``chromium``: playwright's type, which connects to it.
    """

    def __init__(self, chromium: Any, site: Served, folder: Path) -> None:
        self._kind = chromium.browser_type
        self._site = site
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self, fragment: str = "") -> Iterator[Any]:
        """Start the browser; yield the app's page. At the end, the browser is killed if it still runs."""
        program = find_chromium()
        assert program is not None
        port = self._folder / "DevToolsActivePort"
        port.unlink(missing_ok=True)
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={self._folder}", *QUIET]
        self._process = subprocess.Popen(
            [program, *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not port.exists() or len(port.read_text(encoding="utf-8").split()) < 2:
                assert time.monotonic() < deadline
                assert self._process.poll() is None
                time.sleep(0.02)
            number = port.read_text(encoding="utf-8").split()[0]
            browser = self._kind.connect_over_cdp(f"http://127.0.0.1:{number}")
            page = browser.contexts[0].pages[0]
            page.goto(self._site.address + fragment, timeout=1000 * PATIENCE)
            yield page
            browser.close()
        finally:
            self.kill()
            self._process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the browser with all its processes."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

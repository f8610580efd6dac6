"""Take the pictures of aggregator/README.md: the page over a simulated campaign, and doctor beside a running server.

.venv/bin/python scripts/screenshots.py        # needs Chromium and mosquitto; writes docs/page.png, docs/doctor.png
"""

import html
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent.parent / "docs"
UNDERTONE = [sys.executable, "-m", "undertone"]
WIDTH = 1000
_WAIT_SECONDS = 60.0
# An HTML page that looks like a terminal.
_TERMINAL = """<body style="margin:0;background:#16181d"><pre style="margin:0;padding:18px;color:#e6e6e6;
font:13px/1.5 monospace">{}</pre></body>"""


def run(*words: str, folder: Path) -> str:
    """Run a command as an operator would."""
    return subprocess.run([*UNDERTONE, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(url: str) -> None:
    """Wait until the address answers."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def page(browser: Any, folder: Path) -> None:
    """Take a picture of the page: a campaign over three days of half-hours of 2,000 households."""
    run("simulate", "--devices", "2000", "--slots", "144", "--epsilon", "2", "--seed", "7", "--store", "power.sqlite",
        folder=folder)  # fmt: skip
    port = free_port()
    web = subprocess.Popen([*UNDERTONE, "web", "power.sqlite", "--listen", f"127.0.0.1:{port}"], cwd=folder)
    try:
        wait(f"http://127.0.0.1:{port}/api/v1/campaigns")
        shown = browser.new_page(viewport={"width": WIDTH, "height": 840})
        shown.goto(f"http://127.0.0.1:{port}/")
        shown.wait_for_selector(".card a")
        shown.click(".card a")
        shown.wait_for_selector("#chart canvas")
        shown.select_option("#choose select[name=span]", "")
        shown.wait_for_timeout(1500)
        shown.focus("#chart")
        shown.keyboard.press("ArrowLeft")
        shown.wait_for_timeout(500)
        shown.screenshot(path=DOCS / "page.png")
    finally:
        web.terminate()
        web.wait()


def doctor(browser: Any, folder: Path) -> None:
    """Take a picture of doctor's output beside a running server."""
    health = f"127.0.0.1:{free_port()}"
    run("init", "home", "--health", health, folder=folder)
    run("campaign", "create", "home", "power", "--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1",
        folder=folder)  # fmt: skip
    server = subprocess.Popen([*UNDERTONE, "serve", "home"], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait(f"http://{health}/readyz")
        time.sleep(2)
        said = run("doctor", "home", folder=folder)
    finally:
        server.terminate()
        server.wait()
    shown = browser.new_page(viewport={"width": WIDTH, "height": 100})
    shown.set_content(_TERMINAL.format(html.escape(f"$ undertone doctor home\n{said.rstrip()}")))
    shown.screenshot(path=DOCS / "doctor.png", full_page=True)


def main() -> int:
    """Take both pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page(browser, Path(name))
        doctor(browser, Path(name))
        browser.close()
    for picture in ("page.png", "doctor.png"):
        print(f"{DOCS / picture}: {(DOCS / picture).stat().st_size >> 10} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

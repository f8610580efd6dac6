"""Take the pictures of the guides: the page over a simulated campaign, doctor beside a running server, and a phone.

.venv/bin/python scripts/screenshots.py        # needs Chromium, mosquitto and scripts/vendor.py

It writes docs/page.png, docs/doctor.png and docs/phone.png.
"""

import base64
import html
import json
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

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.factory import policy_of
from support.mosquitto import find_mosquitto
from support.paho_client import leave
from support.phone_site import CODE, FastClock, PhoneSite, Receiver, WebSocketBroker, offer

DOCS = Path(__file__).resolve().parent.parent / "docs"
UNDERTONE = [sys.executable, "-m", "undertone"]
WIDTH = 1000
PHONE = {"width": 390, "height": 844}
_SIDE_BY_SIDE = "body{margin:8px;background:#c9cfcd;display:flex}img{margin:8px;border-radius:24px}"
_WAIT_SECONDS = 60.0
# An HTML page that looks like a terminal.
_TERMINAL = """<body style="margin:0;background:#16181d"><pre style="margin:0;padding:18px;color:#e6e6e6;
font:13px/1.5 monospace">{}</pre></body>"""


def run(*words: str, folder: Path) -> str:
    """Run a command as an operator would."""
    return subprocess.run([*UNDERTONE, *words], cwd=folder, capture_output=True, encoding="utf-8", check=True).stdout


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


def phone(browser: Any, folder: Path) -> None:
    """Take a picture of the phone's five screens, side by side."""
    binary = find_mosquitto()
    assert binary is not None
    port = free_port()
    device = {
        "name": "phone-1",
        "broker": {"host": "127.0.0.1", "port": port, "password_file": "password"},
        "campaigns": ["meters"],
        "policy": "policy.json",
        "state": "state",
    }
    slot = 3600
    limits = policy_of(
        measures=["last"],
        unit="Wh",
        cap=[2719, 1000],
        slot_seconds=slot,
        theta=[100, 1000],
        lifetime=1000 << 20,
        until=1_830_297_600,
    )
    files = {"device.json": json.dumps(device), "policy.json": json.dumps(limits), "password": "secret"}
    # An hour passes in 6 s.
    clock = FastClock(1_800_000_000, 600)
    shown = offer(files["policy.json"])
    shown["about"] = "We want to know how much electricity the homes of our town use, to plan the new grid."
    with WebSocketBroker(binary, folder, port, free_port()) as broker:
        site = PhoneSite(free_port(), f"ws://localhost:{broker.websocket}", files, shown)
        site.replaced["clock.js"] = clock.script()
        receiver = Receiver(port)
        receiver.issue(clock.now(), slot)
        view = browser.new_context(viewport=PHONE, locale="en-GB").new_page()
        view.on("dialog", lambda dialog: dialog.accept())
        pictures: list[bytes] = []

        def take(name: str) -> None:
            view.wait_for_selector(f"#screen[data-screen={name}]")
            view.wait_for_timeout(500)
            pictures.append(view.screenshot())

        def press(label: str) -> None:
            view.get_by_role("button", name=label).click()

        view.goto(f"{site.address}#{CODE}")
        take("join")
        press("How am I protected?")
        take("agree")
        press("I agree and take part")
        for _ in range(2):
            receiver.report()
        view.fill("#number", "740")
        press("Save")
        take("running")
        view.get_by_text("Pause", exact=True).click()
        press("For a week")
        take("paused")
        press("Go on")
        view.wait_for_selector("#screen[data-screen=running]")
        press("Leave")
        take("left")
        site.close()
        leave(receiver.client)
    images = [f'<img src="data:image/png;base64,{base64.b64encode(taken).decode()}">' for taken in pictures]
    shown_page = browser.new_page(viewport={"width": 5 * (PHONE["width"] + 16) + 16, "height": PHONE["height"] + 32})
    shown_page.set_content(f"<style>{_SIDE_BY_SIDE}</style>{''.join(images)}")
    shown_page.screenshot(path=DOCS / "phone.png")


def main() -> int:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page(browser, Path(name))
        doctor(browser, Path(name))
        phone(browser, Path(name))
        browser.close()
    for picture in ("page.png", "doctor.png", "phone.png"):
        print(f"{DOCS / picture}: {(DOCS / picture).stat().st_size >> 10} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

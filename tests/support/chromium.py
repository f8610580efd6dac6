"""Debian's Chromium without a window, driven by playwright."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

MISSING = "Chromium was not found: apt-get install chromium"
# With these options, Chromium runs as root and without a GPU, and asks no other hosts.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return shutil.which("chromium")


@contextlib.contextmanager
def browser(*options: str) -> Iterator[Any]:
    """A running browser that playwright drives, with further options on its command line."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        opened = running.chromium.launch(executable_path=find_chromium(), args=[*QUIET, *options], timeout=180_000)
        yield opened
        opened.close()

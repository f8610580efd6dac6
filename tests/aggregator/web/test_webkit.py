"""The page in WebKitGTK's MiniBrowser, the nearest to Safari that runs here: it draws, answers and fits the window."""

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ci import absent, unavailable
from support.micropython import REPO
from support.page import PageServer
from support.ports import free_port
from support.webkit import MISSING, Page, find_webkit, webkit

pytestmark = pytest.mark.services
AXE = REPO / ".tools/npm/node_modules/axe-core/axe.min.js"
SIZES = {"desktop": (1280, 900), "phone": (500, 844)}


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[PageServer]:
    running = PageServer(made, free_port())
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if find_webkit() is None:
        absent(MISSING)
    with webkit(tmp_path_factory.mktemp("webkit") / "home") as page:
        yield page


@pytest.fixture
def opened(window: Page, server: PageServer) -> Callable[..., Page]:
    """Opens the page in a window of the given size."""

    def open_it(size: str, fragment: str = "") -> Page:
        window.resize(*SIZES[size])
        window.goto("about:blank")
        window.goto(server.address + fragment)
        return window

    return open_it


def check(page: Page, name: str) -> None:
    """Check that axe finds no fault and no part is wider than the window.

    Take a picture if ``UNDERTONE_SHOTS`` is set.
    """
    if "UNDERTONE_SHOTS" in os.environ:
        (Path(os.environ["UNDERTONE_SHOTS"]) / f"{name}-webkit.png").write_bytes(base64.b64decode(page.picture()))
    if not AXE.exists():
        unavailable("axe-core is not installed: make services")
    page.run(AXE.read_text(encoding="utf-8"))
    said = "JSON.stringify(all.violations.map((one) => [one.id, one.nodes[0].html]))"
    assert page.evaluate(f"axe.run().then((all) => {said})") == "[]"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"


@pytest.mark.parametrize("size", SIZES)
def test_a_campaign_is_drawn_and_compared(opened: Callable[..., Page], size: str) -> None:
    page = opened(size, "#simulation")
    page.wait("document.querySelector('#chart canvas')")
    page.wait("document.querySelectorAll('#answers .value').length >= 4")
    page.wait("document.querySelector('#compared p')")
    assert "±" in page.evaluate("document.getElementById('latest').textContent")
    # The chart's canvas is not of a single colour.
    drawn = "[...document.querySelector('#chart canvas').getContext('2d').getImageData(0, 0, 600, 200).data]"
    assert page.evaluate(f"new Set({drawn}).size > 8")
    page.evaluate("document.getElementById('meaning').open = true")
    check(page, f"campaign-{size}")


@pytest.mark.parametrize("size", SIZES)
def test_a_click_on_a_card_opens_its_campaign(opened: Callable[..., Page], size: str) -> None:
    page = opened(size)
    page.wait("document.querySelector('.card')")
    check(page, f"cards-{size}")
    page.evaluate("document.querySelector('.card a').click()")
    page.wait("document.querySelector('#chart canvas')")
    assert page.evaluate("location.hash") == "#simulation"

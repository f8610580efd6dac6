"""The page in a real Firefox ESR: it draws and answers, and shows times of 24 hours in German and English.

axe finds no fault in it, as in Chromium (`test_states.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.firefox import MISSING, Page, find_firefox, firefox
from support.micropython import REPO
from support.page import PageServer
from support.ports import free_port

pytestmark = pytest.mark.services
AXE = REPO / ".tools/npm/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[PageServer]:
    running = PageServer(made, free_port())
    running.start()
    yield running
    running.stop()


@pytest.fixture
def opened(tmp_path: Path, server: PageServer) -> Iterator[Callable[..., Page]]:
    """A function that opens the page in a Firefox set to a language."""
    if find_firefox() is None:
        unavailable(MISSING)
    with ExitStack() as stack:

        def open_it(fragment: str = "", language: str = "en", **settings: Any) -> Page:
            page = stack.enter_context(
                firefox(tmp_path / f"profile-{language}", intl_accept__languages=language, **settings)
            )
            page.goto(server.address + fragment)
            return page

        yield open_it


def drawn(page: Page) -> None:
    """Wait until a campaign is shown, with its chart, its tiles and its comparison."""
    page.wait("document.querySelector('#chart canvas')")
    page.wait("document.querySelectorAll('#answers .value').length >= 4")
    page.wait("document.querySelector('#compared p')")


def test_a_campaign_is_drawn_and_axe_finds_nothing(opened: Callable[..., Page]) -> None:
    if not AXE.exists():
        unavailable("axe-core is not installed: make services")
    page = opened("#simulation", ui_systemUsesDarkTheme=0)
    drawn(page)
    assert "±" in page.evaluate("document.getElementById('latest').textContent")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(AXE.read_text(encoding="utf-8") + "; null")
    found = page.evaluate(
        "axe.run().then((all) => JSON.stringify(all.violations.map((one) => [one.id, one.nodes[0].html])))"
    )
    assert found == "[]"


@pytest.mark.slow_but("de-DE, en")
@pytest.mark.parametrize("languages", ["de-DE, en", "en-US, en"])
def test_the_clock_has_24_hours_in_german_and_in_us_english(opened: Callable[..., Page], languages: str) -> None:
    """All readers of a page see times in the same form, also with the language en-US."""
    page = opened("#simulation", languages)
    drawn(page)
    # The simulated half-hours end at 18:00.
    assert "17:30–18:00" in page.evaluate("document.getElementById('latest-when').textContent")
    assert "PM" not in page.evaluate("document.body.innerText")


def test_all_campaigns_lead_to_one(opened: Callable[..., Page]) -> None:
    page = opened()
    page.wait("document.querySelector('.card svg .line')")
    page.evaluate("document.querySelector('.card a').click()")
    drawn(page)
    assert page.evaluate("document.title") == "simulation – Undertone"

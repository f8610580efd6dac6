"""The phone's app in a real Firefox ESR: the question for storage, private windows, and one language on each screen."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.firefox import MISSING, Page, find_firefox, firefox
from support.phone_site import CODE, PhoneSite, Receiver
from undertone_device.host.words import read_words

pytestmark = [pytest.mark.services, pytest.mark.waits]


@pytest.fixture
def opened(tmp_path: Path, site: PhoneSite) -> Iterator[Callable[..., Page]]:
    """Opens the app by its link in a Firefox that is set to a language."""
    if find_firefox() is None:
        unavailable(MISSING)
    with ExitStack() as stack:

        def open_it(language: str = "en", **settings: Any) -> Page:
            browser: AbstractContextManager[Page] = firefox(
                tmp_path / "profile", intl_accept__languages=language, **settings
            )
            page = stack.enter_context(browser)
            page.goto(site.address + f"#{CODE}")
            return page

        yield open_it


def test_the_join_waits_for_no_permission(
    opened: Callable[..., Page], site: PhoneSite, receiver: Receiver, now: int
) -> None:
    receiver.issue(now)
    page = opened()
    page.screen("join")
    page.press("How am I protected?")
    page.screen("agree")
    # Firefox asks whether this site may keep its data, and nobody answers.
    page.press("I agree and take part")
    page.screen("running")
    for _ in range(2):
        receiver.report()
    receiver.check()


def test_a_private_window_is_told_before_the_offer_that_it_cannot_take_part(
    opened: Callable[..., Page], site: PhoneSite
) -> None:
    page = opened(browser_privatebrowsing_autostart=True)
    page.screen("unable")
    page.says("This browser cannot take part")
    assert "damaged" not in page.evaluate("document.body.innerText")
    assert [path for _, path in site.requests if "/api/" in path] == [], "the code is not used up"


def test_a_german_browser_reads_german_alone(opened: Callable[..., Page], receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    page = opened("de-DE, en")
    german = read_words("de")["phone"]
    # The screen is small, and German words are long.
    page.resize(320, 640)
    page.screen("join")
    fits(page)
    page.says("Was gemessen wird")
    page.press(german["join"]["how"])
    page.screen("agree")
    page.says("Beliebige 24 Stunden")
    fits(page)
    page.press(german["agree"]["yes"])
    page.screen("running")
    page.says(german["running"]["online"])
    receiver.report()
    fits(page)
    shown = page.evaluate("document.body.textContent")
    for text in english_only():
        assert text not in shown, text
    assert page.evaluate("document.documentElement.lang") == "de-DE"


def fits(page: Page) -> None:
    """Check that no word is wider than the screen."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def english_only() -> list[str]:
    """The English sentences without placeholders. A page that was not translated would show them as they are."""
    found: list[str] = []

    def gather(value: Any) -> None:
        if isinstance(value, dict):
            for part in value.values():
                gather(part)
        elif isinstance(value, str) and "{" not in value and len(value) > 12:
            found.append(value)

    gather(json.loads(json.dumps(read_words("en")["phone"])))
    return found

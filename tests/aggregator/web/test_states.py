"""The page in each of its states: axe finds nothing, nothing is wider than the page, and a picture can be looked at.

With ``UNDERTONE_SHOTS=FOLDER`` in the environment, each state's picture is written to FOLDER.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chromium import MISSING, browser, find_chromium
from support.ci import unavailable
from support.command import undertone
from support.micropython import REPO
from support.page import PageServer, pages, until
from support.ports import free_port

pytestmark = pytest.mark.services
AXE = REPO / ".tools/npm/node_modules/axe-core/axe.min.js"
PHONE = {"viewport": {"width": 360, "height": 740}}
DARK = {"color_scheme": "dark"}
Change = Callable[[dict[str, Any]], dict[str, Any]]


def served(state: str, **fields: Any) -> Change:
    """A change of a campaign's summary: a server runs it, and this is its state."""

    def change(summary: dict[str, Any]) -> dict[str, Any]:
        devices = {"all": {"reporting": 380, "silent": 20, "lost": 3, "conflicting": 0}}
        facts = {"state": state, "reason": "", "newest_report": time.time() - 300, "reachable": True, "problems": []}
        return summary | {"server": {**facts, "devices": devices, "alarms": [], **fields}}

    return change


def failed(summary: dict[str, Any]) -> dict[str, Any]:
    why, now = "the plan names no file groups.csv", time.time()
    events = {
        "failed": why,
        "conflict": "12 reports contradict others",
        "disk": "120 MB are free",
        "silent": "no report",
    }
    alarms = [
        {"time": now - 900 * n, "event": event, "sentence": said} for n, (event, said) in enumerate(events.items())
    ]
    return served("failed", reason=why, problems=[f"campaign load is failed ({why})"], alarms=alarms)(summary)


def learning(summary: dict[str, Any]) -> dict[str, Any]:
    early = summary | {"phase": "threshold", "newest": None, "theta": None, "ranges": []}
    return served("running", learning_ends=int(time.time()) + 2 * 86400)(early)


def temperature(summary: dict[str, Any]) -> dict[str, Any]:
    return served("running")(summary | {"sensor": "temperature", "unit": "°C", "measure": "mean", "offset": -40})


STATES: dict[str, Change] = {
    "running": served("running"),
    "paused": served("paused"),
    "failed": failed,
    "retired": served("retired", newest_report=time.time() - 90 * 86400),
    "learning": learning,
    "temperature": temperature,
}


def six(answer: dict[str, Any]) -> dict[str, Any]:
    """Six campaigns with long names, one of each state, and one that cannot be read."""
    (one,) = answer["campaigns"]
    copies = [
        change(json.loads(json.dumps(one))) | {"name": f"{name}-of-a-long-name"} for name, change in STATES.items()
    ]
    return {"campaigns": [*copies, {"name": "broken", "error": "campaign broken has failed: the store is gone"}]}


# Name of the picture -> (kind of store, summary's change, options of the browser).
ONE: dict[str, tuple[str, Change | None, dict[str, Any]]] = {
    "running-light": ("load", STATES["running"], {}),
    "running-dark-phone": ("load", STATES["running"], {**DARK, **PHONE}),
    "failed-dark": ("load", failed, DARK),
    "failed-phone": ("load", failed, PHONE),
    "retired": ("load", STATES["retired"], {}),
    "paused": ("load", STATES["paused"], {}),
    "learning": ("load", learning, {}),
    "temperature": ("load", temperature, {}),
    "stream": ("stream", None, {}),
    "stream-dark-phone": ("stream", None, {**DARK, **PHONE}),
}
ALL: dict[str, tuple[Change, dict[str, Any]]] = {
    "empty": (lambda _: {"campaigns": []}, {}),
    "six": (six, {}),
    "six-dark-phone": (six, {**DARK, **PHONE}),
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if find_chromium() is None:
        unavailable(MISSING)
    if not AXE.exists():
        unavailable("axe-core is not installed: make services")
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def addresses(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    stream = tmp_path_factory.mktemp("stream") / "load.sqlite"
    words = ("--collect", "stream", "--theta", 1000, "--devices", 300, "--slots", 96, "--epsilon", 4, "--store", stream)
    done = undertone("simulate", *words)
    assert done.returncode == 0, done.stderr
    servers = {kind: PageServer(store, free_port()) for kind, store in (("load", made), ("stream", stream))}
    for server in servers.values():
        server.start()
    yield {kind: server.address for kind, server in servers.items()}
    for server in servers.values():
        server.stop()


def with_change(pattern: str, change: Change) -> Callable[[Any], None]:
    """Prepares a page whose answers at an address are changed, and which hears no news."""

    def prepare(page: Any) -> None:
        page.route(re.compile(pattern), lambda route: route.fulfill(json=change(route.fetch().json())))
        page.route(re.compile("/events$"), lambda route: route.abort())

    return prepare


def check(page: Any, name: str) -> None:
    if "UNDERTONE_SHOTS" in os.environ:
        page.screenshot(path=Path(os.environ["UNDERTONE_SHOTS"]) / f"{name}.png", full_page=True)
    page.evaluate(AXE.read_text(encoding="utf-8") + "; null")
    found = page.evaluate("axe.run().then((all) => all.violations.map((one) => [one.id, one.nodes[0].html]))")
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"


@pytest.mark.parametrize("name", ONE)
def test_a_campaign_in_each_state(chromium: Any, addresses: dict[str, str], name: str) -> None:
    kind, change, options = ONE[name]
    prepare = None if change is None else with_change(r"/api/v1/campaigns/[a-z]+$", change)
    # axe is put into the page by its debugger, which the page's policy would forbid to a script.
    with pages(chromium, addresses[kind]) as open_page:
        page = open_page("#simulation", losing=change is not None, prepare=prepare, bypass_csp=True, **options)
        page.wait_for_selector("#chart canvas")
        until(page, "document.getElementById('latest').textContent !== ''")
        for part in ("meaning", "losses", "selection", "table"):
            page.click(f"#{part} summary")
        page.wait_for_selector("#losses tbody tr, #losses div p")
        page.wait_for_selector("#selected tbody tr, #selected p")
        assert ("first number about" in page.locator("#latest").inner_text()) == (name == "learning")
        check(page, name)
        page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize("name", ALL)
def test_the_campaigns_in_each_state(chromium: Any, addresses: dict[str, str], name: str) -> None:
    change, options = ALL[name]
    prepare = with_change(r"/api/v1/campaigns$", change)
    with pages(chromium, addresses["load"]) as open_page:
        page = open_page(prepare=prepare, bypass_csp=True, **options)
        page.wait_for_selector("#cards > *")
        if name.startswith("six"):
            assert page.locator(".card").count() == 7
            assert "first number about" in page.locator(".card", has_text="learning-of").inner_text()
        check(page, name)
        page.unroute_all(behavior="ignoreErrors")


def test_a_campaign_on_paper(chromium: Any, addresses: dict[str, str]) -> None:
    """Printed in dark mode, too, the page is black on white, without buttons, with the chart and the opened parts."""
    with pages(chromium, addresses["load"]) as open_page:
        page = open_page("#simulation", bypass_csp=True, **DARK)
        page.wait_for_selector("#chart canvas")
        until(page, "document.getElementById('latest').textContent !== ''")
        page.click("#meaning summary")
        page.emulate_media(media="print")
        shown = "(selector) => [...document.querySelectorAll(selector)].filter((one) => one.offsetParent).length"
        assert page.evaluate(f"({shown})('button')") == 0
        assert page.evaluate(f"({shown})('#chart canvas, #meaning p')") > 1
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        check(page, "print")

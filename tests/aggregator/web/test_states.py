"""The page in each of its states, in Chromium and Firefox: axe finds no fault, and no part is wider than the page.

With ``UNDERTONE_SHOTS=FOLDER`` in the environment, a picture of each state is written to FOLDER.
"""

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from support import chromium as chromiums
from support import firefox as firefoxes
from support.ci import unavailable
from support.command import undertone
from support.grouped import grouped
from support.micropython import REPO
from support.page import pages, until
from support.page_states import Change, Summary, full, served, served_states
from undertone_aggregator.web.guides import GUIDES
from undertone_aggregator.web.site import StoreSite, named

pytestmark = pytest.mark.services
AXE = REPO / ".tools/npm/node_modules/axe-core/axe.min.js"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
# `make test-services` tries the first window, `make slow` the others.
WINDOWS = (
    "chromium-dark-phone",
    pytest.param("firefox-light-desktop", marks=pytest.mark.slow),
    pytest.param("chromium-light-desktop", marks=pytest.mark.slow),
    pytest.param("firefox-dark-phone", marks=pytest.mark.slow),
)
GROUPS = ("north", "east", "south", "west", "centre", "harbour")


def failed(summary: Summary) -> Summary:
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
    return served("failed", reason=why, problems=[f"campaign load has failed ({why})"], alarms=alarms)(summary)


def silent(summary: Summary) -> Summary:
    """Change a summary so that nobody has reported for twelve slots."""
    devices = {"all": {"reporting": 0, "silent": 400, "lost": 0, "conflicting": 0}}
    until = (summary["settled"] + 13) * summary["slot_seconds"]
    return served("running", devices=devices, devices_until=until)(summary)


def learning(summary: Summary) -> Summary:
    early = summary | {"phase": "threshold", "newest": None, "theta": None, "ranges": []}
    return served("running", learning_ends=int(time.time()) + 2 * 86400)(early)


def waiting(summary: Summary) -> Summary:
    nobody = {"all": {"reporting": None, "silent": None, "lost": 0, "conflicting": 0}}
    return served("running", devices=nobody, devices_until=None)(summary | {"newest": None})


def temperature(summary: Summary) -> Summary:
    return served("running")(summary | {"sensor": "temperature", "unit": "°C", "measure": "mean", "offset": -40})


def drowned(summary: Summary) -> Summary:
    newest = summary["newest"] | {"estimate": 40.0, "standard_error": 60.0}
    return served("running")(summary | {"newest": newest})


def of_each(change: Callable[[Summary], Summary]) -> Change:
    return lambda answer: {"campaigns": [change(one) for one in answer["campaigns"]]}


# State -> (kind of store, change of each summary).
ONE: dict[str, tuple[str, Callable[[Summary], Summary]]] = {
    "stored": ("load", lambda summary: summary),
    "running": ("load", served("running")),
    "silent": ("load", silent),
    "waiting": ("load", waiting),
    "learning": ("load", learning),
    "drowned": ("load", drowned),
    "paused": ("load", served("paused")),
    "failed": ("load", failed),
    "full-disk": ("load", full),
    "retired": ("load", served("retired")),
    "temperature": ("load", temperature),
    "groups": ("groups", served("running")),
    "stream": ("stream", served("running")),
    "turns": ("turns", served("running")),
}


def several(answer: dict[str, Any], count: int) -> dict[str, Any]:
    """Many campaigns with long names in all states, and one that cannot be read."""
    (one,) = answer["campaigns"]
    changes = [(name, change) for name, (_, change) in ONE.items()]
    copies = []
    for n in range(count - 1):
        name, change = changes[n % len(changes)]
        copies.append(change(json.loads(json.dumps(one))) | {"name": f"{name}-of-a-long-name-{n}"})
    return {"campaigns": [*copies, {"name": "broken", "error": "campaign broken has failed: the store is gone"}]}


ALL: dict[str, Change] = {
    "empty": lambda _: {"campaigns": []},
    "one": of_each(served("running")),
    "one-silent": of_each(silent),
    "one-full": of_each(full),
    "twenty": lambda answer: several(answer, 20),
}


# State -> what the line above all campaigns says.
OVERALL = {
    "empty": [],
    "one": ["The campaign simulation is well", "380 of 400 devices reported lately"],
    "one-silent": ["The campaign simulation needs you: no device reported", "0 of 400 devices reported lately"],
    "one-full": ["The campaign simulation needs you: disk full since", "no space left on device"],
    "twenty": [
        "of 20 campaigns need you, most of all broken (cannot be read)",
        "3,800 of 4,800 devices",
        " of 20 campaigns (in the others devices take turns",
    ],
}


@pytest.fixture(scope="module")
def address(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that shows each state of the page under a path of its own."""
    folder = tmp_path_factory.mktemp("states")
    stores = {"load": made, "groups": grouped(made, folder, GROUPS)}
    for kind, words in {
        "stream": ("--collect", "stream", "--theta", 1000, "--epsilon", 4, "--slots", 96),
        "turns": ("--window", "24h", "--epsilon", 8, "--slots", 240),
    }.items():
        stores[kind] = folder / f"{kind}.sqlite"
        done = undertone("simulate", *words, "--devices", 400, "--store", stores[kind])
        assert done.returncode == 0, done.stderr
    sites = {kind: StoreSite(named([str(store)])) for kind, store in stores.items()}
    states = {f"one-{name}": (sites[kind], of_each(change)) for name, (kind, change) in ONE.items()}
    with served_states(states | {f"all-{name}": (sites["load"], change) for name, change in ALL.items()}) as address:
        yield address
    for site in sites.values():
        site.close()


class Tab(Protocol):
    """What a page can do in both browsers."""

    def evaluate(self, expression: str) -> Any: ...


Look = Callable[[str], Tab]


@pytest.fixture(scope="module", params=WINDOWS)
def window(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """One of `WINDOWS`: its name and its running browser."""
    if not AXE.exists():
        unavailable("axe-core is not installed: make services")
    kind, colours, _ = request.param.split("-")
    if kind == "chromium":
        if chromiums.find_chromium() is None:
            unavailable(chromiums.MISSING)
        with chromiums.browser() as running:
            yield request.param, running
    else:
        if firefoxes.find_firefox() is None:
            unavailable(firefoxes.MISSING)
        profile = tmp_path_factory.mktemp("firefox") / "profile"
        with firefoxes.firefox(profile, ui_systemUsesDarkTheme=int(colours == "dark")) as running:
            yield request.param, running


@pytest.fixture
def look(window: tuple[str, Any], address: str) -> Iterator[Look]:
    """Opens an address in the browser's window."""
    name, running = window
    kind, colours, width = name.split("-")
    across, down = WIDTHS[width]
    with ExitStack() as stack:

        def opened(where: str) -> Tab:
            if kind == "firefox":
                running.resize(across, down)
                running.goto("about:blank")
                running.goto(address + where)
                tab: Tab = running
                return tab
            open_page = stack.enter_context(pages(running, address))
            # The page's policy forbids other scripts, such as axe, so it is bypassed.
            options = {"viewport": {"width": across, "height": down}, "color_scheme": colours}
            tab = open_page(where, bypass_csp=True, **options)
            return tab

        yield opened


def check(tab: Any, window: tuple[str, Any], name: str) -> None:
    if "UNDERTONE_SHOTS" in os.environ:
        file = Path(os.environ["UNDERTONE_SHOTS"]) / f"{name}-{window[0]}.png"
        if window[0].startswith("firefox"):
            file.write_bytes(base64.b64decode(tab.picture()))
        else:
            tab.screenshot(path=file, full_page=True)
    tab.evaluate(AXE.read_text(encoding="utf-8") + "; null")
    said = "JSON.stringify(all.violations.map((one) => [one.id, one.nodes[0].html]))"
    assert tab.evaluate(f"axe.run().then((all) => {said})") == "[]"
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"


@pytest.mark.parametrize("name", ONE)
def test_a_campaign_in_each_state(window: tuple[str, Any], look: Look, name: str) -> None:
    tab = look(f"one-{name}/#simulation")
    until(tab, "document.querySelector('#chart canvas') !== null")
    until(tab, "document.getElementById('latest').textContent !== ''")
    tab.evaluate(
        "['meaning', 'losses', 'selection', 'table'].forEach((id) => { document.getElementById(id).open = true })"
    )
    until(tab, "document.querySelector('#losses tbody tr, #losses div p') !== null")
    until(tab, "document.querySelector('#selected tbody tr, #selected p') !== null")
    until(tab, "document.querySelector('[aria-busy=true]') === null")
    if name not in ("learning", "waiting"):
        until(tab, "document.querySelector('#compared p') !== null")
    if name == "running":
        tab.evaluate("document.querySelector('#quantiles button').click()")
        until(tab, "document.querySelector('#quantiles tbody tr') !== null")
    latest = tab.evaluate("document.getElementById('latest').innerText")
    assert ("first number about" in latest) == (name == "learning")
    assert ("None of 400 devices reported" in latest) == (name == "silent")
    # If the newest number is old, it is shown in a lighter colour, and the page does not call it "Now".
    faded = name in ("silent", "paused", "failed", "retired")
    assert tab.evaluate("document.querySelector('#latest .old') !== null") == faded
    assert tab.evaluate("document.getElementById('latest-when').textContent").startswith("Now") != faded
    about = tab.evaluate("document.getElementById('about').textContent")
    assert ("Municipal works" in about and "To plan the grid" in about) == (name != "stored")
    mail = tab.evaluate("document.querySelector('#about a[href^=mailto]')?.textContent ?? ''")
    assert mail == ("" if name == "stored" else "energy@aldersford.example")
    assert "until Jan 2, 2027" in about or name in ("stream", "turns", "retired")
    assert "What the home sent before stays in the sums" in about
    titled = tab.evaluate("document.getElementById('titled').textContent")
    assert titled == ("" if name == "stored" else "Electricity of a home")
    check(tab, window, f"one-{name}")


def test_a_chart_has_at_most_four_groups_and_says_so(look: Look) -> None:
    tab = look("one-groups/#simulation")
    until(tab, "document.querySelector('#chart canvas') !== null")
    tick = "[...document.querySelectorAll('#groups input')].filter((box) => !box.checked && !box.disabled)[0]?.click()"
    states = "JSON.stringify([...document.querySelectorAll('#groups input')].map((box) => [box.checked, box.disabled]))"
    # The last ticked box cannot be unticked, because a chart needs at least one group.
    assert json.loads(tab.evaluate(states)) == [[True, True], *[[False, False]] * 6]
    for _ in range(5):
        tab.evaluate(tick)
    assert json.loads(tab.evaluate(states)) == [*[[True, False]] * 4, *[[False, True]] * 3]
    assert "at most 4 groups" in tab.evaluate("document.getElementById('groups').textContent")


def test_the_highest_group_is_named_unless_groups_are_alike(look: Look) -> None:
    tab = look("one-groups/#simulation")
    text = "document.getElementById('by-group').textContent"
    until(tab, f"{text}.includes('Noise can put one group above another')")
    # All groups of this store have the same reports.
    assert tab.evaluate(f"{text}.includes('Highest')") is False


@pytest.mark.parametrize("name", ALL)
def test_the_campaigns_in_each_state(window: tuple[str, Any], look: Look, name: str) -> None:
    tab = look(f"all-{name}/")
    until(tab, "document.querySelector('#cards > *') !== null")
    cards = tab.evaluate("document.querySelectorAll('.card').length")
    assert cards == (0 if name == "empty" else 20 if name == "twenty" else 1)
    said = tab.evaluate("document.getElementById('overall').innerText")
    for part in OVERALL[name]:
        assert part in said
    owner = tab.evaluate("document.getElementById('owner').innerText")
    assert owner == ("" if name == "empty" else "Municipal works of Aldersford: measurements of homes")
    titles = tab.evaluate("[...document.querySelectorAll('.card .title')].map((one) => one.innerText).join('|')")
    assert set(titles.split("|")) <= {"", "Electricity of a home"}
    assert (titles == "") == (name == "empty")
    check(tab, window, f"all-{name}")


def test_the_guides(window: tuple[str, Any], look: Look) -> None:
    for guide in GUIDES:
        tab = look(f"all-one/guides/{guide}.md")
        until(tab, "document.querySelector('main h1') !== null")
        check(tab, window, f"guide-{guide}")


# Only Chromium's driver can show a page in the style of print. One of its windows is enough.
@pytest.mark.parametrize("window", ["chromium-dark-phone"], indirect=True)
def test_a_campaign_on_paper(window: tuple[str, Any], address: str) -> None:
    """Printed in dark mode, too, the page has black text and no buttons; the chart and the opened part are shown."""
    _, running = window
    with pages(running, address) as open_page:
        page = open_page("one-running/#simulation", bypass_csp=True, color_scheme="dark")
        page.wait_for_selector("#chart canvas")
        until(page, "document.getElementById('latest').textContent !== ''")
        page.click("#meaning summary")
        page.emulate_media(media="print")
        shown = "(selector) => [...document.querySelectorAll(selector)].filter((one) => one.offsetParent).length"
        assert page.evaluate(f"({shown})('button')") == 0
        assert page.evaluate(f"({shown})('#chart canvas, #meaning p')") > 1
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        check(page, window, "print")

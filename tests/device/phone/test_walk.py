"""From `undertone init` to `undertone verify`, with a phone that joins by a link, pauses, is killed and leaves."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.mosquitto import MISSING, find_mosquitto
from support.neighbours import Neighbours
from support.phone_browser import KilledPhone
from support.phone_server import RATE, SLOT, PhoneServer
from support.phone_site import PATIENCE
from support.phone_tap import Tap
from support.published_means import PublishedMeans
from support.waiting import wait_for
from undertone_shared.off_board.intake import unpack

DAY = 86400
# A day has 48 slots, but fewer reports are asked for: on a slow machine, a killed browser takes long to start again.
REPORTS = 20


@pytest.fixture
def server(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[PhoneServer]:
    running = PhoneServer(tmp_path, free_port)
    yield running
    running.close()


class Journey:
    """Notes what the phone sends. It kills the browser during a report as often as the test asks for it."""

    def __init__(self, server: PhoneServer) -> None:
        self._server = server
        self._ledger = (server.folder / "phone.log").open("w", encoding="utf-8")
        self.phone: KilledPhone | None = None
        self.reports: dict[int, bytes] = {}
        self.armed = False
        self.killed = threading.Event()

    def sent(self, topic: str, report: bytes) -> None:
        """Note a report that the server has not received yet."""
        milliseconds = int(self._server.clock.now() * 1000)
        self._ledger.write(f"{milliseconds} sent {topic.split('/')[-2]} {report.hex()}\n")
        self._ledger.flush()
        assert self.reports.setdefault(unpack(report).slot, report) == report, "a slot was drawn twice"
        if self.armed and self.phone is not None:
            self.armed = False
            self.phone.kill()
            self.killed.set()

    def close(self) -> None:
        self._ledger.close()


@pytest.mark.long
@pytest.mark.services
def test_a_phone_joins_reports_for_a_day_survives_kills_and_everything_is_accounted_for(
    chromium: Any, server: PhoneServer, tmp_path: Path
) -> None:
    journey = Journey(server)
    tap = Tap(server.websocket, ("127.0.0.2", server.websocket), journey.sent)
    try:
        code = server.invite("--about", "How much do homes use?")
        phone = journey.phone = KilledPhone(chromium, server, tmp_path / "profile")
        with phone.running(f"#{code}") as page:
            wait_for_screen(page, "join")
            assert "How much do homes use?" in page.inner_text("#screen")
            agree(page)
            wait_for_reports(page, journey, 3)
            page.get_by_text("Pause", exact=True).click()
            page.get_by_role("button", name="For a day").click()
            wait_for_screen(page, "paused")
            page.get_by_role("button", name="Go on").click()
            wait_for_screen(page, "running")
        for kill in range(5):
            journey.killed.clear()
            with phone.running() as page:
                wait_for_screen(page, "running")
                journey.armed = True
                assert journey.killed.wait(PATIENCE), f"kill {kill}"
        with phone.running() as page:
            wait_for_screen(page, "running")
            wait_for_reports(page, journey, REPORTS)
            page.on("dialog", lambda dialog: dialog.accept())
            page.get_by_role("button", name="Leave").click()
            wait_for_screen(page, "left")
        # The reports that were sent show that all slots were in one day.
        lines = (server.folder / "phone.log").read_text(encoding="utf-8").splitlines()
        reports = [unpack(report) for report in {bytes.fromhex(line.split()[-1]) for line in lines}]
        slots = {report.slot for report in reports}
        assert len(slots) == len(reports) >= REPORTS
        assert (max(slots) - min(slots) + 1) * SLOT <= DAY
        sequences = [report.sequence for report in reports]
        assert sorted(sequences) == list(range(1, len(sequences) + 1))
        verify = ["verify", "--ledger", "phone.log", "--store", "home/stores/meters.sqlite", "--json"]
        accounts = json.loads(server.run(*verify))
        assert accounts["unexplained"] == {}
        assert accounts["reports"]["counted"] == len(sequences)
    finally:
        tap.close()
        journey.close()


@pytest.mark.long
@pytest.mark.services
def test_a_phone_reports_to_an_external_broker_at_its_own_address(
    chromium: Any, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    if find_mosquitto() is None:
        unavailable(MISSING)
    server = PhoneServer(tmp_path, free_port, external=True)
    hosts, trouble = set(), []
    try:
        context = chromium.new_context()
        page = context.new_page()
        page.on("websocket", lambda socket: hosts.add(socket.url))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(f"{server.address}#{server.invite()}")
        agree(page)
        page.wait_for_function(
            "() => /has made ([3-9]|\\d\\d) reports/.test(document.body.innerText)"
            " && !document.body.innerText.includes('to be sent')",
            timeout=1000 * PATIENCE,
        )
        context.close()
        assert hosts == {f"wss://localhost:{server.websocket}/mqtt"}
        assert trouble == []
    finally:
        server.close()


SHOWN = r"You 500\u00a0Wh; on average ([\d,.−-]+)\u00a0Wh \(between ([\d,.−-]+) and ([\d,.−-]+)\)"


# Group -> the Wh that each of its homes uses in a slot.
LOADS = {"north": 100, "south": 900}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.services
def test_a_person_sees_their_number_beside_the_mean_of_their_group(chromium: Any, server: PhoneServer) -> None:
    """The page shows the mean that the server published for the group that the code names, not that of all homes."""
    home = server.folder / "home"
    neighbours = Neighbours(home, "meters", LOADS, server.run, server.environment, RATE)
    published = PublishedMeans(home, "meters", server.run)
    tap = Tap(server.websocket, ("127.0.0.2", server.websocket), lambda topic, report: None)
    try:
        neighbours.start()
        context = chromium.new_context(locale="en-GB")
        page = context.new_page()
        page.goto(f"{server.address}#{server.invite('--group', 'north')}")
        agree(page)
        shown = shown_beside(page)
        wait_for(lambda: is_among(shown, published.of["north"]), what=f"a published mean that is {shown}")
        assert "You and the others in the group north" in page.inner_text(".others")
        context.close()
    finally:
        neighbours.stop()
        published.close()
        tap.close()
    assert not is_among(shown, published.of["all"]), shown
    # The groups' homes measure different values, and so the published means differ.
    means = [published.estimates(name) for name in ("north", "all", "south")]
    north, everybody, south = (sum(each) / len(each) for each in means)
    assert north < everybody < south


def shown_beside(page: Any) -> list[float]:
    """Enter numbers until one is shown with a published mean; return that mean and its interval."""
    deadline = time.monotonic() + 5 * PATIENCE
    while not re.search(SHOWN, page.inner_text(".others")):
        assert time.monotonic() < deadline, page.inner_text("#screen")
        page.fill("#number", "500")
        page.get_by_role("button", name="Save").click()
        page.wait_for_timeout(500)
    found = re.search(SHOWN, page.inner_text(".others"))
    assert found is not None
    return [float(word.replace(",", "").replace("−", "-")) for word in found.groups()]


def is_among(shown: list[float], means: dict[int, dict[str, Any]]) -> bool:
    """Return whether the phone shows one of the published means, rounded."""
    rows = [[fields[name] for name in ("estimate", "low", "high")] for fields in list(means.values())]
    # The phone shows whole numbers, so each number may differ by 0.5, and a little more because floats are rounded.
    return any(all(abs(a - b) <= 0.51 for a, b in zip(shown, row, strict=True)) for row in rows)


@pytest.mark.long
@pytest.mark.services
def test_a_person_sees_their_number_beside_the_published_mean(chromium: Any, server: PhoneServer) -> None:
    """The mean is the one that the server published for that slot. The phone sends no more than its reports."""
    topics: list[str] = []
    tap = Tap(server.websocket, ("127.0.0.2", server.websocket), lambda topic, _: topics.append(topic))
    published = PublishedMeans(server.folder / "home", "meters", server.run)
    try:
        context = chromium.new_context(locale="en-GB")
        page = context.new_page()
        page.goto(f"{server.address}#{server.invite()}")
        wait_for_screen(page, "join")
        assert "What you get back" in page.inner_text("#screen")
        agree(page)
        assert "appears here as soon as it is published" in page.inner_text(".others")
        shown = shown_beside(page)
        assert "group" not in page.inner_text(".others h2")
        wait_for(lambda: is_among(shown, published.of["all"]), what=f"a published mean that is {shown}")
        assert {topic.rsplit("/", 1)[-1] for topic in topics} == {"report"}
        page.uncheck("#compares")
        page.wait_for_function("() => document.querySelector('.others').innerText.includes('do not compare')")
        assert not page.is_visible(".others dl")
        context.close()
    finally:
        published.close()
        tap.close()


def agree(page: Any) -> None:
    """Read the offer of the link, and agree to it."""
    wait_for_screen(page, "join")
    page.get_by_role("button", name="How am I protected?").click()
    assert "fifty to fifty" in page.inner_text("#screen")
    page.get_by_role("button", name="I agree and take part").click()
    wait_for_screen(page, "running")


def wait_for_screen(page: Any, name: str) -> None:
    page.wait_for_selector(f"#screen[data-screen={name}]", timeout=1000 * PATIENCE)


def wait_for_reports(page: Any, journey: Journey, count: int) -> None:
    """Wait until the phone has sent so many reports and the server has acknowledged them."""
    deadline = time.monotonic() + 5 * PATIENCE
    while len(journey.reports) < count or "to be sent" in page.inner_text("#screen"):
        assert time.monotonic() < deadline
        page.wait_for_timeout(100)

"""Questions that people ask about a campaign. The page answers each in at most three clicks."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from support.chromium import MISSING, browser, find_chromium
from support.ci import unavailable
from support.command import undertone
from support.grouped import DEVICES, LOST, grouped
from support.page import PageServer, pages, until
from support.ports import free_port
from undertone_aggregator.web.site import StoreSite, named

pytestmark = pytest.mark.services
GROUPS = ("north", "south")
EVERYBODY_AND_GROUPS = ["all", *GROUPS]
# The simulated half-hours end on Saturday, 2 January 2027, at 18:00.
SATURDAY, MONDAY = datetime(2027, 1, 2, 19, tzinfo=UTC), datetime(2027, 1, 4, 9, tzinfo=UTC)
# Yesterday evening as seen on that Saturday, and the weekday evenings of last week as seen on that Monday.
YESTERDAY = {"from": "2027-01-01", "to": "2027-01-02", "between": "18:00-23:00"}
LAST_WEEK = {"from": "2026-12-28", "to": "2027-01-04", "between": "18:00-23:00", "days": "workdays"}


# No question changes the store, so all of them ask one server.
@pytest.fixture(scope="module")
def fleet(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated store, with two groups of registered devices and some lost reports."""
    return grouped(made, tmp_path_factory.mktemp("fleet"), GROUPS)


@pytest.fixture(scope="module")
def server(fleet: Path) -> Iterator[PageServer]:
    running = PageServer(fleet, free_port())
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if find_chromium() is None:
        unavailable(MISSING)
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def name(fleet: Path) -> str:
    site = StoreSite(named([str(fleet)]))
    try:
        return site.names()[0]
    finally:
        site.close()


@pytest.fixture
def call(server: PageServer, name: str) -> Callable[..., Any]:
    """A function that returns the API's answer for this campaign."""

    def ask(path: str, **parameters: str) -> Any:
        words = urllib.parse.urlencode(parameters)
        return json.load(urllib.request.urlopen(f"{server.address}api/v1/campaigns/{name}{path}?{words}", timeout=120))

    return ask


def command(store: Path, rows: str, *words: str) -> Any:
    """Run `undertone query`; return the list ``rows`` of its JSON."""
    done = undertone("query", store, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[rows]


def with_error(text: str) -> tuple[float, float]:
    """A number and its error, read from a text like "7.9 MWh ± 0.38"."""
    value, unit, sign, error = text.split()
    assert sign == "±"
    return figure(f"{value} {unit}"), figure(f"{error} {unit}")


class Hand:
    """A user who clicks on the page, beginning with the cards of all campaigns. Counts the clicks."""

    open_page: ClassVar[Callable[..., Any]]

    def __init__(self, now: datetime) -> None:
        self.page = type(self).open_page(prepare=lambda page: page.clock.set_fixed_time(now))
        self.page.wait_for_selector(".card a")
        self.clicks = 0

    def click(self, what: str) -> None:
        self.page.click(what)
        self.clicks += 1

    def table(self, where: str) -> list[list[str]]:
        self.page.wait_for_selector(f"{where} tbody tr")
        rows = self.page.locator(f"{where} tbody tr").all()
        return [row.locator("td").all_inner_texts() for row in rows]


@pytest.fixture
def hand(server: PageServer, chromium: Any) -> Iterator[type[Hand]]:
    with pages(chromium, server.address) as open_page:
        yield type("Opened", (Hand,), {"open_page": staticmethod(open_page)})


def figure(text: str) -> float:
    """A number that the page shows, such as "4.95 MWh", in Wh."""
    number, _, unit = text.partition(" ")
    return float(number.replace(",", "")) * {"": 1, "Wh": 1, "kWh": 1e3, "MWh": 1e6, "GWh": 1e9}[unit]


def asked_with(parameters: dict[str, str]) -> str:
    """A JavaScript expression that is true once the panel shows the answer to these parameters."""
    words = urllib.parse.urlencode(parameters)
    return (
        "[...new URLSearchParams(document.querySelector('#selected').dataset.answered ?? '')]"
        f".filter(([key]) => key !== 'by').map(String).sort().join() === "
        f"[...new URLSearchParams({json.dumps(words)})].map(String).sort().join()"
    )


def check_means(hand: Hand, answer: Any, printed: Any) -> None:
    """Check that the page, the API and the command give the same mean and error for each group."""
    shown = hand.table("#selected")
    rows = {row["group"]: row for row in answer["selections"]}
    assert [cells[0] for cells in shown] == list(rows) == EVERYBODY_AND_GROUPS
    assert all(row["total"] is not None for row in rows.values()), rows
    for cells in shown:
        row = rows[cells[0]]
        # The error is shown with two digits, and the number with as many decimals as the error. So rounding changes the
        # number by at most a twentieth of the error.
        for cell, value, error in ((cells[1], "estimate", "standard_error"), (cells[2], "total", "total_se")):
            assert with_error(cell)[0] == pytest.approx(row[value], abs=1.96 * row[error] / 20)
            assert with_error(cell)[1] == pytest.approx(1.96 * row[error], rel=0.05)
        # The last column is the mean times the number of slots, and it is rounded in the same way.
        slots = row["slots"] + row["absent"]
        assert with_error(cells[6])[0] == pytest.approx(
            slots * row["estimate"], abs=1.96 * slots * row["standard_error"] / 20
        )
    for row in printed:
        assert row["estimate"] == pytest.approx(rows[row["group"]]["estimate"])
        assert row["standard_error"] == pytest.approx(rows[row["group"]]["standard_error"])


def test_the_mean_of_yesterday_evening_by_region(hand: type[Hand], call: Any, fleet: Path, name: str) -> None:
    answer = call("/selection", **YESTERDAY, by="group")
    words = ["--from", YESTERDAY["from"], "--to", YESTERDAY["to"], "--between", YESTERDAY["between"], "--by", "group"]
    printed = command(fleet, "selections", *words)
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.click("#selection summary")
    clicks.click("text=Yesterday evening")
    until(clicks.page, asked_with(YESTERDAY))
    check_means(clicks, answer, printed)
    assert clicks.clicks <= 3


def test_the_weekday_evenings_of_last_week(hand: type[Hand], call: Any, fleet: Path) -> None:
    answer = call("/selection", **LAST_WEEK, by="group")
    words = ["--from", LAST_WEEK["from"], "--to", LAST_WEEK["to"], "--between", LAST_WEEK["between"]]
    printed = command(fleet, "selections", *words, "--days", "workdays", "--by", "group")
    clicks = hand(MONDAY)
    clicks.click(".card a")
    clicks.click("#selection summary")
    clicks.click("text=Weekday evenings of last week")
    until(clicks.page, asked_with(LAST_WEEK))
    check_means(clicks, answer, printed)
    assert "Days off: Saturday and Sunday." in clicks.page.locator("#selected").inner_text()
    assert clicks.clicks <= 3


def test_whether_one_group_uses_more_than_another(hand: type[Hand], call: Any, fleet: Path) -> None:
    """One click to the campaign, and two choices; the answer is a sentence with the error of the difference."""
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.page.wait_for_selector("#compared p")
    clicks.page.select_option("#choose-compared select[name=group]", "south")
    clicks.page.select_option("#choose-compared select[name=against]", "group:north")
    until(clicks.page, "(document.querySelector('#compared').dataset.answered ?? '').includes('north')")
    asked = clicks.page.evaluate("document.querySelector('#compared').dataset.answered")
    parameters = dict(urllib.parse.parse_qsl(asked))
    (row,) = call("/difference", **parameters)["differences"]
    (printed,) = command(fleet, "differences", "--since", "7d", "--group", "south", "--against", "group:north")
    assert printed["estimate"] == pytest.approx(row["estimate"])
    assert printed["standard_error"] == pytest.approx(row["standard_error"])
    # Both groups have the same simulated reports, so no difference is clear, and the page says so.
    assert row["verdict"] == "unclear"
    sentence = clicks.page.locator("#compared .verdict").inner_text()
    found = re.fullmatch(r"No clear difference from north: \S+ (\S+) ± (\S+) per 30 minutes, on average\.", sentence)
    assert found is not None, sentence
    assert figure(f"{found[2]} {found[1]}") == pytest.approx(1.96 * row["standard_error"], rel=0.05)
    said = clicks.page.inner_text("#compared")
    assert f"cannot be told from chance: here, less than {found[2]} {found[1]}." in said
    clear = re.search(r"A difference of (\S+) (\S+) or more would mostly be found \(four times in five\)", said)
    assert clear is not None, said
    assert figure(f"{clear[1]} {clear[2]}") == pytest.approx((1.96 + 0.84) * row["standard_error"], rel=0.05)
    clicks.page.select_option("#choose-compared select[name=against]", "group:south")
    assert "cannot be compared with itself" in clicks.page.locator("#compared").inner_text()


def test_whether_workdays_differ_from_days_off(hand: type[Hand], call: Any, fleet: Path) -> None:
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.page.wait_for_selector("#compared p")
    clicks.page.select_option("#choose-compared select[name=against]", "days:days-off")
    until(clicks.page, "(document.querySelector('#compared').dataset.answered ?? '').includes('days-off')")
    asked = clicks.page.evaluate("document.querySelector('#compared').dataset.answered")
    parameters = dict(urllib.parse.parse_qsl(asked))
    (row,) = call("/difference", **parameters)["differences"]
    days = ("--days", "workdays", "--against", "days:days-off")
    (printed,) = command(fleet, "differences", "--since", "7d", "--by", "all", *days)
    assert printed["estimate"] == pytest.approx(row["estimate"])
    sentence = clicks.page.locator("#compared .verdict").inner_text()
    told = r"no clear difference from days off: \S+ \S+ ± \S+|\S+ \S+ ± \S+ (more|less) than days off"
    assert re.fullmatch(rf"Workdays: ({told}) per 30 minutes, on average\.", sentence), sentence
    assert "Days off: Saturday and Sunday." in clicks.page.locator("#compared").inner_text()


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (1e-4, "Highest: south, clearly above north (by "),
        (0.2, "No group is clearly the highest in this time. south has the highest number. Its lead over north ("),
    ],
)
def test_which_group_is_highest_and_whether_clearly(hand: type[Hand], chance: float, words: str) -> None:
    """Both groups of this fleet have the same reports, so the test raises one of them in the API's answers."""
    opened = hand(MONDAY)

    def apart(route: Any) -> None:
        answer = route.fetch().json()
        for row in answer["differences"]:
            row["chance"] = chance
        route.fulfill(json=answer)

    opened.page.route(re.compile(r"/difference\?"), apart)

    def higher(route: Any) -> None:
        answer = route.fetch().json()
        for row in answer["selections"]:
            row["estimate"] *= 1.5 if row["group"] == "south" else 1
        route.fulfill(json=answer)

    opened.page.route(re.compile(r"/selection\?"), higher)
    opened.click(".card a")
    until(opened.page, "document.getElementById('by-group').textContent.includes('Noise can put one group above')")
    assert words in opened.page.inner_text("#by-group")
    assert opened.clicks <= 1


def test_how_many_devices_are_in_each_group(hand: type[Hand]) -> None:
    opened = hand(MONDAY)
    opened.click(".card a")
    until(opened.page, "/\\d devices/.test(document.getElementById('groups').textContent)")
    said = opened.page.inner_text("#groups")
    assert f"all {3 * DEVICES:,} devices" in said
    assert all(f"{group}, {DEVICES} devices" in said for group in GROUPS)


def test_why_a_group_has_no_total(hand: type[Hand]) -> None:
    """Sometimes the number of a group's devices is withheld. Here the test removes it from the API's answers."""
    opened = hand(MONDAY)

    def untold(route: Any) -> None:
        answer = route.fetch().json()
        for row in answer["selections"]:
            if row["group"] == "south":
                row.update(devices=None, total=None, total_se=None)
        route.fulfill(json=answer)

    opened.page.route(re.compile(r"/selection\?"), untold)
    opened.click(".card a")
    opened.click("#selection summary")
    totals = {cells[0]: cells[2] for cells in opened.table("#selected")}
    assert [group for group, total in totals.items() if total == "–"] == ["south"]
    assert "A group whose number of devices is not published has no total" in opened.page.inner_text("#selected")


def test_the_total_of_the_fleet(hand: type[Hand], call: Any, fleet: Path) -> None:
    day = {"from": YESTERDAY["from"], "to": YESTERDAY["to"]}
    (answer,) = call("/selection", **day)["selections"]
    (printed,) = command(
        fleet, "selections", "--from", day["from"], "--to", day["to"], "--between", "00:00-24:00", "--total"
    )
    assert answer["devices"] == printed["devices"] == 3 * DEVICES
    assert answer["total"] == pytest.approx(3 * DEVICES * 48 * answer["estimate"])
    assert printed["total"] == pytest.approx(answer["total"])
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.click("#selection summary")
    clicks.click("#presets >> text=/^Yesterday$/")
    until(clicks.page, asked_with(day))
    total, error = with_error(clicks.table("#selected")[0][2])
    assert total == pytest.approx(answer["total"], abs=1.96 * answer["total_se"] / 20)
    assert error == pytest.approx(1.96 * answer["total_se"], rel=0.05)
    assert clicks.clicks <= 3


def test_which_hours_lost_reports(hand: type[Hand], call: Any, fleet: Path) -> None:
    (gap,) = call("/losses")["gaps"]
    assert gap["lost"] == LOST
    printed = [row for row in command(fleet, "losses", "--losses") if row["lost"]]
    assert [(row["start"], row["lost"]) for row in printed] == [(gap["start"], LOST)]
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.page.wait_for_selector("#chart canvas")
    clicks.click("#losses summary")
    ((begin, _, slots, _, _, lost, _),) = clicks.table("#losses")
    assert (slots, lost) == ("1", str(LOST))
    assert f"{datetime.fromtimestamp(gap['start'], UTC):%H:%M}" in begin
    assert clicks.clicks <= 3


def test_the_newest_load_and_its_error(hand: type[Hand], call: Any, fleet: Path) -> None:
    newest = call("")["newest"]
    (printed,) = [row for row in command(fleet, "slots", "--settled", "--newest", "1", "--filtered") if row["filtered"]]
    assert newest["estimate"] == pytest.approx(printed["estimate"])
    clicks = hand(SATURDAY)
    # The card rounds the number like its error. An error of two digits such as ± 33 has no decimals.
    shown = figure(clicks.page.locator(".card .value").inner_text().split()[0])
    assert 10 <= 1.96 * newest["standard_error"] < 100
    assert abs(shown - newest["estimate"]) <= 0.5
    # The text is like "Wh ± 24".
    error = clicks.page.locator(".card .value .unit").inner_text()
    assert figure(error.split()[2]) == pytest.approx(1.96 * newest["standard_error"], rel=0.05)
    assert clicks.clicks == 0


def test_the_newest_number_is_told_of_one_device_and_of_all(hand: type[Hand]) -> None:
    opened = hand(MONDAY)
    opened.click(".card a")
    until(opened.page, "document.getElementById('latest').innerText.includes('a power of')")
    one, each, every, *_ = opened.page.inner_text("#latest").splitlines()
    assert each == "energy per device in 30 minutes, on average"
    words = re.fullmatch(r"(\S+ \S+) ± \S+ for all (\S+) devices together: a power of (\S+ \S+) ± \S+", every)
    assert words is not None, every
    of_all, devices, power = figure(words[1]), figure(words[2]), figure(f"{words[3]}h")
    # The page rounds each number.
    assert of_all == pytest.approx(devices * figure(one.partition(" ±")[0]), rel=0.01)
    assert power == pytest.approx(2 * of_all, rel=0.01), "slots of half an hour"


def test_what_the_numbers_are_and_of_whom(hand: type[Hand]) -> None:
    opened = hand(SATURDAY)
    opened.click(".card a")
    until(opened.page, "document.getElementById('homes').textContent.includes('0 homes take part')")
    said = opened.page.inner_text("#what")
    assert said.startswith(
        "The energy (Wh) that the sensor “load” of one home adds up in each 30 minutes; shown is the mean"
    )
    said = opened.page.inner_text("#homes")
    assert said.startswith(f"{3 * DEVICES:,} homes take part. They are those that joined, not a random sample")


def test_when_the_load_was_highest_and_lowest_yesterday(hand: type[Hand], call: Any) -> None:
    series = call("/estimates", **{"from": YESTERDAY["from"], "to": YESTERDAY["to"]}, filtered="true")["filtered"]
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    until(clicks.page, "document.getElementById('yesterday')?.innerText.includes('Lowest')")
    said = clicks.page.inner_text("#yesterday")
    rows = list(zip(series["estimate"], series["start"], series["high"], strict=True))
    for word, pick in (("Highest", max), ("Lowest", min)):
        value, start, high = pick(rows)
        # The run of slots around it that differ from it by no more than the root of the sum of both squared errors.
        alike = [abs(mean - value) <= math.hypot(end - mean, high - value) for mean, _, end in rows]
        first = last = rows.index((value, start, high))
        while first > 0 and alike[first - 1]:
            first -= 1
        while last + 1 < len(rows) and alike[last + 1]:
            last += 1
        begin, end = (f"{datetime.fromtimestamp(at, UTC):%H:%M}" for at in (rows[first][1], rows[last][1] + 1800))
        around = f"; it may lie anywhere between {begin} and {end}."
        assert (around in said) == (first < last), (around, said)
        found = re.search(rf"{word} at about (\S+), (\S+ \S+) ± (\S+)[;.]", said)
        assert found is not None, said
        assert found[1] == f"{datetime.fromtimestamp(start, UTC):%H:%M}"
        assert figure(found[2]) == pytest.approx(value, rel=0.02)
        assert figure(f"{found[3]} {found[2].split()[1]}") == pytest.approx(high - value, rel=0.05)
    assert clicks.clicks <= 1


def test_when_the_load_was_highest_in_seven_days(hand: type[Hand], call: Any, fleet: Path) -> None:
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    until(clicks.page, "document.getElementById('seven')?.innerText.includes('Highest')")
    said = clicks.page.inner_text("#seven")
    found = re.search(r"Highest on (\S+ \S+) at about (\S+), (\S+ \S+) ± \S+[;.]", said)
    assert found is not None, said
    newest = call("")["newest"]["start"] + 1800
    series = call("/estimates", **{"from": newest - 7 * 86400, "to": newest}, filtered="true")["filtered"]
    value, start = max(zip(series["estimate"], series["start"], strict=True))
    assert found[1] == f"{datetime.fromtimestamp(start, UTC):%b} {datetime.fromtimestamp(start, UTC).day}"
    assert found[2] == f"{datetime.fromtimestamp(start, UTC):%H:%M}"
    assert figure(found[3]) == pytest.approx(value, rel=0.02)
    assert "Lowest" not in said


def test_the_mean_of_one_day_that_is_chosen(hand: type[Hand], call: Any, fleet: Path) -> None:
    day = {"from": "2027-01-01", "to": "2027-01-02"}
    answer = call("/selection", **day, by="group")
    printed = command(fleet, "selections", "--from", day["from"], "--to", day["to"], "--by", "group")
    clicks = hand(SATURDAY)
    clicks.click(".card a")
    clicks.click("#selection summary")
    assert clicks.page.locator("#which-day").is_hidden()
    clicks.page.select_option("#choose-selection select[name=when]", "day")
    clicks.page.fill("#choose-selection input[name=day]", day["from"])
    until(clicks.page, asked_with(day))
    check_means(clicks, answer, printed)


def test_why_there_is_no_newer_number_and_when_there_is(hand: type[Hand], name: str) -> None:
    """The newest slot ended at 18:00, an hour ago; the next one ended at 18:30, and waits an hour for late reports."""
    opened = hand(SATURDAY)

    def running(route: Any) -> None:
        answer = route.fetch().json()
        answer["last_slot_ends"] += 86400
        answer["server"] |= {"state": "running", "settle_slots": 2}
        route.fulfill(json=answer)

    opened.page.route(re.compile(rf"/api/v1/campaigns/{name}$"), running)
    opened.click(".card a")
    until(opened.page, "document.getElementById('latest').innerText.includes('This slot ended')")
    said = (
        "This slot ended 1 hour ago. A new number comes every 30 minutes; the server first waits 1 hour for late "
        "reports. The next comes about 19:30."
    )
    assert said in opened.page.inner_text("#latest")

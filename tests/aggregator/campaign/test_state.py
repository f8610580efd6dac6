"""The state of a server says what is wrong; `campaign list`, `campaign show`, doctor and the page say the same."""

import contextlib
import json
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from support import server
from support.command import undertone
from support.many import PLAN
from support.stores import simulated_store
from undertone_aggregator.base.room import by_files
from undertone_aggregator.campaign.binding import PAUSED, RETIRED, RUNNING
from undertone_aggregator.campaign.runner import spent_until
from undertone_aggregator.campaign.state import (
    CHOOSING,
    FAILED,
    LEAST_FREE_BYTES,
    NEW,
    OVER,
    STALE_SECONDS,
    STARTING,
    STOPPED,
    CampaignState,
    ServerState,
    read_state,
    state_of,
)
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store
from undertone_aggregator.web.site import HomeSite
from undertone_operate.examine.doctor import examine
from undertone_shared.errors import Invalid
from undertone_shared.schedule import Schedule
from undertone_shared.stream import StreamRule

NOW = 1_800_000_000.0
POWER = CampaignState(RUNNING, ready=True, newest=int(NOW) - 60, due=int(NOW) - 86400, end=int(NOW) + 86400)
WELL = ServerState(NOW, NOW - 3600, True, 1 << 40, {"power": POWER})


def campaign(**changes: object) -> ServerState:
    return replace(WELL, campaigns={"power": replace(POWER, **changes)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        (replace(WELL, reachable=False), "broker"),
        (replace(WELL, free=LEAST_FREE_BYTES - 1), "15 MB"),
        (replace(WELL, time=NOW - STALE_SECONDS - 1), "31 s"),
        (replace(WELL, campaigns={}), "no campaign"),
        (campaign(state=FAILED, reason="no groups"), "campaign power has failed (no groups)"),
        (campaign(state=STARTING), "campaign power is starting"),
        (campaign(ready=False, reason="the disk is full"), "the disk is full"),
        (campaign(state=PAUSED, ready=False), "campaign power"),
    ],
)
def test_each_thing_that_keeps_reports_out_is_a_problem(state: ServerState, fact: str) -> None:
    (sentence,) = state.problems(NOW)
    assert fact in sentence
    assert not state.row(NOW)["ready"]


def test_a_campaign_has_its_own_problems_and_the_servers() -> None:
    water = CampaignState(FAILED, "no groups")
    two = replace(WELL, campaigns={"power": POWER, "water": water})
    assert (two.problems_of("power", NOW), len(two.problems_of("water", NOW))) == ([], 1)
    (sentence,) = replace(two, reachable=False).problems_of("power", NOW)
    assert "broker" in sentence
    assert WELL.problems_of("gas", NOW) == []


def test_devices_without_room_are_told_to_the_page_and_the_server_stays_ready() -> None:
    crowded = replace(WELL, room=by_files(1024), turned_away=1232)
    (sentence,) = crowded.problems_of("power", NOW)
    assert sentence.startswith("1232 devices cannot connect: the server has room for only 768 at once")
    assert "the limit of 1024 open files" in sentence
    assert "LimitNOFILE=2256" in sentence
    assert crowded.problems(NOW) == []
    assert replace(crowded, turned_away=0).problems_of("power", NOW) == []


@pytest.mark.parametrize("state", [RUNNING, CHOOSING, PAUSED, RETIRED, OVER])
def test_what_takes_in_all_that_it_should_is_no_problem(state: str) -> None:
    assert campaign(state=state, ready=state not in (RETIRED, OVER)).problems(NOW) == []


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        (replace(WELL, reachable=False), "broker"),
        (replace(WELL, free=LEAST_FREE_BYTES - 1), "15 MB"),
        (campaign(ready=False), "takes in no reports"),
        (campaign(ready=False, reason="the disk is full"), "the disk is full"),
    ],
)
def test_a_campaign_that_runs_and_takes_in_nothing_says_why(state: ServerState, fact: str) -> None:
    """`campaign list` and `campaign show` must not say less than /readyz."""
    told = state_of(state, "power", None, NOW)
    assert told.state == RUNNING
    assert fact in told.reason
    assert state_of(WELL, "power", None, NOW) == POWER


def test_silence_counts_while_reports_are_due() -> None:
    assert POWER.silence(NOW) == 60
    assert replace(POWER, newest=None).silence(NOW) == 86400, "since the first slot began"
    assert replace(POWER, newest=None, due=int(NOW) + 60).silence(NOW) == 0
    assert replace(POWER, end=int(NOW) - 1).silence(NOW) == 0
    for state in (RETIRED, OVER, FAILED, STARTING):
        assert replace(POWER, state=state).silence(NOW) == 0


def test_silence_that_is_by_design_or_the_servers_own_is_none() -> None:
    overdue = replace(POWER, newest=int(NOW) - 3600)
    assert overdue.silence(NOW) == 3600
    # Devices take turns: up to 3,660 s may pass without a report, so the next one may come a minute from now.
    assert replace(overdue, quiet=3660).silence(NOW) == 0
    assert replace(overdue, quiet=3000).silence(NOW) == 600
    # The devices of a stream have spent their budget until the next window.
    assert replace(overdue, spent=int(NOW) + 60).silence(NOW) == 0
    assert replace(overdue, spent=int(NOW) - 60).silence(NOW) == 60
    # The server itself accepted no report until a minute ago.
    assert replace(overdue, since=int(NOW) - 60).silence(NOW) == 60


def test_a_spent_budget_and_a_near_end_are_said_and_are_no_problem() -> None:
    spent = replace(POWER, spent=int(NOW) + 3600)
    assert "spent their budget: few or no reports are due before" in spent.note(NOW)
    last = replace(spent, end=spent.spent)
    assert last.note(NOW).endswith("spent their budget: few or no reports are due until the campaign ends")
    assert spent.note(NOW + 3600) == spent.ending(NOW + 3600)
    assert replace(WELL, campaigns={"power": spent}).problems(NOW) == []
    ending = replace(POWER, due=int(NOW) - 365 * 86400)
    assert ending.note(NOW) == ending.ending(NOW) != ""


@pytest.mark.parametrize(
    ("renewal", "newest", "until"),
    [
        (0, None, None),
        (0, 1, None),
        (0, 2, 20),
        (0, 7, 20),
        (0, 19, None),
        (8, 2, 8),
        (8, 6, 8),
        # This is the window's last slot, so the next report is due at once.
        (8, 7, None),
        (8, 9, None),
        (8, 11, 16),
        # The campaign's end cuts the last window short.
        (8, 18, 20),
    ],
)
def test_a_streams_budget_is_spent_until_its_next_window(renewal: int, newest: int | None, until: int | None) -> None:
    rule = StreamRule.__new__(StreamRule)
    rule.reports, rule.renewal = 3, renewal
    campaign = SimpleNamespace(
        rule=rule, first_slot=100, last_slot=119, slot_seconds=60, schedule=Schedule(bytes(16), 1, 1)
    )
    epoch = cast(Epoch, SimpleNamespace(campaign=campaign))
    found = spent_until(epoch, None if newest is None else 100 + newest)
    assert found == (None if until is None else (100 + until) * 60)
    assert spent_until(Epoch(server.campaign(), 0), server.FIRST + 10) is None, "no stream"


def test_a_full_disk_is_named_and_is_the_one_problem() -> None:
    for state in (RUNNING, STARTING):
        (sentence,) = campaign(state=state, ready=False, full=True, reason="/srv/a.sqlite: no space").problems(NOW)
        assert "disk" in sentence
        assert "/srv/a.sqlite" in sentence


def test_devices_of_an_unknown_epoch_are_counted_and_the_cure_is_named() -> None:
    for state in (RUNNING, OVER):
        (sentence,) = campaign(state=state, strays=50).problems(NOW)
        assert "the server refuses the reports of 50 devices, because it does not know their epoch" in sentence
        assert "undertone campaign extend" in sentence
    assert campaign(state=RETIRED, strays=50).problems(NOW) == []


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path) is None
    WELL.write(path)
    assert read_state(path) == WELL
    assert path.stat().st_mode & 0o077 == 0
    for text in ("", "[]", "{}", '{"campaigns": 3}', '{"campaigns": {"power": {"mood": 1}}}'):
        path.write_text(text, encoding="utf-8")
        assert read_state(path) is None


def test_without_a_server_the_store_is_believed() -> None:
    dead = replace(WELL, time=NOW - 3600)
    assert state_of(WELL, "power", PAUSED, NOW) == POWER
    assert state_of(dead, "power", RUNNING, NOW).state == STOPPED
    assert "3600 s" in state_of(dead, "power", RUNNING, NOW).reason
    assert state_of(None, "power", None, NOW).state == NEW
    assert state_of(None, "power", RETIRED, NOW).state == RETIRED
    assert "not started the campaign yet" in state_of(WELL, "water", None, NOW).reason


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    made = Home(tmp_path)
    made.write_plan("power", PLAN.format(name="power", epsilon=1))
    return made


def listed(home: Home) -> dict[str, str]:
    (row,) = json.loads(undertone("campaign", "list", str(home.folder), "--json").stdout)
    return dict(row)


def test_list_show_doctor_and_page_say_that_a_campaign_fails_and_why(home: Home) -> None:
    with open_store(home.config("power").store_url, campaign="power") as store:
        store.set_meta({"campaign": "power", "state": RUNNING})
    assert (listed(home)["state"], listed(home)["reason"]) == (STOPPED, "no server runs")
    now = time.time()
    failed = CampaignState(FAILED, "groups.csv is not there")
    ServerState(now, now, True, 1 << 40, {"power": failed}).write(home.state)
    assert (listed(home)["state"], listed(home)["reason"]) == (FAILED, failed.reason)
    assert failed.reason in undertone("campaign", "show", str(home.folder), "power").stdout
    (finding,) = [finding for finding in examine(home.folder) if finding.check == "server"]
    assert (finding.result, failed.reason in finding.sentence) == ("failure", True)
    site = HomeSite(home)
    try:
        with pytest.raises(Invalid, match=failed.reason):
            site.read("power", lambda results: results.mark)
        # The same holds where the plan itself cannot be read.
        home.write_plan("power", "bound = ")
        assert site.names() == ["power"]
        assert (listed(home)["state"], listed(home)["reason"]) == (FAILED, failed.reason)
    finally:
        site.close()


def simulate_power(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the campaign power the store of a simulation; return the store."""
    store = Path(home.config("power").store_url.removeprefix("sqlite:"))
    store.parent.mkdir(exist_ok=True)
    shutil.copy(simulated_store(tmp_path_factory), store)
    with contextlib.closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE campaigns SET name = 'power'")
    return store


@pytest.mark.slow
def test_the_page_reads_state_and_words_once_however_many_look(
    home: Home, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_power(home, tmp_path_factory)
    read: list[str] = []

    def words(name: str) -> tuple[str, str, str]:
        read.append(name)
        return "", "", ""

    def counted(path: Path) -> ServerState | None:
        read.append("state")
        return read_state(path)

    monkeypatch.setattr("undertone_aggregator.web.site.read_state", counted)
    clock = [0.0]
    site = HomeSite(home, words=words, clock=lambda: clock[0])
    try:
        for again in (1, 2):
            now = time.time()
            ServerState(now, now, True, 1 << 40, {"power": POWER}).write(home.state)
            for _ in range(3):
                assert site.names() == ["power"]
                assert site.state("power")["state"] == RUNNING
                site.mark("power")
            assert read.count("state") == again, "read again only after a write"
        assert read.count("power") == 1
        clock[0] += 11.0
        assert site.state("power")["state"] == RUNNING
        assert read.count("power") == 2, "the words are read again after ten seconds"
    finally:
        site.close()


def test_the_page_says_the_title_of_the_plan(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    simulate_power(home, tmp_path_factory)
    plan = PLAN.format(name="power", epsilon=1)
    home.write_plan("power", plan.replace("[campaign]", '[campaign]\ntitle = "Electricity of a home"'))
    site = HomeSite(home)
    assert site.names() == ["power"]
    try:
        assert site.state("power")["title"] == "Electricity of a home"
    finally:
        site.close()


def test_the_page_says_the_state_and_whether_reports_arrive(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = simulate_power(home, tmp_path_factory)
    site = HomeSite(home, words=lambda name: ("Municipal works", f"To plan {name}.", "01234 5678"))
    assert site.names() == ["power"]
    try:
        unserved = site.state("power")
        assert (unserved["asks"], unserved["purpose"]) == ("Municipal works", "To plan power.")
        assert unserved["contact"] == "01234 5678"
        assert unserved["title"] == "", "the plan has no title"
        assert (unserved["state"], unserved["reachable"], unserved["problems"]) == (STOPPED, None, [])
        now = time.time()
        marks = [site.mark("power")]
        for served in (
            ServerState(now, now, True, 1 << 40, {"power": POWER}),
            ServerState(now, now, False, 1 << 40, {"power": POWER}),
            ServerState(now, now, True, 1 << 40, {"power": replace(POWER, ready=False)}),
        ):
            served.write(home.state)
            said = site.state("power")
            assert (said["state"], said["reachable"]) == (RUNNING, served.reachable)
            assert said["newest_report"] == POWER.newest
            assert said["problems"] == served.problems_of("power", now)
            marks.append(site.mark("power"))
        assert len(set(marks)) == len(marks), "an open page learns of each change"
        with open_store(store, campaign="power") as opened:
            opened.set_meta({"status": json.dumps({"time": int(now), "devices": {"all": {"reporting": 0}}})})
        assert site.mark("power") not in marks, "devices that fall silent are news, too"
        assert not site.state("power")["full"]
        replace(served, campaigns={"power": replace(POWER, full=True)}).write(home.state)
        assert site.state("power")["full"]
        served.write(home.state)
        before = site.mark("power")
        replace(served, time=now - 1).write(home.state)
        assert site.mark("power") == before, "time alone is no news"
        replace(served, time=now - STALE_SECONDS - 60).write(home.state)
        said = site.state("power")
        assert (said["state"], said["reachable"]) == (STOPPED, None)
        assert "no progress" in said["problems"][0]
    finally:
        site.close()

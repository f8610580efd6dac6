"""`undertone campaign extend` moves a campaign's end to a later time."""

import json
import time
from io import StringIO
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.binding import open_campaign, version_of
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import history
from undertone_aggregator.store.store import open_store
from undertone_shared.policy import parse_policy

# A binary campaign has no threshold rounds, so its first epoch has reports at once: here for 60 days of half-hours.
CREATE = ("--sensor", "light", "--unit", "on", "--bound", "1", "--epsilon", "1")
PLAN = ("--set", "report_slots=2880", "--set", "epoch_slots=336", "--set", "cycle=48")
DAY = 86400


class Nowhere:
    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        pass


def run(*words: object, code: int = 0) -> str:
    done = undertone(*map(str, words))
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def extend(home: Home, *words: object, code: int = 0) -> str:
    return run("campaign", "extend", home.folder, "light", *words, code=code)


def tick(home: Home, now: int, name: str = "light") -> list[Epoch]:
    """Let the server's coordinator do what is due at the Unix second ``now``; return the epochs."""
    config = home.config(name)
    with open_store(config.store_url, campaign=name) as store:
        seed = open_campaign(store, config.campaign, config.stream)
        Coordinator(config, seed, store, Nowhere(), Journal(StringIO())).tick(now)
        return store.epochs()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    run("init", folder)
    run("campaign", "create", folder, "light", *CREATE, *PLAN)
    run("devices", "add", 2, "--home", folder)
    home = Home(folder)
    # The campaign began two days ago.
    tick(home, int(time.time()) - 2 * DAY)
    return home


def test_the_server_issues_the_epoch_again_with_the_later_end(home: Home) -> None:
    said = extend(home, "--by", "5d")
    assert "0 of 2 known policies refuse this" in said
    plan = home.config("light").campaign
    assert (plan.report_slots, plan.version) == (2880 + 5 * 48, 2)
    assert "report_slots" in history(home.folder, "light")[-1].what
    now = int(time.time())
    first, second = (epoch.campaign for epoch in tick(home, now))
    assert second.end == first.end + 5 * DAY
    assert second.epoch == (now // 1800 + plan.lead_slots) * 1800
    assert second.report.mechanism.certificate() == first.report.mechanism.certificate()
    assert len(tick(home, now + DAY)) == 2, "one epoch suffices"
    for path in home.fleet("light").glob("devices/*/policy.json"):
        parse_policy(path.read_bytes()).check_campaign(second)


def test_each_extension_names_the_end_before_it_and_its_own(home: Home) -> None:
    """This also holds while no epoch has the new end, because the campaign learns θ or the server does not run."""
    run("campaign", "create", home.folder, "load", "--sensor", "load", "--unit", "Wh", "--bound", "100", "--epsilon", 1)
    run("devices", "add", 2, "--home", home.folder, "--campaign", "load")
    now = int(time.time())
    (learning,) = tick(home, now - 3600, "load")
    assert learning.phase == THRESHOLD_PHASE
    for name, end in (("load", learning.campaign.end), ("light", tick(home, now)[0].campaign.end)):
        for days in (1, 2):
            before, after = (utc(end + past * DAY) for past in (days - 1, days))
            said = run("campaign", "extend", home.folder, name, "--by", "1d")
            assert f"the campaign ends at {after} instead of {before}" in said
        assert (epochs_of(home.config(name)).last_slot(Timeline(tick(home, now, name))) + 1) * 1800 == end + 2 * DAY


def test_the_new_end_may_be_a_date(home: Home) -> None:
    end = tick(home, int(time.time()))[0].campaign.end + 3 * DAY + 700
    said = extend(home, "--until", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end)), "--preview")
    assert "nothing was written" in said
    assert home.config("light").campaign.report_slots == 2880
    extend(home, "--until", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end)))
    assert tick(home, int(time.time()))[-1].campaign.end == end // 1800 * 1800


def test_the_next_campaign_begins_at_the_later_end(home: Home) -> None:
    """The server does not run here, so it has not issued the extended epoch yet."""
    before = tick(home, int(time.time()))[0].campaign.end
    extend(home, "--by", "4d")
    run("campaign", "succeed", home.folder, "light", "light-2")
    assert home.config("light-2").campaign.start == before + 4 * DAY
    assert tick(home, int(time.time()))[-1].campaign.end == before + 4 * DAY


def test_an_epoch_keeps_the_budget_of_its_rule(home: Home) -> None:
    """A change of ε in the plan does not change what the issued rule costs."""
    plan = home.folder / "plan.toml"
    plan.write_text(
        home.file("light").read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "1/2"'), encoding="utf-8"
    )
    run("campaign", "apply", home.folder, "light", plan)
    extend(home, "--by", "1d")
    first, second = tick(home, int(time.time()))
    assert first.budget == second.budget == Budget.parse("1")


def test_what_policies_refuse_is_named_and_needs_the_operators_word(home: Home) -> None:
    assert "2 of 2 known policies refuse this campaign (duration" in extend(home, "--by", "30d", code=2)
    for path in home.fleet("light").glob("devices/*/policy.json"):
        path.write_text(
            json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"duration_seconds": 365 * DAY}), encoding="utf-8"
        )
    said = extend(home, "--by", "30d", code=2)
    assert "2 of 2 known policies refuse this" in said
    end = tick(home, int(time.time()))[-1].campaign.end
    assert said.startswith(
        f"error: the new end is {utc(end + 30 * DAY)}, but not all devices' policies allow an end after "
    )
    preview = extend(home, "--by", "30d", "--preview")
    assert "lifetime" in preview
    assert "the policies of all devices allow an end up to" in preview
    latest = preview.split("an end up to ")[1][:16].replace(" ", "T")
    assert f"not all devices' policies allow an end after {latest.replace('T', ' ')} UTC" in said
    assert home.config("light").campaign.report_slots == 2880
    extend(home, "--until", latest)
    said = extend(home, "--by", "1d", code=2)
    assert "2 of 2" in said
    assert "policies allow an end after" in said
    assert "2 of 2" in extend(home, "--by", "30d", "--although-refused")
    path = home.fleet("light") / "devices/light-001/policy.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(fields | {"lifetime": 0, "duration_seconds": 365 * DAY}), encoding="utf-8")
    assert "1 of 2 known policies refuse this" in extend(home, "--by", "1d", "--preview")


def test_what_cannot_be_extended_is_named(home: Home) -> None:
    assert "--by or --until" in extend(home, code=2)
    assert "--by or --until" in extend(home, "--by", "1d", "--until", "2030-01-01", code=2)
    end = tick(home, int(time.time()))[-1].campaign.end
    expected = f", expected {utc(end + 1800)} or later: light ends at {utc(end)}, and a slot lasts 1800 s"
    assert expected in extend(home, "--by", "10m", code=2)
    assert f"the new end is 2020-01-01 00:00 UTC{expected}" in extend(home, "--until", "2020-01-01", code=2)
    plan = home.folder / "plan.toml"
    plan.write_text(home.file("light").read_text(encoding="utf-8").replace("2880", "2000"), encoding="utf-8")
    assert "not shortened" in run("campaign", "apply", home.folder, "light", plan, code=2)
    run("campaign", "succeed", home.folder, "light", "light-2")
    assert "light-2 succeeds light" in extend(home, "--by", "1d", code=2)
    run("campaign", "retire", home.folder, "light", "--although-waiting")
    assert "retired" in extend(home, "--by", "1d", code=2)


def test_a_campaign_that_is_over_is_not_extended(home: Home) -> None:
    """After its end, a campaign's devices have nothing to report.

    The server would wait for their reports before it issued an epoch.
    """
    run("campaign", "create", home.folder, "past", *CREATE, *PLAN)
    (only,) = tick(home, int(time.time()) - 61 * DAY, "past")
    said = run("campaign", "extend", home.folder, "past", "--by", "9d", code=2)
    assert f"campaign past ended at {utc(only.campaign.end)}" in said
    said = run("campaign", "extend", home.folder, "past", "--by", "1h", code=2)
    assert f"campaign past ended at {utc(only.campaign.end)}" in said, "not that this end is too early"
    assert home.config("past").campaign.report_slots == 2880
    run("campaign", "succeed", home.folder, "past", "past-2")
    assert home.config("past-2").campaign.start is None, "it starts at once"


def test_campaigns_without_an_end_to_move_are_named(home: Home) -> None:
    create = ("--sensor", "load", "--unit", "Wh", "--bound", "100", "--epsilon", "1")
    run("campaign", "create", home.folder, "new", *create)
    assert "has not begun" in run("campaign", "extend", home.folder, "new", "--by", "9d", code=2)
    run("campaign", "create", home.folder, "flow", *create, "--collect", "stream", "--set", "report_slots=48")
    config = home.config("flow")
    with open_store(config.store_url, campaign="flow") as store:
        seed = open_campaign(store, config.campaign, config.stream)
        Coordinator(config, seed, store, Nowhere(), Journal(StringIO())).tick(int(time.time()))
    assert "stream" in run("campaign", "extend", home.folder, "flow", "--by", "9d", code=2)


def test_an_extension_counts_the_reports_of_predecessors(home: Home) -> None:
    """A device has one lifetime for this campaign and the one before it together."""
    run("campaign", "succeed", home.folder, "light", "light-2", "--although-refused")
    config = home.config("light-2")
    with open_store(config.store_url, campaign="light-2") as store:
        seed = open_campaign(store, config.campaign, config.stream)
        Coordinator(config, seed, store, Nowhere(), Journal(StringIO())).tick(int(time.time()))
        assert version_of(store.meta()) == 1
    words = ("campaign", "extend", home.folder, "light-2", "--by", "1d")
    assert "lifetime" in run(*words, code=2)
    for path in home.fleet("light").glob("devices/*/policy.json"):
        fields = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(fields | {"lifetime": 2 * fields["lifetime"]}), encoding="utf-8")
    assert "0 of 2 known policies refuse this" in run(*words)

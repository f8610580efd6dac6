"""`undertone campaign create`, `apply`, `delete` and `log`: what they say, write and refuse."""

import json
from collections import Counter
from pathlib import Path

import pytest

from support.command import undertone
from support.factory import policy_of
from undertone_aggregator.campaign.binding import apply_plan, open_campaign
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import history
from undertone_aggregator.server.lifecycle import change_state
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.groups import append_groups, read_groups
from undertone_aggregator.store.store import RECEIVED, Batch, open_store
from undertone_shared.errors import Invalid

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    return Home(tmp_path)


def create(home: Home, *options: str, code: int = 0, name: str = "power") -> str:
    done = undertone("campaign", "create", str(home.folder), name, *CREATE, *options)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def begin(home: Home, name: str = "power") -> Config:
    """Begin the campaign as its server does at its start."""
    config = home.config(name)
    with open_store(config.store_url, campaign=name) as store:
        open_campaign(store, config.campaign, config.stream)
    return config


def apply(home: Home, text: str, *options: str, code: int = 0) -> str:
    plan = home.folder / "changed.toml"
    plan.write_text(text, encoding="utf-8")
    done = undertone("campaign", "apply", str(home.folder), "power", str(plan), *options)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_create_says_what_it_costs_and_what_would_go_badly_and_may_write_nothing(home: Home) -> None:
    shown = create(home, "--set", "rounds=[40]", "--preview")
    assert "privacy: " in shown
    assert "warning: threshold rounds of 40 slots" in shown
    assert home.names() == []
    assert "warning: " in create(home, "--collect", "stream"), "the budget of a stream ends after 48 reports"
    assert home.names() == ["power"]


def test_a_title_is_in_the_plan_and_can_change_while_the_campaign_runs(home: Home) -> None:
    create(home, "--title", "Electricity of a home")
    assert begin(home).campaign.title == "Electricity of a home"
    said = apply(home, home.file("power").read_text(encoding="utf-8").replace("of a home", "of homes"))
    assert 'campaign.title "Electricity of a home" -> "Electricity of homes"' in said
    assert home.config("power").campaign.title == "Electricity of homes"


@pytest.mark.slow
def test_a_preview_predicts_what_plan_predicts(home: Home) -> None:
    """Errors, days of rounds and guarantees are the lines of `undertone plan`, but for the number of rounds."""
    plan = ("plan", "--devices", "300", "--epsilon", "1", "--bound", "1000", "--days", "30", "--mechanism", "hybrid")
    predicted = undertone(*plan).stdout.splitlines()
    options = ("--set", "report_slots=1440", "--set", "rounds=[48, 96]", "--set", "mechanism=hybrid")
    shown = create(home, *options, "--preview", "--devices", "300").splitlines()
    expected = [line.replace("3 threshold rounds, 3 days", "2 threshold rounds, 3 days") for line in predicted]
    assert shown[-len(expected) - 1 :] == [*expected, "nothing was written"]
    assert shown[0].startswith("privacy: ")
    assert shown[1].startswith("the last slot ends at ")
    windowed = undertone("plan", "--devices", "300", "--bound", "1000", "--window", "7200s").stdout
    assert windowed in create(home, "--preview", "--devices", "300", "--set", "window=2h")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--set", "window=48s")])
def test_a_preview_counts_slots_of_any_length(home: Home, more: tuple[str, ...]) -> None:
    """With slots of a second, a preview states the same errors as with half-hours of the same readings."""
    options = (*more, "--set", "report_slots=1440", "--preview", "--devices", "300")
    usual = create(home, *(word.replace("48s", "24h") for word in options)).splitlines()
    words = ("campaign", "create", str(home.folder), "power", *CREATE, "--slot-seconds", "1", *options)
    shown = undertone(*words).stdout.splitlines()
    start = shown.index(
        "the campaign's slots last 1 s, but the prediction's readings have 48 slots a day: below, a day means 48 slots"
    )
    assert len(shown) - start > 10
    assert shown[start + 1 :] == usual[-len(shown) + start + 1 :]


def test_a_preview_without_readings_like_its_own_says_so(home: Home) -> None:
    words = ("--set", "slot_seconds=60")
    named = tuple("l" if word == "Wh" else word for word in CREATE)
    other = undertone("campaign", "create", str(home.folder), "power", *named, "--preview")
    assert (
        "no prediction of errors: the readings are in Wh, but the campaign is in l: choose readings in l"
        in other.stdout
    )
    named = (*CREATE, "--preview", "--population", "phones")
    assert undertone("campaign", "create", str(home.folder), "power", *named).returncode == 2
    assert "slot_seconds" in create(home, *words, code=2)
    for option in (("--devices", "5"), ("--population", "phones"), ("--data", "x.csv")):
        assert f"{option[0]} cannot be given without --preview" in create(home, *option, code=2)
    assert home.names() == []


def test_an_option_of_create_is_named_when_it_is_wrong(home: Home) -> None:
    create(home, "--set", "window=24h")
    assert home.config("power").campaign.window == 86400
    for option, named in (
        ("rounds=[48,", "campaign.rounds"),
        ("colour=red", "colour"),
        ("bound=5", "but bound has a value already"),
        ("bound", "'bound'"),
        ("blocks=1\nlevels=2", "campaign.blocks"),
        ("rounds={a=1, a=2}", "campaign.rounds"),
    ):
        said = create(home, "--set", option, code=2, name="other")
        assert named in said
        assert "column" not in said
    assert home.names() == ["power"]


def test_a_create_that_is_refused_leaves_nothing(home: Home) -> None:
    before = sorted(home.folder.rglob("*"))
    create(home, "--set", "blocks=99", code=2)
    assert sorted(home.folder.rglob("*")) == before


def test_a_campaign_that_is_not_there_is_named_with_those_that_are(home: Home) -> None:
    create(home)
    for words in ("diff", "apply"):
        refused = undertone("campaign", words, str(home.folder), "zz", str(home.file("power")))
        assert refused.returncode == 2
        assert refused.stderr == f"error: there is no campaign zz, expected one of those in {home.folder}: power\n"


@pytest.mark.parametrize("verb", ["retire", "pause"])
def test_what_has_not_begun_is_deleted_and_not_retired(home: Home, verb: str) -> None:
    create(home)
    before = sorted(home.folder.rglob("*"))
    refused = undertone("campaign", verb, str(home.folder), "power")
    assert refused.returncode == 2
    begins = f"campaign power has not begun, so you cannot {verb} it: it begins when undertone serve {home.folder} runs"
    assert begins in refused.stderr
    assert (f"undertone campaign delete {home.folder} power removes it" in refused.stderr) == (verb == "retire")
    assert {path for path in home.folder.rglob("*") if path.is_file()} <= set(before), "no store was made"


def test_every_file_that_a_plan_names_is_read_before_it_is_written(home: Home) -> None:
    groups = home.folder / "groups.csv"
    assert "groups.csv" in create(home, "--set", "groups=groups.csv", code=2)
    groups.write_text("g-1,north\n", encoding="utf-8")
    assert "groups.csv" in create(home, "--set", "groups=groups.csv", code=2)
    assert home.names() == []
    groups.write_text("device,group\n", encoding="utf-8")
    create(home, "--set", "groups=groups.csv")
    begin(home)
    groups.write_text("device,group\nd-1,all\n", encoding="utf-8")
    text = home.file("power").read_text(encoding="utf-8")
    assert "all" in apply(home, text.replace('epsilon = "1"', 'epsilon = "2"'), code=2)
    assert home.file("power").read_text(encoding="utf-8") == text


def test_devices_are_added_to_groups_as_the_server_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    append_groups(path, "all", ["d-1"])
    assert not path.exists(), "the group all has no line in the file"
    append_groups(path, "north", ["d-2", "d-3"])
    append_groups(path, "all", ["d-4"])
    path.write_text(path.read_text(encoding="utf-8").rstrip(), encoding="utf-8")
    append_groups(path, "south", ["d-5"])
    assert read_groups(path) == {"d-2": "north", "d-3": "north", "d-5": "south"}
    with pytest.raises(Invalid, match="'status'"):
        append_groups(path, "status", ["d-6"])
    path.write_text("d-2,north\n", encoding="utf-8")
    with pytest.raises(Invalid, match="device,group"):
        append_groups(path, "north", ["d-6"])
    assert path.read_text(encoding="utf-8") == "d-2,north\n"


def test_of_two_changes_of_one_version_the_second_is_refused(home: Home) -> None:
    create(home)
    config = begin(home)
    text = home.file("power").read_text(encoding="utf-8")
    first, second = text.replace('epsilon = "1"', 'epsilon = "2"'), text + "min_reports = 20\n"
    assert "version 2" in apply(home, first)
    assert home.config("power").campaign.version == 2
    assert "campaign.version is 1, expected 2" in apply(home, second, code=2)
    assert home.config("power").campaign.min_reports == 10
    assert "nothing would change" in apply(home, home.file("power").read_text(encoding="utf-8"))
    assert "version 3" in apply(home, home.file("power").read_text(encoding="utf-8") + "min_reports = 20\n")
    # If two commands change the plan at once, the version in the store decides.
    with (
        open_store(config.store_url, campaign="power") as store,
        pytest.raises(Invalid, match=r"campaign\.version is 1, expected 3"),
    ):
        apply_plan(store, config.campaign, config.stream)


def test_a_change_that_devices_refuse_is_made_only_when_that_is_asked_for(home: Home) -> None:
    create(home)
    begin(home)
    policy = policy_of(sensor="load", cap=[1, 1])
    device = home.fleet("power") / "devices/power-001"
    device.mkdir(parents=True)
    (device / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    text = home.file("power").read_text(encoding="utf-8")
    dearer = text.replace('epsilon = "1"', 'epsilon = "2"')
    assert "1 of 1 known policies refuse this" in apply(home, dearer, code=2)
    assert home.file("power").read_text(encoding="utf-8") == text
    assert "1 of 1 known policies refuse this" in apply(home, dearer, "--although-refused")
    assert home.config("power").campaign.epsilon == 2


def test_a_campaign_that_nobody_reported_to_is_deleted_and_no_other(home: Home) -> None:
    create(home)
    assert undertone("campaign", "delete", str(home.folder), "power").returncode == 0
    assert home.names() == []
    create(home)
    config = begin(home)
    with open_store(config.store_url, campaign="power") as store:
        store.commit("0of1", Batch(outcomes=Counter({RECEIVED: 1})))
    refused = undertone("campaign", "delete", str(home.folder), "power")
    assert (refused.returncode, "1 delivery, expected none" in refused.stderr) == (2, True)
    assert home.names() == ["power"]


def test_the_log_says_who_changed_what_and_when(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    create(home)
    begin(home)
    apply(home, home.file("power").read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "2"'))
    assert undertone("campaign", "pause", str(home.folder), "power").returncode == 0
    change_state(home, "power", "running", "the page")
    done = undertone("campaign", "log", str(home.folder), "power", "--json")
    rows = json.loads(done.stdout)
    assert [row["user"] for row in rows] == ["ada", "ada", "ada", "the page"]
    for row, fact in zip(rows, ("created", "campaign.epsilon", "paused", "running"), strict=True):
        assert fact in row["what"]
    assert rows == sorted(rows, key=lambda row: row["time"])
    assert oct((home.folder / "history/power.jsonl").stat().st_mode & 0o777) == "0o600"
    refused = apply(
        home,
        home.file("power").read_text(encoding="utf-8").replace("version = 2", "version = 1") + "min_reports = 5\n",
        code=2,
    )
    assert "version" in refused
    assert len(history(home.folder, "power")) == 4, "what was refused is no change"
    (home.folder / "history/power.jsonl").write_text("{}\n", encoding="utf-8")
    assert "line 1" in undertone("campaign", "log", str(home.folder), "power").stderr

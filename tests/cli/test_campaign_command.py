"""Commands of `undertone campaign` in a server's folder while no server runs."""

import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support.command import undertone
from undertone.commands import campaign
from undertone_aggregator.campaign.binding import open_campaign
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.toml import toml
from undertone_aggregator.store.store import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "home"
    given = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1")
    for words in (
        ("init", str(folder), "--tls", "--host", "localhost"),
        ("campaign", "create", str(folder), "power", *given),
        ("devices", "add", "1", "--home", str(folder), "--campaign", "power"),
    ):
        done = undertone(*words)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("verb", ["diff", "apply"])
def test_nothing_of_it_is_applied_so_nothing_changes(folder: Path, verb: str) -> None:
    done = undertone("campaign", verb, str(folder), "power", str(folder / "campaigns/power.toml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: campaign power has not begun, so this command has nothing to change: edit campaigns/power.toml instead"
    ]


def test_a_plan_that_is_no_text_is_a_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"bound\xff")
    done = undertone("campaign", "diff", str(folder), "power", str(tmp_path / "plan.toml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"error: {tmp_path / 'plan.toml'} is not UTF-8 text: its byte 5 is 0xff"]


def create(folder: Path, unit: str) -> "CompletedProcess[str]":
    given = ("--sensor", "load", "--bound", "10", "--epsilon", "1", "--unit", unit)
    return undertone("campaign", "create", str(folder), "odd", *given)


@pytest.mark.parametrize("unit", ["\N{GRINNING FACE}", "m³/h", "l'heure", "% #1 {a}"])
def test_a_unit_of_any_visible_characters_is_kept(folder: Path, unit: str) -> None:
    made = create(folder, unit)
    assert made.returncode == 0, made.stderr
    assert Home(folder).config("odd").campaign.unit == unit
    Home(folder).file("odd").unlink()


@pytest.mark.parametrize("unit", ['"', "\\", "=1+1", "@A1", "\x7f", "\x1b[2J", "W\u202eh", "W\nsensor = 'x'"])
def test_a_unit_that_devices_or_readers_would_misread_is_refused_by_its_name(folder: Path, unit: str) -> None:
    """Devices accept a campaign only in a canonical form, which has no escapes, so a unit that needs one is refused.

    A unit that a spreadsheet would take for a formula is refused, too, and one with invisible characters.
    """
    made = create(folder, unit)
    assert made.returncode == 2
    assert "campaign.unit " in made.stderr, made.stderr
    assert len(made.stderr.splitlines()) == 1
    assert not Home(folder).file("odd").exists()


def test_a_text_becomes_toml_that_reads_as_the_same_text() -> None:
    for text in ('"', "\\", "\x7f", "\x00\x1b\n\t", "\u2028", "\N{GRINNING FACE}"):
        assert tomllib.loads(f"unit = {toml(text)}") == {"unit": text}


def test_a_store_that_cannot_be_read_is_not_new(folder: Path) -> None:
    given = ("--sensor", "load", "--unit", "Wh", "--bound", "10", "--epsilon", "1")
    assert undertone("campaign", "create", str(folder), "worn", *given).returncode == 0
    assert "worn: new (no server runs), 0 epochs" in undertone("campaign", "list", str(folder)).stdout
    (folder / "stores/worn.sqlite").write_bytes(b"x" * 5000)
    assert "worn.sqlite cannot be used as a store: file is not" in undertone("campaign", "list", str(folder)).stdout
    Home(folder).file("worn").unlink()


def test_what_an_interrupted_apply_left_is_done_by_the_next(folder: Path, tmp_path: Path) -> None:
    """An interrupted command had changed the store but not the plan's file. The next command finishes the change."""
    home, given = Home(folder), ("--sensor", "load", "--unit", "Wh", "--bound", "10", "--epsilon", "1")
    assert undertone("campaign", "create", str(folder), "cut", *given).returncode == 0
    before, after = home.config("cut"), home.file("cut").read_text(encoding="utf-8") + "settle_slots = 3\n"
    (tmp_path / "plan.toml").write_text(after, encoding="utf-8")
    with open_store(before.store_url, campaign="cut") as store:
        open_campaign(store, before.campaign, None)
        open_campaign(store, home.config("cut", after).campaign, None, apply=True)
    done = undertone("campaign", "apply", str(folder), "cut", str(tmp_path / "plan.toml"))
    assert (done.returncode, done.stdout) == (0, "nothing would change\n")
    assert home.file("cut").read_text(encoding="utf-8") == after
    home.file("cut").unlink()


def test_a_new_password_of_a_server_without_a_broker_is_for_nobody(folder: Path) -> None:
    done = undertone("broker", "rotate", str(folder))
    assert done.returncode == 0, done.stderr
    assert "restart the broker" not in done.stdout
    assert "nothing uses this password" in done.stdout


def test_a_new_password_reaches_a_broker_that_runs_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = undertone("init", str(home), "--broker", "mqtts://broker.example")
    assert f"copy the lines of {home}/broker/mosquitto.conf into its configuration" in made.stdout
    rotated = undertone("broker", "rotate", str(home)).stdout
    assert f"{home}/broker/passwords to a broker on another machine" in rotated
    assert "then restart the broker" in rotated
    added = undertone("readers", "add", "display", "--home", str(home)).stdout
    assert f"for any other broker, copy the files passwords and access from {home}/broker to the broker" in added


@pytest.mark.parametrize(
    ("state", "shown"), [("running", "starts 1970-01-02"), ("paused", "paused, starts 1970-01-02")]
)
def test_a_campaign_that_is_paused_before_its_start_is_shown_as_paused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str, shown: str
) -> None:
    facts = {"state": state, "reason": "", "starts": 86400, "epochs": 1, "theta": None, "received": 0}
    monkeypatch.setattr(campaign, "_facts", lambda home, name: {"campaign": name, **facts})
    campaign.show_all(folder)
    assert capsys.readouterr().out.splitlines()[0] == f"power: {shown} 00:00:00 UTC, 1 epoch, 0 deliveries"

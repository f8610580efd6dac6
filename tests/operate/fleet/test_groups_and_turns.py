"""Commands about groups, turns, policies and brokers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.counts.epochs import late_seconds
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.groups import read_groups
from undertone_operate.fleet.device_files import _slots

CAMPAIGN = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1")


@pytest.fixture
def done() -> Callable[..., str]:
    def run(*words: object) -> str:
        finished = undertone(*map(str, words))
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


@pytest.fixture
def home(tmp_path: Path, done: Callable[..., str]) -> Path:
    done("init", tmp_path / "home")
    done("campaign", "create", tmp_path / "home", "load", *CAMPAIGN)
    return tmp_path / "home"


def test_a_group_needs_no_file_made_by_hand(home: Path, done: Callable[..., str]) -> None:
    done("devices", "add", 3, "--home", home, "--campaign", "load", "--group", "north")
    done("devices", "move", "load-002", "--home", home, "--group", "south")
    done("devices", "move", "load-003", "--home", home, "--group", "all")
    groups = Home(home).config("load").campaign.groups
    assert groups == "fleets/load/groups.csv"
    assert read_groups(home / groups) == {"load-001": "north", "load-002": "south"}
    # A device shows its group's mean, so its files name the group. Devices without a group have no such name.
    told = [json.loads((home / f"fleets/load/devices/load-00{n}/device.json").read_bytes()) for n in (1, 2, 3)]
    assert [settings.get("groups") for settings in told] == [{"load": "north"}, {"load": "south"}, None]


def test_a_new_group_is_said_beside_the_others(home: Path, done: Callable[..., str]) -> None:
    """A misspelt name makes a new group. Only the line about the new group shows the mistake."""
    add = ("devices", "add", 1, "--home", home, "--group")
    assert "a new group" not in done("devices", "add", 2, "--home", home)
    assert "\nnorth is a new group; the campaign has no other\n" in done(*add, "north")
    assert "a new group" not in done(*add, "north")
    assert "\nnroth is a new group; other groups: north\n" in done(*add, "nroth")
    move = ("devices", "move", "load-001", "--home", home, "--group")
    assert "\nsouth is a new group; other groups: north, nroth\n" in done(*move, "south")
    assert "a new group" not in done(*move, "north")
    done("campaign", "create", home, "heat", *CAMPAIGN)
    moved = done("devices", "move", "load-002", "--home", home, "--to", "heat", "--group", "east")
    assert "\neast is a new group; the campaign has no other\n" in moved
    settings = json.loads((home / "fleets/heat/devices/load-002/device.json").read_bytes())
    assert settings["groups"] == {"heat": "east"}


def test_one_device_is_said_in_the_singular(home: Path, done: Callable[..., str]) -> None:
    said = done("devices", "add", 1, "--home", home)
    assert said.startswith(f"added 1 device in {home}/fleets/load/devices: load-001, group all\n")


def test_a_plan_that_names_a_file_of_groups_keeps_it(home: Path, tmp_path: Path, done: Callable[..., str]) -> None:
    (home / "mine.csv").write_text("device,group\n", encoding="utf-8")
    done("campaign", "create", home, "heat", *CAMPAIGN, "--set", "groups=mine.csv")
    assert Home(home).config("heat").campaign.groups == "mine.csv"


def test_turns_and_rounds_are_options(home: Path, done: Callable[..., str]) -> None:
    done("campaign", "create", home, "turns", *CAMPAIGN, "--window", "24h", "--rounds", "48,96")
    plan = Home(home).config("turns").campaign
    assert (plan.window, tuple(plan.rounds)) == (86400, (48, 96))


@pytest.mark.parametrize("rounds", ["48;96", "", "-1", "4.5"])
def test_rounds_that_are_no_numbers_are_refused(home: Path, rounds: str) -> None:
    refused = undertone("campaign", "create", str(home), "odd", *CAMPAIGN, "--rounds", rounds)
    assert refused.returncode == 2
    assert refused.stderr == f"error: --rounds is {rounds!r}, expected whole numbers such as 48,48,48\n"


def test_a_policy_has_a_spare_tenth_of_time_as_it_has_of_reports(home: Path, done: Callable[..., str]) -> None:
    """A policy allows a tenth more time than its plan, so that a campaign of a year can be extended by 30 days."""
    done("devices", "add", 1, "--home", home)
    plan = Home(home).config("load").campaign
    policy = json.loads((home / "fleets/load/devices/load-001/policy.json").read_text(encoding="utf-8"))
    spare = policy["duration_seconds"] - _slots(plan) * plan.slot_seconds
    assert spare >= 30 * 86400
    assert spare == -(-_slots(plan) // 10) * plan.slot_seconds
    assert late_seconds(plan.slot_seconds) < spare


def test_devices_of_a_broker_on_this_machine_need_no_authority(tmp_path: Path, done: Callable[..., str]) -> None:
    done("init", tmp_path / "home", "--broker", "mqtt://127.0.0.1:21883")
    done("campaign", "create", tmp_path / "home", "load", *CAMPAIGN)
    done("devices", "add", 1, "--home", tmp_path / "home")
    folder = tmp_path / "home/fleets/load/devices/load-001"
    assert json.loads((folder / "policy.json").read_text(encoding="utf-8"))["insecure"] is True
    assert "tls" not in json.loads((folder / "device.json").read_text(encoding="utf-8"))["broker"]


def test_devices_of_a_broker_elsewhere_need_its_authority(tmp_path: Path, done: Callable[..., str]) -> None:
    done("init", tmp_path / "home", "--broker", "mqtts://broker.example.org")
    done("campaign", "create", tmp_path / "home", "load", *CAMPAIGN)
    server = tmp_path / "home/server.toml"
    server.write_text(
        "".join(line for line in server.read_text(encoding="utf-8").splitlines(True) if not line.startswith("ca_file")),
        encoding="utf-8",
    )
    refused = undertone("devices", "add", "1", "--home", str(tmp_path / "home"))
    assert refused.returncode == 2
    assert "ca_file is missing in [broker] of server.toml" in refused.stderr


def test_show_prints_no_seconds_since_1970_and_no_empty_line(home: Path, done: Callable[..., str]) -> None:
    facts = [line for line in done("campaign", "show", home, "load").splitlines() if line.startswith("# ")]
    assert "# newest report: none yet" in facts
    assert all(line.partition(": ")[2] for line in facts)


def test_a_device_without_a_source_is_told_what_to_write(home: Path, done: Callable[..., str]) -> None:
    done("devices", "add", 1, "--home", home)
    refused = undertone("device", "run", "--config", str(home / "fleets/load/devices/load-001/device.json"))
    assert refused.returncode == 2
    assert '"source": {"kind": "file"' in refused.stderr

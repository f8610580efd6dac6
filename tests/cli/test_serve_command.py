"""`undertone serve`: bad input, a campaign that starts, and a clean end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.campaign.binding import open_campaign
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store

COMMAND = [sys.executable, "-m", "undertone", "serve"]
PLAN = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1")


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> Path:
    folder = tmp_path / "home"
    health = f"127.0.0.1:{free_port()}"
    assert undertone("init", folder, "--port", str(free_port()), "--health", health).returncode == 0
    assert undertone("campaign", "create", folder, "meters", *PLAN).returncode == 0
    return folder


def events(folder: Path, until: str) -> list[dict[str, str]]:
    """Read the server's log up to this event, then end the server by SIGTERM; return the log up to the event."""
    child = subprocess.Popen(
        [*COMMAND, str(folder), "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stderr is not None
    said = []
    for line in child.stdout:
        said.append(json.loads(line))
        if said[-1]["event"] == until:
            child.send_signal(signal.SIGTERM)
            break
    _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")
    return said


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path, home: Path) -> None:
    assert undertone("serve").returncode == 2
    done = undertone("serve", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "make it with undertone init" in done.stderr
    plan = home / "campaigns/meters.toml"
    plan.write_text(plan.read_text(encoding="utf-8").replace('epsilon = "1"', "epsilon = 100"), encoding="utf-8")
    done = undertone("serve", home)
    assert done.returncode == 2
    assert done.stderr == "error: campaign.epsilon is 100, expected a number from 0.05 to 8\n"


def test_a_campaign_begins_and_the_server_ends_on_sigterm(home: Path) -> None:
    assert events(home, "epoch")[-1]["campaign"] == "meters"


def test_a_server_without_its_password_file_says_so(home: Path) -> None:
    (home / "broker/passwords").unlink()
    done = undertone("serve", home)
    assert done.returncode == 2
    assert f"{home / 'broker/passwords'} is not there" in done.stderr


@pytest.mark.slow
def test_a_store_of_another_campaign_is_refused(home: Path) -> None:
    config = Home(home).config("meters")
    with open_store(config.store_url, campaign="meters") as store:
        open_campaign(store, config.campaign, config.stream)
    assert undertone("campaign", "create", home, "others", *PLAN).returncode == 0
    (home / "campaigns/meters.toml").unlink()
    (home / "stores/meters.sqlite").rename(home / "stores/others.sqlite")
    said = events(home, "failed")[-1]
    assert "holds the campaign meters, expected others: use another store" in said["message"]


@pytest.mark.parametrize("line", ["device,grp", "device,group\na", "device,group\na,all", "device,group\na,x\na,y"])
def test_a_bad_groups_file_is_named(tmp_path: Path, line: str) -> None:
    from undertone_aggregator.settings.groups import read_groups
    from undertone_shared.errors import Invalid

    path = tmp_path / "groups.csv"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(Invalid, match=r"groups.csv"):
        read_groups(path)
    path.write_text("device,group\nd1,north\nd2,south\n", encoding="utf-8")
    assert read_groups(path) == {"d1": "north", "d2": "south"}

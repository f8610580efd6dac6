"""The command as a process: sample, bad input, a campaign that starts, and a clean end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import undertone
from support.direct import write_passwords
from undertone_aggregator.campaign.binding import open_campaign
from undertone_aggregator.settings.config import parse_config
from undertone_aggregator.store.store import open_store

COMMAND = [sys.executable, "-m", "undertone", "serve"]


def sample() -> str:
    done = undertone("serve", "--sample-config")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    assert "expected a server's folder or a campaign's file" in undertone("serve").stderr
    config = tmp_path / "c.toml"
    assert undertone("serve", config).returncode == 2
    config.write_text(sample().replace("epsilon = 1", "epsilon = 100"))
    done = undertone("serve", config)
    assert done.returncode == 2
    assert done.stderr == "error: campaign.epsilon: epsilon is 100, expected a number from 0.05 to 8\n"


def test_the_sample_runs_and_ends_on_sigterm(tmp_path: Path, free_port: Callable[[], int]) -> None:
    (tmp_path / "c.toml").write_text(sample().replace("port = 0", f"port = {free_port()}", 1))
    write_passwords(tmp_path / "passwords", ["load-001"])
    child = subprocess.Popen(
        [*COMMAND, str(tmp_path / "c.toml"), "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    events = []
    for line in child.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "deliveries":
            break
        if events[-1]["event"] == "epoch":
            child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert errors == ""
    names = [event["event"] for event in events]
    assert "epoch" in names


def test_a_server_without_its_password_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(sample())
    done = undertone("serve", tmp_path / "c.toml")
    assert done.returncode == 2
    assert f"{tmp_path / 'passwords'} is not there" in done.stderr


def test_a_store_of_another_campaign_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    write_passwords(tmp_path / "passwords", ["load-001"])
    file.write_text(sample())
    config = parse_config(sample(), tmp_path)
    with open_store(config.store_url, campaign="meters") as store:
        open_campaign(store, config.campaign, config.stream)
    file.write_text(sample().replace('"meters"', '"others"'))
    done = undertone("serve", file)
    assert done.returncode == 2
    assert "holds the campaign meters, not others: use another store" in done.stderr


@pytest.mark.parametrize("line", ["device,grp", "device,group\na", "device,group\na,all", "device,group\na,x\na,y"])
def test_a_bad_groups_file_is_named(tmp_path: Path, line: str) -> None:
    from undertone_aggregator.settings.groups import read_groups
    from undertone_shared.errors import Invalid

    path = tmp_path / "groups.csv"
    path.write_text(line + "\n")
    with pytest.raises(Invalid, match=r"groups.csv"):
        read_groups(path)
    path.write_text("device,group\nd1,north\nd2,south\n")
    assert read_groups(path) == {"d1": "north", "d2": "south"}

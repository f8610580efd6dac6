"""The command as a process: sample, bad input, a campaign that starts, and a clean end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "undertone", "serve"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def sample() -> str:
    done = run("--sample-config")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    assert "serve needs a server's folder or a file" in run().stderr
    config = tmp_path / "c.toml"
    assert run(str(config)).returncode == 2
    config.write_text(sample().replace("epsilon = 1", "epsilon = 100"))
    done = run(str(config))
    assert done.returncode == 2
    assert done.stderr == "error: campaign.epsilon: epsilon is 100, expected a number from 0.05 to 8\n"


def test_the_sample_runs_and_ends_on_sigterm(tmp_path: Path, mosquitto_binary: str) -> None:
    (tmp_path / "c.toml").write_text(sample())
    child = subprocess.Popen(
        [*COMMAND, str(tmp_path / "c.toml"), "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "UNDERTONE_MOSQUITTO": mosquitto_binary, "OPENBLAS_NUM_THREADS": "1"},
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
    assert names[:1] == ["broker"]
    assert "epoch" in names
    pid = next(event["pid"] for event in events if event["event"] == "broker")
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists(), "the managed broker goes with the server"


def test_a_store_of_another_campaign_is_refused(tmp_path: Path, mosquitto_binary: str) -> None:
    config = tmp_path / "c.toml"
    # The first needs half a second and ends after its time, the second never comes to it.
    for name, seconds, code in (("meters", 8, 0), ("others", 240, 2)):
        config.write_text(sample().replace('"meters"', f'"{name}"'))
        done = subprocess.run(
            [*COMMAND, str(config), "--seconds", str(seconds)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "UNDERTONE_MOSQUITTO": mosquitto_binary, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert done.returncode == code, done.stderr
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

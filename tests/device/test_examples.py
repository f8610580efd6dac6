"""Every example in the help of ``undertone-device`` is run here. `NOT_RUN` says why some cannot be run."""

import json
import shlex

import pytest

from support.factory import policy_of
from undertone_device.__main__ import EXAMPLES, main

# Words in examples that name places outside this test's folder -> the places in it that replace them.
PLACES = {"/etc/undertone/device.json": "device.json", "fleet/devices/meter-17": "."}
# Command -> why its examples are not run here.
NOT_RUN = {
    "run": "it runs until it is stopped, with a broker: tests/device/test_main.py",
    "status": "it shows a device that runs: tests/device/host/test_status.py",
    "reset-campaign": "it needs the ledger of a device that ran: tests/device/test_pause.py",
    "firmware": "it builds for minutes, from a checkout of MicroPython",
    "flash": "it needs a board on a serial port",
    "send": "it needs a board on a serial port",
    "install": "it makes a service of this machine: tests/device/tools/test_tools.py",
}
CONFIG = {"name": "m", "broker": {"host": "x"}, "campaigns": ["load"], "policy": "policy.json", "state": "state"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "policy.json").write_text(json.dumps(policy_of()), encoding="utf-8")
    (tmp_path / "device.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUN = [example for name, pair in EXAMPLES.items() if name not in NOT_RUN for example in pair]


@pytest.mark.parametrize("example", RUN)
def test_an_example_runs(example, folder, capsys):
    for name in ("state", "device", "out"):
        (folder / name).mkdir()
    assert main([PLACES.get(word, word) for word in shlex.split(example)]) == 0, capsys.readouterr().err


def test_what_is_not_run_is_an_example():
    assert set(NOT_RUN) < set(EXAMPLES)


@pytest.mark.parametrize("command", ["pause", "resume", "reset-campaign"])
def test_a_device_that_never_ran_is_named_by_its_missing_folder(command, folder, capsys):
    assert main([command, "--config", "device.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: state is ")
    assert said.endswith("state', expected the folder of a device that has run\n")


def test_a_file_that_cannot_be_opened_is_named_without_a_number_of_an_error(folder, capsys):
    assert main(["release", "none/undertone.zip"]) == 2
    assert capsys.readouterr().err == "error: none/undertone.zip: No such file or directory\n"

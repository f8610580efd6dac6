import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone.commands.fleet import _show
from undertone_shared.errors import Invalid
from undertone_simulator.load.load_options import LoadResult


def fleet(*words):
    return CliRunner().invoke(app, ["fleet", *map(str, words)])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.broker
def test_a_small_load_is_accounted_for(tmp_path, mosquitto_binary):
    # The command runs in its own process, because it prints the largest memory of its process.
    words = "fleet --clients 12 --interval 1 --slots 5 --ramp-up 0.5 --json"
    faults = "--kill 0.1 --duplicate 0.1 --delay 0.1 --lie 0.1 --drop-out 0.1"
    result = subprocess.run(
        [sys.executable, "-m", "undertone", *words.split(), *faults.split(), "--output", str(tmp_path / "f")],
        env={**os.environ, "UNDERTONE_MOSQUITTO": mosquitto_binary},
        capture_output=True,
        encoding="utf-8",
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    # If the machine is too slow for a slot, devices also lose the next slot, because they see only a part of it.
    assert facts["sent"] >= 12 * 4 - 2 * facts["skipped"]
    assert facts["acknowledged"] == facts["sent"]
    assert facts["accounts"]["reports"]["counted"] == facts["sent"]
    assert set(facts["accounts"]["faults"]) == {"killed", "duplicated", "held", "lying"}
    assert facts["peak_megabytes"] < 500
    assert facts["latency_median"] >= 0
    assert (tmp_path / "f" / "fleet.ledger").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--qos", "0"], "qos is 0, expected 1"),
        (["--interval", "5", "--rate", "3"], "exclude each other"),
        (["--fleet", "x", "--rate", "3"], "--rate cannot be given with --fleet"),
        (["--fleet", "x"], "--fleet needs --output"),
        (["--rate", "0"], "rate is 0.0"),
        (["--clients", "10001"], "clients is 10001"),
        (["--kill", "1.5"], "kill is 1.5"),
        (["--population", "fish"], "population is 'fish'"),
    ],
)
def test_bad_input(words, sentence):
    result = fleet(*words)
    assert isinstance(result.exception, Invalid)
    assert sentence in str(result.exception)


def test_with_a_rate_only_a_lower_rate_is_less_work(capsys):
    _show(LoadResult(1, 5.0, 1, 1, None, None, None, 2, None, ()), has_output=False, theirs=False, has_rate=True)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("1 client: 1 report sent, 1 acknowledged in 5 s")
    assert said.endswith("skipped 2 reports. Try a lower --rate")


def test_the_printed_command_quotes_paths(capsys):
    ledgers = (Path("my load/fleet.ledger"),)
    result = LoadResult(2, 5.0, 10, 9, None, None, None, 1, None, ledgers)
    _show(result, has_output=True, theirs=True)
    *lines, command = capsys.readouterr().out.splitlines()
    assert "this machine was too slow: the devices skipped 1 report. Try fewer clients" in " ".join(
        " ".join(lines).split()
    )
    assert command.endswith("undertone verify --ledger 'my load/fleet.ledger' --store THE-SERVERS-STORE")

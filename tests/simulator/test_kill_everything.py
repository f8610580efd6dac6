"""The short form of docs/kill_everything.py."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "kill_everything.py"


def test_everything_is_killed_and_every_report_is_explained(tmp_path, mosquitto_binary, monkeypatch, capfd):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    spec = importlib.util.spec_from_file_location("kill_everything", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    code = script.run(6, tmp_path, round_slots=2, pause=2)
    shown = capfd.readouterr().out
    assert code == 0, shown
    assert "zero unexplained" in shown
    for name in ("aggregator_killed", "fleet_killed", "broker_killed", "broker_stopped", "killed"):
        assert f"fault that happened: {name}" in shown

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid
from undertone_simulator.planning import plan as plan_module
from undertone_simulator.planning.window_plan import plan_window


def plan(*words):
    return CliRunner().invoke(app, ["plan", "--mechanism", "hybrid", "--campaigns", "1", *map(str, words)])


def test_numbers_as_json():
    result = plan("--devices", 622, "--error", "5%", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert [span["name"] for span in facts["spans"]] == ["a slot", "an hour", "a day"]
    assert facts["devices_needed"] > 622
    assert facts["wanted"] == pytest.approx(facts["mean"] * 0.05)


def test_the_page_says_what_it_would_cost():
    result = plan("--devices", 3)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "with 3 devices at ε = 1, without the filter, nothing would be visible" in words
    assert "each day: 48 readings add up to ε = 48" in words
    assert "48 reports of 24 bytes" in words


def test_daily_readings_have_no_curve_of_a_day(tmp_path):
    """A slot is a day, so no warning says that the curve of a day would be hidden. One reading is in the singular."""
    file = tmp_path / "daily.csv"
    file.write_text("day,h1,h2\n2024-01-01,5,6\n2024-01-02,7,8\n2024-01-03,5,9\n", encoding="utf-8")
    words = " ".join(plan("--devices", 4000, "--days", 1, "--data", file).stdout.split())
    assert "a device makes 1 reading a day" in words
    assert "each day: 1 reading adds up to ε = 1" in words
    assert "daily curve" not in words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--error", "few"], "error is 'few'"),
        (["--cohort-share", "1"], "--cohort-share is 1.0"),
        (["--days", "0"], "days is 0"),
        (["--epsilon", "99"], "epsilon"),
    ],
)
def test_bad_input(words, sentence):
    result = plan(*words)
    assert isinstance(result.exception, Invalid)
    assert sentence in str(result.exception)


@pytest.mark.slow
def test_a_window_compares_all_ways_of_collecting(tmp_path, monkeypatch):
    planned = []

    def planned_once(*arguments, **options):
        """Compute the plan once for the table and the JSON, because it takes seconds."""
        if not planned:
            planned.append(plan_window(*arguments, **options))
        return planned[0]

    monkeypatch.setattr(plan_module, "plan_window", planned_once)
    np.savez(tmp_path / "data.npz", wh=np.random.default_rng(1).integers(0, 900, (60, 48 * 16)))
    words = [
        "plan",
        "--window",
        "24h",
        "--devices",
        "2000",
        "--data",
        str(tmp_path / "data.npz"),
        "--bound",
        "1000",
        "--campaigns",
        "1",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    for name in ("turns of 30 min", "turns of 2 h", "turns of 24 h", "every slot, ε split", "stream", "recommended"):
        assert name in result.stdout
    facts = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert facts["recommended"] in {way["name"] for way in facts["ways"]}
    refused = CliRunner().invoke(app, ["plan", "--window", "one day"])
    assert "window is 'one day', expected a number and" in str(refused.exception)

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid

FEW = ["--devices", "300", "--slots", "3"]
SMALL = [*FEW, "--rounds", "0.25,0.25", "--epsilon", "4", "--mechanism", "hybrid"]


def simulate(*words, small=SMALL):
    return CliRunner().invoke(app, ["simulate", *small, *map(str, words)])


def test_estimates_beside_the_truth(tmp_path):
    result = simulate("--json", "--store", tmp_path / "s.sqlite")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert len(facts["slots"]) == 3
    # Devices report in 12 + 12 slots of the rounds, in 3 of the report phase, and in some before a θ is in force.
    assert facts["reports"] >= 300 * (12 + 12 + 3)
    assert {"estimate", "standard_error", "truncated_mean", "truth_truncated", "truth_raw"} < set(facts["slots"][0])
    assert "event-level" in facts["guarantee"]
    again = json.loads(simulate("--json").stdout)
    # Facts that differ from run to run are in a part of their own.
    assert set(facts.pop("run")) == set(again.pop("run")) == {"seconds", "reports_per_second", "peak_megabytes"}
    assert again == facts
    query = CliRunner().invoke(app, ["query", str(tmp_path / "s.sqlite"), "--json"])
    slots = {slot["slot"]: slot for slot in json.loads(query.stdout)["slots"] if slot["group"] == "all"}
    for slot in facts["slots"]:
        # Eight significant digits are printed.
        assert slots[slot["slot"]]["estimate"] == pytest.approx(slot["estimate"], rel=5e-8)


def test_the_papers_way_is_one_word_and_is_named():
    result = simulate("--as-papers", "--json", small=[*FEW, "--epsilon", "4"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    named = {name: facts[name] for name in ("as_papers", "method", "query", "mechanism")}
    assert named == {"as_papers": True, "method": "sw-w", "query": "ranges:48", "mechanism": "hybrid"}
    assert any(note.startswith("as the papers: ") for note in facts["notes"])
    assert "expected 'hybrid': campaign.as_papers" in str(
        simulate("--as-papers", "--mechanism", "optimal", small=FEW).exception
    )
    assert "--as-papers cannot be given" in str(simulate("--as-papers", "--collect", "stream", small=FEW).exception)


def test_a_window_and_a_picture(tmp_path):
    result = simulate("--window", "3h", "--png", tmp_path / "w.png", "--json")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "w.png").read_bytes()[:4] == b"\x89PNG"
    # Devices report every seventh slot of half an hour: 300 / 7 in a slot, less those that report for the threshold.
    assert all(15 < row["reports"] < 75 for row in json.loads(result.stdout)["slots"])
    assert "window" in str(simulate("--window", "a day").exception)


def test_the_table_says_what_it_costs():
    result = simulate("--population", "phones")
    assert result.exit_code == 0, result.output
    assert "intervals hold the mean of the readings" in result.stdout
    assert "per reading" in result.stdout


def test_a_file_and_a_campaign(tmp_path):
    np.savez(tmp_path / "data.npz", wh=np.random.default_rng(1).integers(0, 900, (50, 96)))
    (tmp_path / "c.toml").write_text(
        """
[campaign]
name = "meters"
sensor = "load"
unit = "Wh"
bound = 1000
epsilon = 4
rounds = [8]
mechanism = "hybrid"
report_slots = 2
groups = "g.csv"
""",
        encoding="utf-8",
    )
    (tmp_path / "g.csv").write_text("device,group\nload-001,north\nload-002,north\n", encoding="utf-8")
    words = ["--data", tmp_path / "data.npz", "--plan", tmp_path / "c.toml", "--json"]
    result = simulate(*words, small=["--devices", "300"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    same = "data.npz has 50 series of readings for 300 devices: the other devices are taken to repeat these series"
    assert facts["notes"] == [same]
    assert len(facts["slots"]) == 2
    announced = r"([\d,]+) device-slots are to be simulated; --slots and --devices make them fewer\n"
    (said,) = re.findall(announced, result.stderr)
    # The slots are a threshold round of 8, at most 7 until its θ is in force, and 2 of reports.
    slots, odd = divmod(int(said.replace(",", "")), 300)
    assert (odd, 8 + 2 < slots < 8 + 2 + 8) == (0, True)
    assert {row["group"] for row in facts["groups"]} == {"north", "other"}
    # With a campaign's plan, --slots replaces the report slots of the plan. An option such as --epsilon is refused,
    # because the plan has the value.
    assert len(json.loads(simulate(*words, small=FEW).stdout)["slots"]) == 3
    refused = simulate(*words, "--epsilon", "1", small=FEW)
    assert "--epsilon cannot be given with plan" in str(refused.exception)


@pytest.mark.parametrize("how", ["options", "campaign"])
def test_streams_beside_the_truth(tmp_path, how):
    (tmp_path / "c.toml").write_text(
        """
[campaign]
name = "meters"
sensor = "load"
unit = "Wh"
bound = 10000
epsilon = 4
report_slots = 3
collect = "stream"

[stream]
mechanism = "one-bit"
reports = 3
""",
        encoding="utf-8",
    )
    options = ["--collect", "stream", "--mechanism", "one-bit", "--epsilon", "4"]
    words = options if how == "options" else ["--plan", tmp_path / "c.toml"]
    result = simulate(*words, "--json", "--store", tmp_path / "s.sqlite", small=FEW)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["reports"] == 3 * 300
    assert {slot["kind"] for slot in facts["slots"]} == {"stream"}
    assert "user-level" in facts["guarantee"]
    query = CliRunner().invoke(app, ["query", str(tmp_path / "s.sqlite"), "--json"])
    slots = {slot["slot"]: slot for slot in json.loads(query.stdout)["slots"]}
    for slot in facts["slots"]:
        # Eight significant digits are printed.
        assert slots[slot["slot"]]["estimate"] == pytest.approx(slot["estimate"], rel=5e-8)
    table = simulate(*words, small=FEW)
    assert "intervals hold the mean of the readings" in table.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--population", "fish"], "population is 'fish', expected one of households"),
        (["--rounds", "one"], "rounds is 'one', expected days of each round"),
        (["--liars", "2"], "liars is 2.0, expected a share"),
        (["--devices", "0"], "devices is 0"),
        (["--slots", "0"], "slots is 0, expected an integer from 1 to 268435456"),
        (["--collect", "streams"], "collect is 'streams', expected one of reports, stream"),
        (["--delta", "0.1"], "delta cannot be given where collect is reports"),
        (["--collect", "stream"], "rounds cannot be given where collect is stream"),
    ],
)
def test_bad_input(words, sentence):
    result = simulate(*words)
    assert isinstance(result.exception, Invalid)
    assert sentence in str(result.exception)


@pytest.mark.slow
def test_a_temperature_is_truncated_from_both_sides():
    words = ["--population", "temperature", "--devices", "2000", "--slots", "12", "--epsilon", "1"]
    result = simulate("--mechanism", "hybrid", "--json", *words, small=[])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    # The rooms' readings lie within 550 to 650. If only the upper end were truncated, the half-width would be some 320.
    # 4.289 is the variance of a report of the Hybrid at ε = 1, in units of (half-width)².
    half_width = facts["slots"][0]["truncated_se"] * np.sqrt(facts["slots"][0]["reports"] / 4.289)
    assert 20 < half_width < 75
    error = np.sqrt(np.mean([(slot["estimate"] - slot["truth_raw"]) ** 2 for slot in facts["slots"]]))
    assert error < 320 * np.sqrt(4.289 / 1900) / 3


@pytest.mark.slow
def test_one_liar_in_a_hundred_does_not_choose_theta():
    words = ["--devices", "10000", "--epsilon", "1", "--seed", "3", "--json"]
    honest = json.loads(simulate(*words, small=[]).stdout)
    lied_to = json.loads(simulate(*words, "--liars", "0.01", small=[]).stdout)
    assert honest["theta"] / 2 <= lied_to["theta"] <= 2 * honest["theta"]
    assert any(warning.startswith("false reports") for warning in lied_to["warnings"])
    slots = lied_to["slots"]
    mean, truth = (np.mean([slot[name] for slot in slots]) for name in ("estimate", "truth_raw"))
    error = np.sqrt(np.sum([slot["standard_error"] ** 2 for slot in slots])) / len(slots)
    assert abs(mean - truth) < np.mean([slot["manipulation"] for slot in slots]) + 2 * error

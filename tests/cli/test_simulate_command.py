import json

import numpy as np
import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid

SMALL = ["--devices", "300", "--slots", "3", "--rounds", "0.25,0.25", "--epsilon", "4", "--mechanism", "hybrid"]


def simulate(*words, small=SMALL):
    return CliRunner().invoke(app, ["simulate", *small, *map(str, words)])


def test_estimates_beside_the_truth(tmp_path):
    found = simulate("--json", "--store", tmp_path / "s.sqlite")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert len(facts["slots"]) == 3
    # 28 slots: 12 + 12 of the rounds, their pauses, 3 of the report phase.
    assert facts["reports"] >= 300 * (12 + 12 + 3)
    assert {"estimate", "standard_error", "low_raw", "truth_truncated", "truth_raw"} < set(facts["slots"][0])
    assert "event-level" in facts["guarantee"]
    assert simulate("--json").stdout.partition("measured_error")[0] == found.stdout.partition("measured_error")[0]
    query = CliRunner().invoke(app, ["query", str(tmp_path / "s.sqlite"), "--json"])
    slots = {one["slot"]: one for one in json.loads(query.stdout)["slots"] if one["group"] == "all"}
    for one in facts["slots"]:
        assert slots[one["slot"]]["estimate"] == one["estimate"]


def test_the_table_says_what_it_costs():
    found = simulate("--population", "phones")
    assert found.exit_code == 0, found.output
    assert "intervals hold the truncated truth" in found.stdout
    assert "per reading" in found.stdout


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
"""
    )
    found = simulate("--data", tmp_path / "data.npz", "--campaign", tmp_path / "c.toml", "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert facts["notes"] == ["groups are not simulated: the estimates are of everybody together"]
    assert len(facts["slots"]) == 2


def test_streams_are_refused_with_a_way_out(tmp_path):
    (tmp_path / "c.toml").write_text(
        """
[campaign]
name = "meters"
sensor = "load"
unit = "Wh"
bound = 1000
epsilon = 4
[stream]
delta = 1e-5
slew = 0.05
reports = 48
"""
    )
    found = simulate("--campaign", tmp_path / "c.toml")
    assert "undertone demo --stream" in str(found.exception)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--population", "fish"], "population is 'fish', expected one of households"),
        (["--rounds", "one"], "rounds is 'one', expected days of each round"),
        (["--liars", "2"], "liars is 2.0, expected a share"),
        (["--devices", "0"], "devices is 0"),
    ],
)
def test_bad_input(words, sentence):
    found = simulate(*words)
    assert isinstance(found.exception, Invalid)
    assert sentence in str(found.exception)

"""The results page and our own experiments, at their smallest."""

import csv
import json

import numpy as np
import pytest

from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.integers import release_variance
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN
from undertone_simulator.experiments import poisoning, registry, results
from undertone_simulator.experiments.outcome import Outcome, Panel
from undertone_simulator.experiments.paragraphs import CHAPTERS, PARAGRAPHS
from undertone_simulator.experiments.planned import SLEW, released_errors
from undertone_simulator.experiments.registry import Options
from undertone_simulator.experiments.results import page

OUTCOME = Outcome("A title", ("n", "x"), [(1, 0.5), (2, 0.25)], ["A note."], [Panel("p", "n", "x", {"a": ([1], [2])})])


def test_an_outcome_as_files(tmp_path):
    OUTCOME.write(tmp_path, "one")
    assert list(csv.reader((tmp_path / "one.csv").read_text().splitlines())) == [
        ["n", "x"],
        ["1", "0.5"],
        ["2", "0.25"],
    ]
    assert json.loads((tmp_path / "one.json").read_text())["rows"] == [{"n": 1, "x": 0.5}, {"n": 2, "x": 0.25}]
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"


def test_every_experiment_has_a_chapter_and_every_paragraph_an_experiment():
    for name in registry.names():
        assert sum(name.startswith(prefixes) for prefixes in CHAPTERS.values()) == 1, name
    assert set(PARAGRAPHS) <= set(registry.names())


def test_the_page_has_figure_table_and_what_was_left_out():
    text = page({"tops-fig1": OUTCOME}, {"coverage": "coverage needs EDRP"}, Options(quick=True))
    assert "### A title" in text
    assert "![A title](tops-fig1.png)" in text
    assert "| 1 | 0.5 |" in text
    assert "- coverage: coverage needs EDRP" in text
    assert "not what they find" in text


def test_an_experiment_without_its_data_is_skipped_by_name(tmp_path, monkeypatch):
    def run(name, options):
        if name == "coverage":
            raise Invalid("coverage needs EDRP")
        return OUTCOME

    monkeypatch.setattr(results, "run", run)
    said = []
    chosen = ["coverage", "poisoning", "tops-fig1"]
    path, skipped = results.write_results(Options(repeats=1, quick=True), tmp_path, said.append, chosen)
    assert skipped == {"coverage": "coverage needs EDRP"}
    assert (tmp_path / "poisoning.csv").exists()
    assert path.read_text().count("### A title") == 2
    assert len(said) == 3


def test_coverage_says_what_it_needs():
    with pytest.raises(Invalid, match="coverage needs EDRP: give --data"):
        registry.run("coverage", Options())


def test_liars_shift_a_mean_up_to_the_bound(monkeypatch):
    monkeypatch.setattr(poisoning, "DEVICES", 4000)
    monkeypatch.setattr(poisoning, "SHARES", (0.0, 0.1))
    found = registry.run("poisoning", Options(repeats=3))
    for mechanism, epsilon, share, shift, _, bound in found.rows:
        # One deviation of the mean of 4000 devices over 3 repeats, in % of the range, at most.
        deviation = {"0.5": 2.1, "1": 1.1, "4": 0.3}[epsilon]
        assert abs(shift - bound) < 6 * deviation, (mechanism, epsilon, share)


def test_the_simulated_stream_is_the_rules_own():
    rule = choose(GAUSSIAN, rho_for(GAUSSIAN, 1.0, 1e-5), slew=SLEW, reports=48, theta=10_000)
    readings = np.random.default_rng(1).integers(0, 10_001, (48, 4000))
    errors = released_errors(rule, readings, np.random.default_rng(2)) * np.sqrt(4000)
    # 48 correlated values of a normal law: their mean square is within a factor of 3 by far.
    assert 1 / 3 < np.mean(errors**2) / release_variance(rule) < 3


def test_unknown_names():
    with pytest.raises(Invalid, match="there is no experiment 'fig99'"):
        registry.run("fig99", Options())

"""The page of results, and this project's own experiments at their smallest."""

import csv
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from support.refusal import refused
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.integers import release_variance
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN
from undertone_studies import results
from undertone_studies.experiments import poisoning
from undertone_studies.experiments.plan import SLEW, stream_errors
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import EXPERIMENTS, StudyOptions
from undertone_studies.results import CHAPTERS

OUTCOME = Outcome("A title", ("n", "x"), [(1, 0.5), (2, 0.25)], ["A note."], [Panel("p", "n", "x", {"a": ([1], [2])})])


def test_an_outcome_as_files(tmp_path):
    OUTCOME.write(tmp_path, "one")
    assert list(csv.reader((tmp_path / "one.csv").read_text(encoding="utf-8").splitlines())) == [
        ["n", "x"],
        ["1", "0.5"],
        ["2", "0.25"],
    ]
    assert json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))["rows"] == [
        {"n": 1, "x": 0.5},
        {"n": 2, "x": 0.25},
    ]
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"


def test_every_experiment_has_a_title_and_one_chapter():
    for name in EXPERIMENTS.names():
        assert EXPERIMENTS[name].title
        assert sum(name.startswith(prefixes) for prefixes in CHAPTERS.values()) == 1, name
    assert results.chapter_of("tops-fig3") == "ToPS and ToPL (CCS 2021)"
    assert results.chapter_of("unheard-of") == results.FURTHER
    assert list(results.QUESTIONS) == list(CHAPTERS)


@pytest.mark.slow
def test_the_pages_have_figure_table_and_what_was_left_out(tmp_path):
    folder = tmp_path / "results"
    results.write("tops-fig1", OUTCOME, StudyOptions(quick=True), folder)
    sizes = Outcome("Sizes", ("homes", "ε = 1", "ε = 2"), [(5000, 3.5, 12.0)], [], [])
    results.write("fleets", sizes, StudyOptions(), folder)
    text = results.write_page(folder, {"coverage": "coverage needs EDRP"}).read_text(encoding="utf-8")
    assert "experiment all --output" in text
    assert "| error of a half-hour's mean, % | ε = 1 | ε = 2 |" in text
    assert "| 5,000 homes | 3.5 | 12 |" in text
    assert "- coverage: coverage needs EDRP" in text
    assert "show only that their experiments work: tops-fig1" in text
    question = results.QUESTIONS["ToPS and ToPL (CCS 2021)"]
    assert f"| [ToPS and ToPL (CCS 2021)](results/tops-and-topl.md) | {question} | `tops-fig1` |" in text
    chapter = (folder / "tops-and-topl.md").read_text(encoding="utf-8")
    assert "## A title" in chapter
    assert "`undertone experiment tops-fig1 --quick --seed 1`" in chapter
    assert "![A title](tops-fig1.png)" in chapter
    assert "| 1 | 0.5 |" in chapter
    document = json.loads((folder / "tops-fig1.json").read_text(encoding="utf-8"))
    assert Outcome.of(document).csv() == OUTCOME.csv()
    assert document["picture"] == hashlib.sha256((folder / "tops-fig1.png").read_bytes()).hexdigest()
    assert results.redraw(folder) == ["tops-fig1"]
    assert json.loads((folder / "tops-fig1.json").read_text(encoding="utf-8")) == document


def test_a_table_has_no_figure(tmp_path):
    table = replace(OUTCOME, panels=())
    table.write(tmp_path, "table")
    assert not (tmp_path / "table.png").exists()
    with pytest.raises(Invalid, match="is a table: it has no figure"):
        table.draw(tmp_path / "table.png")


@pytest.mark.slow
def test_an_experiment_without_its_data_is_skipped_by_name(tmp_path, monkeypatch):
    def run(name, options):
        if name == "coverage":
            raise Invalid("coverage needs EDRP")
        return OUTCOME

    monkeypatch.setattr(results.EXPERIMENTS, "run", run)
    said = []
    chosen = ["coverage", "poisoning", "tops-fig1"]
    folder = tmp_path / "found"
    path, skipped = results.write_results(StudyOptions(repeats=1, quick=True), folder, said.append, chosen)
    assert skipped == {"coverage": "coverage needs EDRP"}
    assert (folder / "poisoning.csv").exists()
    assert path == tmp_path / "found.md"
    assert re.findall(r"\| (`.*`) \|$", path.read_text(encoding="utf-8"), re.MULTILINE) == [
        "`poisoning`",
        "`tops-fig1`",
    ]
    assert len(said) == 3
    # One experiment runs again by itself. The page keeps the results of the others.
    results.write("tops-fig1", OUTCOME, StudyOptions(repeats=7), folder)
    page = results.write_page(folder).read_text(encoding="utf-8")
    assert re.findall(r"\| (`.*`) \|$", page, re.MULTILINE) == ["`poisoning`", "`tops-fig1`"]
    assert "--repeats 7" in (folder / "tops-and-topl.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_several_processes_find_the_same(tmp_path):
    chosen = ["tops-table1", "coverage", "tops-fig5"]
    for folder, workers in (("one", 1), ("three", 3)):
        options = StudyOptions(repeats=1, quick=True, only=("Kosarak (stand-in)",), workers=workers)
        _, skipped = results.write_results(options, tmp_path / folder, lambda sentence: None, chosen)
        assert list(skipped) == ["coverage"]
    for name in ("tops-table1", "tops-fig5"):
        assert (tmp_path / "one" / f"{name}.csv").read_text(encoding="utf-8") == (
            tmp_path / "three" / f"{name}.csv"
        ).read_text(encoding="utf-8")


def test_coverage_says_what_it_needs():
    with refused("EDRP", "--data"):
        EXPERIMENTS.run("coverage", StudyOptions())


def test_liars_shift_a_mean_up_to_the_bound(monkeypatch):
    monkeypatch.setattr(poisoning, "DEVICES", 4000)
    monkeypatch.setattr(poisoning, "SHARES", (0.0, 0.1))
    outcome = EXPERIMENTS.run("poisoning", StudyOptions(repeats=3))
    for mechanism, epsilon, share, shift, _, bound in outcome.rows:
        # The largest standard deviation of the mean of 4,000 devices over 3 repeats, in % of the range.
        deviation = {"0.5": 2.1, "1": 1.1, "4": 0.3}[epsilon]
        assert abs(shift - bound) < 6 * deviation, (mechanism, epsilon, share)


def test_the_simulated_stream_is_the_rules_own():
    rule = choose(GAUSSIAN, rho_for(GAUSSIAN, Budget.parse(1, 1e-5)), slew=SLEW, reports=6, theta=10_000)
    errors = stream_errors(rule, np.arange(10_001), 1000, 1)
    # The mean square of 1,000 independent streams, with 6 correlated normal values each, has a standard deviation below
    # 4.5 %.
    assert np.mean(errors**2) / release_variance(rule) == pytest.approx(1, abs=6 * 0.045)


def test_unknown_names():
    with pytest.raises(Invalid, match="there is no experiment 'fig99'"):
        EXPERIMENTS.run("fig99", StudyOptions())

"""``undertone experiment``: where it finds the real data sets."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_studies.commands import experiment
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions


@pytest.fixture
def asked(monkeypatch):
    """The options of each experiment that the command asks for; no experiment is run."""
    runs: list[StudyOptions] = []

    def run(name: str, options: StudyOptions) -> Outcome:
        runs.append(options)
        return Outcome(name, ("a",), [(1,)], [], [])

    monkeypatch.setattr(experiment.EXPERIMENTS, "run", run)
    return runs


def test_the_data_folder_by_option_by_variable_by_default(asked, tmp_path, monkeypatch):
    for name in ("given", "variable", "shared/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.delenv("UNDERTONE_DATA", raising=False)
    CliRunner().invoke(app, ["experiment", "theta"])
    monkeypatch.setenv("UNDERTONE_DATA", str(tmp_path / "variable"))
    CliRunner().invoke(app, ["experiment", "theta"])
    CliRunner().invoke(app, ["experiment", "theta", "--data", str(tmp_path / "given")])
    assert [given.data for given in asked] == [Path("../shared/data"), tmp_path / "variable", tmp_path / "given"]


def test_without_data_it_says_so(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERTONE_DATA", str(tmp_path / "nowhere"))
    result = CliRunner().invoke(app, ["experiment", "theta"])
    assert result.exit_code == 0
    assert "there is no folder" in result.output
    assert "nowhere" in result.output
    assert asked[0].data is None

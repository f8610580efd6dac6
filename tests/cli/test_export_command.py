"""An export contains only what may be published, and overwrites no file."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.refusal import refused
from support.stores import simulated_store
from undertone.app import app
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.estimate.formats import FORMATS, format_of
from undertone_shared.errors import Invalid


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory)


@pytest.mark.parametrize("form", ["csv", "jsonl", "influx", "parquet"])
def test_every_series_with_its_guarantee(store: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["export", str(store), str(out), "--format", form, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    facts = json.loads((out / "campaign.json").read_text(encoding="utf-8"))
    with open_results(store) as results:
        assert facts["guarantee"] == results.guarantee
        assert len(facts["epochs"]) == len(results.timeline)
        slots = {estimate.slot for estimate in results.estimates(settled=True) if estimate.slot <= results.settled}
    if form == "csv":
        rows = list(csv.DictReader((out / "series.csv").read_text(encoding="utf-8").splitlines()))
        assert {int(row["slot"]) for row in rows if row["kind"] != "absent"} == slots
        raw = [int(row["slot"]) for row in rows if row["filtered"] == "False" and row["group"] == "all"]
        assert raw == list(range(min(slots), max(slots) + 1))
        assert {row["filtered"] for row in rows} == {"True", "False"}
        assert len(rows) == said["rows"]
    else:
        assert (out / f"series.{form}").stat().st_size > 1000


def test_an_unknown_form_is_refused_wherever_one_is_named(store: Path, tmp_path: Path) -> None:
    """The errors and the help of `export` and of `query` name all formats of one table."""
    for command in (["export", str(store), str(tmp_path / "y")], ["query", str(store)]):
        for word in ("xls", "", "CSV", "line"):
            done = CliRunner().invoke(app, [*command, "--format", word])
            assert isinstance(done.exception, Invalid), (command, word)
            assert f"--format is {word!r}, expected one of" in str(done.exception)
            assert all(form in str(done.exception) for form in FORMATS)
        helped = " ".join(CliRunner().invoke(app, [command[0], "--help"]).stdout.split())
        assert all(form in helped for form in FORMATS), command
    assert not (tmp_path / "y").exists()
    with refused("format", "'xls'"):
        format_of("format", "xls")


def test_nothing_is_replaced(store: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["export", str(store), str(tmp_path)]).exit_code != 0
    assert runner.invoke(app, ["export", str(store), str(tmp_path / "x"), "--format", "xls"]).exit_code != 0

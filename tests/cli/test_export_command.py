"""An export is what may be published, and replaces nothing."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.stores import simulated_store
from undertone.app import app
from undertone_aggregator.results import open_results


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory, devices=200, slots=60)


@pytest.mark.parametrize("form", ["csv", "jsonl", "influx", "parquet"])
def test_every_series_with_its_guarantee(store: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["export", str(store), str(out), "--format", form, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    facts = json.loads((out / "campaign.json").read_text())
    with open_results(store) as results:
        assert facts["guarantee"] == results.guarantee
        assert len(facts["epochs"]) == len(results.timeline)
        slots = {estimate.slot for estimate in results.estimates(settled=True) if estimate.slot <= results.settled}
    if form == "csv":
        rows = list(csv.DictReader((out / "series.csv").read_text().splitlines()))
        assert {int(row["slot"]) for row in rows} == slots
        assert {row["filtered"] for row in rows} == {"True", "False"}
        assert len(rows) == said["rows"]
    else:
        assert (out / f"series.{form}").stat().st_size > 1000


def test_nothing_is_replaced(store: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["export", str(store), str(tmp_path)]).exit_code != 0
    assert runner.invoke(app, ["export", str(store), str(tmp_path / "x"), "--format", "xls"]).exit_code != 0

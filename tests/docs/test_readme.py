"""The first screen of README names the field. Its figures are right, and its command prints what the screen shows."""

import re
import shlex

import pytest
from typer.testing import CliRunner

import undertone
from support.micropython import REPO
from undertone.app import app

SCREEN = (REPO / "README.md").read_text("utf-8").partition("\n## ")[0]


def test_it_names_the_field_and_the_methods():
    first = SCREEN.split("\n\n")[1]
    names = (
        "local differential privacy",
        "time series",
        "MQTT",
        "Hybrid",
        "Square Wave",
        "EM",
        "CGM",
        "tables designed",
    )
    assert [name for name in names if name not in " ".join(first.split())] == []


@pytest.mark.slow
def test_its_table_has_the_errors_that_the_plan_predicts():
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) % \|", SCREEN, re.MULTILINE)
    assert len(rows) == 3
    for devices, error in rows:
        plan = undertone.plan(devices=int(devices.replace(",", "")), epsilon=1)
        assert f"{100 * plan.spans[0].shown / plan.mean:.2g}" == error


def test_its_command_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    command, shown = re.findall(r"```(?:sh)?\n(.*?)```", SCREEN, re.DOTALL)
    (line,) = [line for line in command.splitlines() if line.startswith("undertone ")]
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
    printed = [" ".join(line.split()) for line in done.output.splitlines()]
    assert [line for line in shown.splitlines() if " ".join(line.split()) not in printed] == []
    assert (tmp_path / "day.png").stat().st_size > 10_000


def test_its_table_has_the_errors_of_the_results():
    results = (REPO / "docs/results.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) % \|", SCREEN, re.MULTILINE)
    assert len(rows) == 3
    for homes, error in rows:
        (cells,) = re.findall(rf"^\| {homes} homes \|(.*)\|$", results, re.MULTILINE)
        assert cells.split("|")[1].strip() == error

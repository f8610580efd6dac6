"""The contract that every output format keeps, and what some formats do in addition."""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from support.micropython import REPO
from support.stores import simulated_store
from undertone.app import app
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.estimate.estimates import ABSENT, Estimate, RangeEstimate, Row
from undertone_aggregator.estimate.export import to_influx
from undertone_aggregator.estimate.formats import FORMATS, Format
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.selection import Selection

# The product's formats and the guide's example. Each one passes all tests that use `form`.
TRIED = [*FORMATS, "markdown"]


@pytest.fixture(params=TRIED)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of each format."""
    markdown = Format("text/markdown", "md", "support.markdown_format", "to_markdown")
    monkeypatch.setitem(FORMATS, "markdown", markdown)
    return str(request.param)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory)


@pytest.fixture
def results(store: Path) -> Iterator[Results]:
    with open_results(store) as opened:
        yield opened


def test_it_writes_rows_of_every_kind_and_none(form: str, results: Results) -> None:
    estimates = results.estimates(groups=None, filtered=True, settled=True, absent=True)
    first, last = estimates[0].slot, estimates[-1].slot
    tables: list[tuple[list[Row], type[Row]]] = [
        ([*estimates, replace(estimates[0], slot=7, kind=ABSENT, estimate=math.nan)], Estimate),
        ([*results.ranges(48, first, last)], RangeEstimate),
        ([*results.selection(first, last)], Selection),
    ]
    for rows, kind in tables:
        assert rows
        assert len(FORMATS[form].write(results, rows, kind)) > len(FORMATS[form].write(results, [], kind))


def test_a_csv_file_has_each_value_with_all_its_digits(results: Results) -> None:
    rows = results.estimates(groups=None, filtered=True, absent=True)
    columns = Estimate.table(rows)
    header, *lines = csv.reader(io.StringIO(FORMATS["csv"].write(results, rows, Estimate).decode()))
    assert len(lines) == len(rows)
    for place, name in enumerate(header[: len(columns)]):
        values = [line[place] for line in lines]
        assert values == ["" if value is None else str(value) for value in columns[name]]
    assert header[len(columns) :] == ["time", "unit", "epsilon", "guarantee"]
    assert {line[-1] for line in lines} == {results.guarantee}
    starts = [datetime.fromisoformat(line[len(columns)]).timestamp() for line in lines]
    assert starts == columns["start"]


@pytest.mark.slow_but("csv")
def test_the_commands_write_what_the_format_writes(form: str, store: Path, tmp_path: Path, results: Results) -> None:
    format_ = FORMATS[form]
    series = tmp_path / "out" / f"series.{format_.suffix}"
    done = CliRunner().invoke(app, ["export", str(store), str(tmp_path / "out"), "--format", form])
    assert done.exit_code == 0, done.output
    groups = results.each_group(groups=None, filtered=True, settled=True, absent=True)
    assert series.read_bytes() == b"".join(format_.pieces(results, groups, Estimate))
    # `query` writes text to the terminal; a binary format needs the name of a file.
    done = CliRunner().invoke(app, ["query", str(store), "--format", form, "--newest", "2"])
    assert (done.exit_code == 0) is not format_.binary
    done = CliRunner().invoke(app, ["query", str(store), "--format", form, "--output", str(tmp_path / "answer")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "answer").stat().st_size > 0


def test_the_guide_has_the_format_as_it_is_tried_here() -> None:
    guide = (REPO / "docs/extending.md").read_text(encoding="utf-8")
    assert (REPO / "tests/support/markdown_format.py").read_text(encoding="utf-8") in guide
    assert '"markdown": Format("text/markdown", "md", ' in guide


@dataclass(frozen=True)
class Note(Row):
    """A row with each type of value."""

    plural: ClassVar[str] = "notes"

    start: int
    text: str
    count: int
    part: float
    good: bool
    missing: int | None = None


def test_line_protocol_marks_each_type_of_value(results: Results) -> None:
    """The field values of InfluxDB's line protocol; text is in quotes, with quotes and backslashes escaped."""
    (line,) = to_influx(results, [[Note(5, 'a "b\\c", d', 3, 0.5, True)]], Note)
    assert (
        line.decode().strip() == rf'{results.campaign.name} text="a \"b\\c\", d",count=3i,part=0.5,good=true 5000000000'
    )

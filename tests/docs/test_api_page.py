"""The page of the API lists the columns of each table, and the paths of the HTTP API with their parameters."""

import re
from typing import Any

import pytest

from support.micropython import REPO
from undertone_aggregator.estimate.difference import MeanDifference
from undertone_aggregator.estimate.distribution import Quantile
from undertone_aggregator.estimate.estimates import Estimate, RangeEstimate, Row
from undertone_aggregator.estimate.formats import FORMATS
from undertone_aggregator.estimate.losses import SlotLosses, SlotRefusals
from undertone_aggregator.estimate.query import LARGEST_SELECTION
from undertone_aggregator.estimate.selection import Selection
from undertone_aggregator.web.api import FILES, LARGEST_RUNS
from undertone_aggregator.web.app import Pages
from undertone_aggregator.web.openapi import document
from undertone_aggregator.web.site import StoreSite

PAGE = (REPO / "docs/api.md").read_text(encoding="utf-8")
COLUMNS = PAGE.partition("## The columns of a series\n")[2].partition("\n## ")[0]
HTTP = PAGE.partition("## The HTTP API\n")[2].partition("\n## ")[0]
# The words with which the page's table begins a line about another kind of rows -> the kind.
OTHERS: dict[str, type[Row]] = {
    "means over runs": RangeEstimate,
    "one mean of a selection": Selection,
    "a difference": MeanDifference,
    "quantiles": Quantile,
    "losses": SlotLosses,
    "refusals": SlotRefusals,
}


def cells(text: str, heading: str) -> list[list[str]]:
    """The cells of each row of the table whose first column has this heading."""
    table = text.partition(f"\n| {heading}")[2].partition("\n\n")[0]
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table.splitlines()[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def test_each_column_of_a_csv_file_has_its_row() -> None:
    rows = [name for row in cells(COLUMNS, "column") for name in names(row[0])]
    assert rows == [*Estimate.columns(), "time", "unit", "epsilon", "guarantee"]


@pytest.mark.parametrize("row", cells(COLUMNS, "rows"), ids=lambda row: str(row[0])[:20])
def test_each_further_column_of_another_table_is_explained(row: list[str]) -> None:
    (kind,) = [kind for words, kind in OTHERS.items() if row[0].startswith(words)]
    assert set(kind.columns()) - set(Estimate.columns()) <= set(names(row[1])) <= set(kind.columns())


def test_no_other_table_is_left_out() -> None:
    assert len(cells(COLUMNS, "rows")) == len(OTHERS)


def served() -> set[str]:
    """The paths that programs may get. Paths for a person who has logged in are left out."""
    routes = Pages(StoreSite({}), None).routes()
    return {
        route.path.replace("{name}", "NAME")
        for route in routes
        if route.path.startswith("/api/") and "{action}" not in route.path and not route.path.endswith("/session")
    }


def test_each_path_has_its_row() -> None:
    paths = [row[0].strip("`") for row in cells(HTTP, "GET")]
    assert sorted(paths) == sorted(served())


def test_each_path_has_its_parameters() -> None:
    described: dict[str, Any] = document()["paths"]
    for path, parameters, *_ in cells(HTTP, "GET"):
        name = path.strip("`").replace("NAME", "{name}")
        if name in described:
            query = [each["name"] for each in described[name]["get"]["parameters"] if each["in"] == "query"]
            assert names(parameters) == query, name


def test_each_parameter_is_explained() -> None:
    used = {name for row in cells(HTTP, "GET") for name in names(row[1])}
    explained = {name: row[1] for row in cells(HTTP, "parameter") for name in names(row[0])}
    assert set(explained) == used
    assert set(names(explained["format"])) == set(FORMATS)
    assert f"{LARGEST_SELECTION:,}" in explained["from"]
    assert f"at most {LARGEST_RUNS} runs" in HTTP
    assert set(names(explained["of"])) == set(FILES)

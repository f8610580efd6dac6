"""A figure in prose is the one in docs/results: ``<!-- figure: STUDY column=value … column -->0.95`` is compared.

The first row of STUDY.json whose columns have these values is meant; the text after the comment is its cell, rounded to
as many digits as are shown. ``column[2]`` is the second figure of a cell like ``72 / 93``.
"""

import json
import re

import pytest

from support.micropython import REPO

RESULTS = REPO / "docs" / "results"
PAGES = [*sorted((REPO / "docs").glob("*.md")), REPO / "README.md", *sorted(REPO.glob("*/README.md"))]
_FIGURE = re.compile(r"<!-- figure: (?P<study>[\w-]+) (?P<where>[^>]*?) ?-->(?P<shown>[-+.\de]+)")


def cell(study, where):
    """The value that a comment names."""
    rows = json.loads((RESULTS / f"{study}.json").read_text("utf-8"))["rows"]
    parts = [part.strip() for part in where.split(";")] if ";" in where else where.split()
    *conditions, column = parts
    for row in rows:
        if all(_same(row[name], wanted) for name, wanted in (part.split("=", 1) for part in conditions)):
            name, _, part = column.rstrip("]").partition("[")
            return float(str(row[name]).split(" / ")[int(part) - 1 if part else 0])
    raise LookupError(f"{study} has no row with {where}")


def _same(value, wanted):
    return str(value) == wanted or (not isinstance(value, str) and _number(wanted) == value)


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def differences(text):
    """The figures of a text that are not those of the results."""
    wrong = []
    for match in _FIGURE.finditer(text):
        shown = match["shown"].rstrip(".")
        mantissa, _, exponent = shown.partition("e")
        step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        value = cell(match["study"], match["where"])
        if abs(value - float(shown)) > step / 2 * (1 + 1e-9):
            wrong.append(f"{match['study']} {match['where']}: {shown} is shown, the result is {value:g}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_figures_are_those_of_the_results(page):
    assert differences(page.read_text("utf-8")) == []


def test_figures_are_there_and_a_wrong_one_is_found():
    assert sum(len(_FIGURE.findall(page.read_text("utf-8"))) for page in PAGES) >= 20
    assert differences("<!-- figure: coverage epsilon=1 held -->0.7")
    with pytest.raises(LookupError):
        differences("<!-- figure: coverage epsilon=77 held -->0.7")

"""Each figure in a guide is the one in docs/results.

`scripts/figures.py` says how figures are marked, and writes them.
"""

import importlib.util
import json
import re

import pytest

from support.micropython import REPO
from undertone_studies import results
from undertone_studies.registry import EXPERIMENTS

_spec = importlib.util.spec_from_file_location("figures", REPO / "scripts/figures.py")
figures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(figures)


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_figures_are_those_of_the_results(page):
    text = page.read_text("utf-8")
    refreshed, used = figures.refreshed(text)
    assert refreshed.splitlines() == text.splitlines()
    assert used == {match["name"] for match in figures.DEFINITION.finditer(text)}, "a definition has no figure"


# In sections that name a study, these numbers are chosen, not measured: parameters, levels, the papers' populations.
CHOSEN = {
    "central.md": "93 2 5 .01 .02 .05 .1 .2 .5 .9",
    "cgm.md": "1 .5 .025 .1",
    # Numbers of sections, definitions and remarks of the documents.
    "equations.md": "1.1 1.2 1.3 1.4 2.1 2.2 2.3 2.4 3.1 3.2 3.3 3.4 3.5 3.6 4.1 4.3 5.1 5.2 5.3 5.4 5.5 6.1 6.2 "
    # A document's numbers on arXiv, the spacing of candidates, and the exponent of a bound.
    "2005.11753 2111.13762 10 2.5 1.5",
    "filter.md": "0.4 20 85 93 95 97 .85 .93 .98",
    "simulation.md": ".85 1.2",
    "README.md": "0.5 95 2024.12 2025.1",
    # Numbers of papers on arXiv.
    "papers.md": "2301.10600 2510.11116",
    "statistician.md": "85 93 95 1.2 1",
    "tables.md": "1.25",
    "threshold.md": "70 99 99.5 1.7 1 90 0.001",
}
_STUDY = re.compile(r"undertone\s+experiment\s+(?!all|NAME)[a-z]|results/[a-z0-9-]+\.(?:csv|json|png)")
# A decimal number or a percentage. Numbers after "=", "ε" or "at" are parameters, and are left out.
_DECIMAL = re.compile(r"(?<![\w.,/^-])(?<!= )(?<!ε )(?<!=)(?<!at )(\d+\.\d+|\.\d+|\d+(?= %))(?![\w.]|/\d)")


def unmarked(text):
    """The numbers in a page's sections that name a study, except marked ones and those in code."""
    numbers = []
    for section in re.split(r"\n(?=## )", figures.DEFINITION.sub("", text)):
        if _STUDY.search(section):
            prose = re.sub(r"```.*?```", "", section, flags=re.DOTALL)
            for marked in (figures.TABLE, figures.FIGURE):
                prose = marked.sub("", prose)
            numbers += _DECIMAL.findall(re.sub(r"`[^`]*`", "", prose))
    return numbers


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_what_was_measured_is_marked(page):
    chosen = CHOSEN.get(page.name, "").split()
    assert sorted(set(unmarked(page.read_text("utf-8"))) - set(chosen)) == []


def test_a_figure_without_a_mark_is_seen():
    text = "## A\n`undertone experiment day`: .93 at .5, 12 % for ε = 1.5\n## B\n.7\n"
    assert unmarked(text) == [".93", "12"]
    assert unmarked(text.replace(".93", "[.93][day-1]")) == ["12"]
    assert unmarked(text.replace("undertone experiment", "undertone\nexperiment")) == [".93", "12"]


def test_figures_are_there():
    assert sum(len(figures.DEFINITION.findall(page.read_text("utf-8"))) for page in figures.PAGES) >= 100


def test_the_results_pages_are_made_from_their_files():
    files = [figures.RESULTS / f"{name}.json" for name in EXPERIMENTS.names()]
    documents = {path.stem: json.loads(path.read_text("utf-8")) for path in files if path.exists()}
    for chapter, names in results.chapters(documents).items():
        page = figures.RESULTS / f"{results.slug(chapter)}.md"
        made = results.chapter_page(chapter, {name: documents[name] for name in names})
        assert page.read_text("utf-8") == made, page.name


ROWS = (
    {"way": "turns, C = 1", "n": "1", "error": 0.12345, "ε = 1": "1.5 / 20 (3)"},
    {"way": "stream", "n": "2", "error": 12345.6, "ε = 1": "2.5 / 1e+03 (0)"},
)


@pytest.mark.parametrize(
    ("shown", "where", "after"),
    [
        (".99", "way=turns, C = 1; error", ".12"),
        ("0.9", "n=1; error", "0.1"),
        ("1,000", "way=stream; error", "12,346"),
        ("7.0e8", "way=stream; error", "1.2e4"),
        ("7", "max ε = 1[2]", "1000"),
        ("7", "n=1; max ε = *[2]", "20"),
        ("7", "error>1; error<=12345.6; count", "1"),
        ("7.77", "ε = 1[3]>2; min ε = 1", "1.50"),
    ],
)
def test_a_figure_is_written_as_it_was_shown(monkeypatch, shown, where, after):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    page = 'It is [{}][s-1] %.\n\n[s-1]: results/s.csv "' + where + '"\n'
    assert figures.refreshed(page.format(shown)) == (page.format(after), {"s-1"})


def test_a_table_is_refreshed_row_by_row(monkeypatch):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    table = (
        "[Figures][s-1] of the study:\n\n| n | error | ε = 1 |\n|---|---|---|\n| 2 | 1.00 | gone |\n"
        '\n[s-1]: results/s.csv "table: error>1; n"\n'
    )
    refreshed, used = figures.refreshed(table)
    assert (refreshed.splitlines()[4], used) == ("| 2 | 12345.60 | 2.5 / 1e+03 (0) |", {"s-1"})
    with pytest.raises(LookupError, match="no row for s table: error>1; n"):
        figures.refreshed(table.replace("| 2 |", "| 1 |"))


@pytest.mark.parametrize("where", ["n=77; error", "nothing=1; error", "n=1; nothing", "max nothing"])
def test_a_cell_that_is_not_there_is_refused(monkeypatch, where):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    with pytest.raises((LookupError, ValueError)):
        figures.refreshed(f'[1][s-1]\n\n[s-1]: results/s.csv "{where}"\n')


def test_a_figure_without_a_definition_is_refused():
    with pytest.raises(LookupError, match="coverage-9"):
        figures.refreshed("[.95][coverage-9]")

"""A figure in a guide is the one in docs/results; `scripts/figures.py` says how it is marked, and writes it."""

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
    refreshed, understood = figures.refreshed(text)
    assert refreshed.splitlines() == text.splitlines()
    assert understood == len(figures.MARK.findall(text)), "a mark has no figure, or no table, behind it"
    # A line that begins with a comment ends the paragraph, or the list, before it.
    assert [line for line in text.splitlines() if line.lstrip().startswith("<!-- figure: ")] == []


# What is chosen, not measured, in sections that name a study: parameters, levels, the papers' populations.
CHOSEN = {
    "central.md": "93 2 5 .05 .1 .2 .5 .9",
    "cgm.md": "1 .5 .025 .1",
    "filter.md": "0.4 20 95 97",
    "limits.md": "1.2",
    "statistician.md": "95 1.2 1",
    "tables.md": "1.25",
    "threshold.md": "70 99 99.5 1.7 1 90",
}
_STUDY = re.compile(r"undertone experiment (?!all|NAME)[a-z]|results/[a-z0-9-]+\.(?:csv|json|png)")
# A decimal, or a number of per cent, that follows no "=", "ε" or "at", which give a parameter.
_DECIMAL = re.compile(r"(?<![\w.,/^-])(?<!= )(?<!ε )(?<!=)(?<!at )(\d+\.\d+|\.\d+|\d+(?= %))(?![\w.]|/\d)")


def unmarked(text):
    """The numbers of a page's sections that name a study, less the marked ones and code."""
    numbers = []
    for section in re.split(r"\n(?=## )", text):
        if _STUDY.search(section):
            prose = figures.FIGURE.sub("", figures.TABLE.sub("", re.sub(r"```.*?```", "", section, flags=re.DOTALL)))
            numbers += _DECIMAL.findall(re.sub(r"`[^`]*`", "", prose))
    return numbers


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_what_was_measured_is_marked(page):
    chosen = CHOSEN.get(page.name, "").split()
    assert sorted(set(unmarked(page.read_text("utf-8"))) - set(chosen)) == []


def test_a_figure_without_a_mark_is_seen():
    text = "## A\n`undertone experiment day`: .93 at .5, 12 % for ε = 1.5\n## B\n.7\n"
    assert unmarked(text) == [".93", "12"]
    assert unmarked(text.replace(".93", "<!-- figure: day ε=1; error -->.93")) == ["12"]


def test_figures_are_there():
    assert sum(len(figures.MARK.findall(page.read_text("utf-8"))) for page in figures.PAGES) >= 100


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
    ("text", "after"),
    [
        ("<!-- figure: s way=turns, C = 1; error -->.99 of", ".12 of"),
        ("<!-- figure: s n=1; error -->0.9", "0.1"),
        ("<!-- figure: s way=stream; error -->1,000, or", "12,346, or"),
        ("<!-- figure: s way=stream; error -->7.0e8.", "1.2e4."),
        ("<!-- figure: s max ε = 1[2] -->7", "1000"),
        ("<!-- figure: s n=1; max ε = *[2] -->7", "20"),
        ("<!-- figure: s error>1; error<=12345.6; count -->7", "1"),
        ("<!-- figure: s ε = 1[3]>2; min ε = 1 -->7.77", "1.50"),
    ],
)
def test_a_figure_is_written_as_it_was_shown(monkeypatch, text, after):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    refreshed, understood = figures.refreshed(text)
    assert (refreshed.partition("-->")[2], understood) == (after, 1)


def test_a_table_is_refreshed_row_by_row(monkeypatch):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    table = "<!-- table: s error>1; n -->\n| n | error | ε = 1 |\n|---|---|---|\n| 2 | 1.00 | gone |\n"
    refreshed, understood = figures.refreshed(table)
    assert (refreshed.splitlines()[-1], understood) == ("| 2 | 12345.60 | 2.5 / 1e+03 (0) |", 1)
    with pytest.raises(LookupError, match="no row for s error>1; n"):
        figures.refreshed(table.replace("| 2 |", "| 1 |"))


@pytest.mark.parametrize("where", ["n=77; error", "nothing=1; error", "n=1; nothing", "max nothing"])
def test_a_mark_that_means_nothing_is_told(monkeypatch, where):
    monkeypatch.setattr(figures, "rows_of", lambda study: ROWS)
    with pytest.raises((LookupError, ValueError)):
        figures.refreshed(f"<!-- figure: s {where} -->1")


def test_a_mark_without_a_figure_is_not_understood():
    assert figures.refreshed("<!-- figure: coverage epsilon=1; held --> .95")[1] == 0

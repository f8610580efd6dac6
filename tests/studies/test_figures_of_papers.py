"""The stored results have each figure and table of the papers, panel by panel, with the lines of the paper's panel."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_studies import cgm_figures
from undertone_studies.commands.reproduce import PAPERS, experiments_of
from undertone_studies.experiments import cgm_fig2, cgm_fig4
from undertone_studies.outcome import Outcome
from undertone_studies.registry import EXPERIMENTS, StudyOptions

RESULTS = Path(__file__).parents[2] / "docs/results"
# The data sets of the ToPS paper. Two of them are not available here, so stand-ins are used.
DATA = ("POS", "DNS", "Fare (stand-in)", "Kosarak (stand-in)")
METRICS = ("MAE", "MMAE", "MMSE")
EPSILONS = ("ε = 0.25", "ε = 0.5", "ε = 1", "ε = 2")
# Lines of the papers' panels: smoothers, methods, quantiles, and sizes of blocks.
SMOOTHERS = ("recent", "mean", "median", "moving-average", "exponential")
END_TO_END = ("ToPS, paper's c = 60", "NM-E + H2", "S-PAK + H16 consistent, smoothed", "PAK", "Base")
QUANTILES = ("p85", "p90", "p95", "p99.5", "NM-E", "Base")
BLOCKS = tuple(f"two-level, B = {size}" for size in (10, 25, 50, 100))


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: the study that makes it, how each panel's title begins, and the lines of each panel."""

    paper: str
    study: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]


CGM_LINES = ("Algorithm 1", "Algorithm 3", "ships")
FIGURES = {
    "ToPS, Figure 1": Figure(
        "tops", "tops-fig1", ("DNS",), ("Eq. 4", "Eq. 6, c = 60", "noise of Eq. 6", "bias of Eq. 6", "measured")
    ),
    "ToPS, Figure 2, top row": Figure("tops", "tops-fig2", ("DNS",), ("truth", "ToPS, ε = 0.05")),
    "ToPS, Figure 2, bottom row": Figure("tops", "tops-fig2", ("off by",), ("PAK, ε = 0.1 (θ = 2000)", "Base")),
    "ToPS, Figure 3": Figure("tops", "tops-fig3", DATA, END_TO_END),
    "ToPS, Figure 4": Figure("tops", "tops-fig4", DATA, SMOOTHERS),
    "ToPS, Figure 5": Figure("tops", "tops-fig5", DATA, ("H2", "H16", "H16 consistent", "H16 consistent, smoothed")),
    "ToPS, Figure 6": Figure("tops", "tops-fig6", DATA, QUANTILES),
    "ToPS, Figure 7": Figure("tops", "tops-fig7", DATA, ("NM-E, paper's c = 60", "S-PAK", "S-P", "Base")),
    "ToPL, Figure 8": Figure("tops", "tops-fig8", DATA, ("SW", "SW-W", "Base")),
    "ToPL, Figure 9": Figure("tops", "tops-fig9", ("DNS",), ("truth",)),
    "ToPS, Figure 10": Figure(
        "tops", "tops-fig10", tuple(f"{data}, {metric}" for metric in METRICS for data in DATA), END_TO_END
    ),
    "CGM, Figure 1": Figure("cgm", "cgm-fig1", EPSILONS, CGM_LINES),
    "CGM, Figure 2": Figure("cgm", "cgm-fig2", EPSILONS, CGM_LINES),
    "CGM, Figure 3": Figure(
        "cgm",
        "cgm-fig3",
        EPSILONS,
        tuple(f"{name}, C = {slew}" for slew in ("0.01", "0.025", "0.05") for name in ("Algorithm 3", "ships")),
    ),
    "CGM, Figure 4": Figure(
        "cgm",
        "cgm-fig4",
        EPSILONS,
        tuple(f"{name}, C = {slew}" for slew in ("0.01", "0.05", "0.1") for name in ("Algorithm 3", "ships")),
    ),
    "Blog, T = 1000": Figure("chan", "counting-blog", ("T = 1,000",), ("simple 1", "simple 2", "two-level", "binary")),
    "Blog, T = 10,000": Figure("chan", "counting-blog", ("T = 10,000",), ("simple 2", "two-level", "binary")),
    "Blog, sizes of blocks": Figure("chan", "counting-blog", ("two-level, T = 10,000",), BLOCKS),
}
# Tables of numbers, and results of the note on sanitizers, which are rows of studies: study -> least number of rows.
TABLES = {"tops-table1": len(DATA), "counting-sanitizer": 1, "counting-space": 2, "counting-error": 8}


def stored(study: str) -> Outcome:
    return Outcome.of(json.loads((RESULTS / f"{study}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", FIGURES)
def test_every_panel_of_every_figure_is_there_with_the_papers_lines(name: str) -> None:
    figure = FIGURES[name]
    assert figure.study in experiments_of(figure.paper)
    panels = stored(figure.study).panels
    for title in figure.panels:
        (panel,) = [panel for panel in panels if panel.title == title or panel.title.startswith(f"{title}, ")]
        assert set(figure.lines) <= set(panel.curves), title
        for line in figure.lines:
            x, y = panel.curves[line]
            assert len(x) == len(y) > 1


@pytest.mark.parametrize("study", TABLES)
def test_every_table_is_there(study: str) -> None:
    assert any(study in experiments_of(paper) for paper in PAPERS)
    assert len(stored(study).rows) >= TABLES[study]


def test_every_figure_from_1_on_is_in_the_table_above() -> None:
    for paper, names, last in (("tops", "tops-fig", 10), ("cgm", "cgm-fig", 4)):
        numbered = [f"{names}{number}" for number in range(1, last + 1)]
        assert numbered == [name for name in experiments_of(paper) if name.startswith(names)]
        assert set(numbered) <= {figure.study for figure in FIGURES.values()}


@pytest.mark.parametrize("module", [cgm_fig2, cgm_fig4])
def test_the_figures_of_cgm_are_computed_as_they_are_stored(module: object) -> None:
    name = module.__name__.rpartition(".")[2].replace("_", "-")  # type: ignore[attr-defined]
    made, kept = EXPERIMENTS.run(name, StudyOptions()), stored(name)
    assert made.notes == list(kept.notes)
    for row, old in zip(made.rows, kept.rows, strict=True):
        assert row[2] == old[2]
        assert [*row[:2], *row[3:]] == pytest.approx([*old[:2], *old[3:]], rel=1e-6)


@pytest.mark.parametrize("name", ["cgm-fig1", "cgm-fig2", "cgm-time-edrp"])
def test_what_is_said_of_the_error_by_report_follows_from_the_rows(name: str) -> None:
    kept = stored(name)
    assert list(kept.notes)[-2:] == cgm_figures.time_notes(kept.rows)


@pytest.mark.parametrize("name", ["cgm-fig3", "cgm-fig4", "cgm-slew-edrp"])
def test_what_is_said_of_the_effect_of_c_follows_from_the_rows(name: str) -> None:
    kept = stored(name)
    assert list(kept.notes)[-1:] == cgm_figures.slew_notes(kept.rows)


@pytest.mark.parametrize("name", ["cgm-fig1", "cgm-fig2", "cgm-time-edrp"])
def test_the_curves_are_the_rows(name: str) -> None:
    """The curve's first point is the error of the first report. No point is above the error of the worst report."""
    kept = stored(name)
    cells = {(f"ε = {row[0]:g}, C = {row[1]:g}", row[2]): row for row in kept.rows}
    for panel in kept.panels:
        for line, (_, y) in panel.curves.items():
            row = cells[panel.title, line]
            assert y[0] == pytest.approx(row[3])
            assert max(y) <= float(row[5]) * (1 + 1e-12)


def files(folder: Path, paper: str) -> set[str]:
    """The files of a paper's experiments: the tables, and the pictures that exist."""
    return {f"{name}{end}" for name in experiments_of(paper) for end in (".csv", ".json", ".png")
            if (folder / f"{name}{end}").exists()}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_reproduce_makes_every_table_and_figure_of_the_paper(paper: str, undertone_data: Path, tmp_path: Path) -> None:
    output = tmp_path / "results"
    done = CliRunner().invoke(
        app, ["reproduce", paper, "--quick", "--output", str(output), "--data", str(undertone_data)]
    )
    assert done.exit_code == 0, done.output
    number = len(experiments_of(paper))
    assert f"{number} experiments; 0 more could not run" in done.output
    assert files(output, paper) == files(RESULTS, paper)
    # A quick run has fewer repeats and points, but all of the papers' figures and tables.
    made = {
        name: Outcome.of(json.loads((output / f"{name}.json").read_text(encoding="utf-8")))
        for name in experiments_of(paper)
    }
    for figure in FIGURES.values():
        if figure.paper == paper:
            for title in figure.panels:
                assert [panel for panel in made[figure.study].panels if panel.title.startswith(title)], title
    for study in TABLES:
        if study in made:
            assert made[study].rows

"""The page of equations, algorithms, theorems, figures and tables. Each place, test and study exists; commands run."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.micropython import REPO
from undertone.app import app
from undertone_studies.commands.reproduce import PAPERS, experiments_of
from undertone_studies.registry import EXPERIMENTS

PAGE = REPO / "docs" / "equations.md"
FOLDERS = ("shared", "device", "aggregator", "simulator", "cli")
COLUMNS = 6


def rows() -> list[list[str]]:
    """The cells of all rows of the tables, without the headings."""
    lines = [line.strip().strip("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "item"]


ROWS = rows()
PLACES = sorted({code for row in ROWS for code in re.findall(r"`([^`]+)`", row[2])})
TESTS = sorted({code for row in ROWS for code in re.findall(r"`([^`]+)`", row[5])})
COMMANDS = sorted({code for row in ROWS for code in re.findall(r"`([^`]+)`", row[4])})
STUDIES = [command for command in COMMANDS if command.startswith("undertone experiment ")]


def names(path: Path) -> set[str]:
    """The names in a module: functions, classes, assigned names, and the methods of classes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def test_every_row_says_where_how_by_which_command_and_test() -> None:
    for row in ROWS:
        assert len(row) == COLUMNS, row[0]
        assert all(row), row[0]
        assert re.findall(r"`[^`]+`", row[2] + row[4] + row[5]), row[0]
        assert row[5].startswith("`tests/"), row[0]


@pytest.mark.parametrize("place", PLACES)
def test_each_place_exists(place: str) -> None:
    path, _, name = place.partition(":")
    (file,) = [REPO / folder / path for folder in FOLDERS if (REPO / folder / path).exists()]
    assert name in names(file)


@pytest.mark.parametrize("test", TESTS)
def test_each_test_exists(test: str) -> None:
    path, _, name = test.partition(":")
    assert (REPO / path).exists()
    assert not name or name in names(REPO / path)


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in STUDIES])
def test_each_command_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.csv").write_text("".join(f"{i % 7}\n" for i in range(60)), encoding="utf-8")
    program, *words = shlex.split(command)
    assert program == "undertone"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception}"


@pytest.mark.parametrize("command", STUDIES)
def test_each_study_exists_and_is_one_of_its_papers(command: str) -> None:
    name = command.rpartition(" ")[2]
    assert name in EXPERIMENTS.names()
    assert any(name in experiments_of(paper) for paper in PAPERS)


# Heading of a document's table -> what the document numbers or names, except numbered equations and numbered figures.
ITEMS = {
    "## ToPS and ToPL": (
        *("Definition 2.1", "Definition 2.2", "Laplace mechanism", "Global sensitivity", "Monotone condition"),
        *("Composition", "Hierarchy", "PAK", "Percentile p = 99.5", "Candidates 1..B", "c = 60", "m = 65,536"),
        *("r = 2^20", "Better fan-out", "Infinite streams", "Online consistency", "Theorem 3.1", "Theorem C.1"),
        *("Recent smoother", "Algorithm 1", "ToPS is ε-DP", "Updates of θ", "White box", "Candidates of ToPL"),
        *("Perturber of ToPL", "Protocol (§5.1)", "Base", "NM-E", "SW-W", "Table 1", "Shorten the holdout"),
        *("Patterns of the data", "Smooth sensitivity", "Local sensitivity", "Cauchy", "PAK's shift", "Smoothers (1)"),
        *("Square Wave", "EM and EMS", "Stochastic rounding", "Piecewise", "Hybrid", "Metrics of Appendix F"),
    ),
    "## CGM": (
        *("Definition 2.1", "Lemma 2.2", "Definition 2.3", "Lemma 2.4", "Table 1", "Composition", "Algorithm 1"),
        *("Lemma 3.1", "Algorithm 2", "Unequal noise", "Example of two values", "Lemma 4.1", "Algorithm 3", "O(1)"),
        *("unknown length", "Differential bound C", "Lags", "Multiplicative bound", "Vectors", "A budget for each"),
        *("Theorem 5.1", "Corollary 5.2", "Lemma 5.3", "Remark on RDP", "Kaggle data", "Beijing taxis", "δ = 1e-5"),
        *("Appendix A.1", "Appendix A.2", "Appendix A.3"),
    ),
    "## Time-bounded": (
        *("Continual counting query", "Event-level DP", "Simple Mechanism 1", "Simple Mechanism 2", "Two-Level"),
        *("Binary Mechanism", "tree at time 3", "error(M)", "Orders of the errors", "Figure: T = 1000,"),
        *("Figure: T = 10000", "Crossing near t = 4000", "sizes of blocks", "without an end"),
    ),
    "## A note on sanitizing": (
        *("Definition 1.1", "Remark 1.2", "Definition 1.3", "Remark 1.4", "Theorem 2.1", "Remark 2.2"),
        *("Remark 2.3, confidence", "Remark 2.3, sampling", "THRESH", "[KLM+20]", "[ABC21]", "KLL", "Questions 3.1"),
        *("Remark 3.3", "Remark 3.4", "Continual monitoring"),
    ),
}


def items_of(heading: str) -> list[str]:
    """The first cells of a document's table."""
    table = PAGE.read_text("utf-8").partition(f"\n{heading}")[2].partition("\n## ")[0]
    return [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("heading", ITEMS)
def test_what_a_document_names_is_in_its_table(heading: str) -> None:
    items = items_of(heading)
    assert [wanted for wanted in ITEMS[heading] if not any(wanted in item for item in items)] == []
    assert len(items) == len(set(items))


def test_the_numbered_items_of_each_document_are_all_there() -> None:
    """The page names the equations of both papers with these numbers, and each figure."""
    tops, cgm = (PAGE.read_text("utf-8").partition("## CGM")[i] for i in (0, 2))
    for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 22):
        assert re.search(rf"Eq\. {number}\b", tops), number
    for number in range(1, 11):
        assert re.search(rf"\| Figure {number} \|", tops), number
    cgm = cgm.partition("\n## ")[0]
    numbers = {int(each) for row in re.findall(r"^\| ([^|]+) \|", cgm, re.MULTILINE) if "Eq" in row
               for each in re.findall(r"\b(\d+)[ab]?\b", row.partition("Eq")[2])}  # fmt: skip
    assert set(range(1, 25)) <= numbers
    for number in range(1, 5):
        assert re.search(rf"\| Figure {number} \|", cgm), number

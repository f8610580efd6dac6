"""docs/architecture.md names files, classes and functions: each of them must exist where the page says."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
TEXT = (REPO / "docs/architecture.md").read_text(encoding="utf-8")
# The rows of "Where to look", whose first column is a question.
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| [^|]*\? \|", line)]
SUFFIXES = (".py", ".js", ".json", ".yml")
FOLDERS = ("shared", "device", "aggregator", "simulator", "cli", "scripts", "tests")
FILES = [path for folder in FOLDERS for path in (REPO / folder).rglob("*") if path.suffix in SUFFIXES]
# The owner of a board writes this file.
NOT_HERE = ("sensor.py",)


def named_files(row: str) -> list[Path]:
    """Return the files that a row names; a name without its folder may be any file whose path ends with it."""
    found = []
    for name in re.findall(r"`([\w./-]+\.(?:py|js|json|yml))`", row):
        ends = [path for path in FILES if path.as_posix().endswith(f"/{name}")]
        assert ends or name in NOT_HERE, f"{name} does not exist: {row[:80]}"
        found += ends
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_each_name_in_a_row_is_in_a_file_that_the_row_names(row):
    text = "\n".join(path.read_text(encoding="utf-8") for path in named_files(row))
    for name in re.findall(r"`([A-Za-z_][\w.]*)`", row):
        if name.endswith(SUFFIXES) or name.startswith("undertone_") or name == "undertone":
            continue
        for part in name.split("."):
            assert re.search(rf"\b{re.escape(part)}\b", text), f"{name} is not in the files of: {row[:80]}"

"""docs/architecture.md names files, classes and functions: each of them must exist where the page says."""

import ast
import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
TEXT = (REPO / "docs/architecture.md").read_text(encoding="utf-8")
# The rows of "Where to look", whose first column is a question, and those of the index.
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| [^|]*\? \|", line)]
INDEX = TEXT.split("\n### Index\n")[1].split("\n#")[0]
ROWS += [line for line in INDEX.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
# An item of a list of folders: the folder, and what the item says about its files.
ITEMS = re.findall(r"^- `([\w./]+)`(.*(?:\n  .*)*)", TEXT, re.MULTILINE)
SUFFIXES = (".py", ".js", ".json", ".yml", ".toml")
FOLDERS = ("shared", "device", "aggregator", "simulator", "cli", "scripts", "tests")
FILES = [path for folder in FOLDERS for path in (REPO / folder).rglob("*") if path.suffix in SUFFIXES]
FILES += [path for path in REPO.iterdir() if path.suffix in SUFFIXES]
# The owner of a board writes this file, so it is not in the repository.
NOT_HERE = ("sensor.py",)


def named_files(row: str) -> list[Path]:
    """Return the files that a row names; a name without its folder may be any file whose path ends with it."""
    found = []
    for name in re.findall(r"`([\w./-]+\.(?:py|js|json|yml|toml))`", row):
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


def members(path: Path) -> set[str]:
    """Return Class.member of each method and field of the classes in a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            found |= {f"{node.name}.{field.id}" for field in fields if isinstance(field, ast.Name)}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_each_member_in_a_row_is_one_of_its_class(row):
    names = set(re.findall(r"`([A-Z]\w*[a-z]\w*\.\w+)`", row))
    known = set().union(*(members(path) for path in named_files(row) if path.suffix == ".py")) if names else set()
    assert names <= known


def folder(name: str) -> Path:
    """Return the folder that an item names. The name may leave out the top folder (`aggregator`, `device`, …)."""
    found = [REPO / parent / name for parent in ("", *FOLDERS) if (REPO / parent / name).is_dir()]
    assert found, f"{name} is no folder"
    return found[0]


@pytest.mark.parametrize(("name", "text"), ITEMS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(ITEMS)])
def test_each_file_of_an_item_is_in_its_folder(name, text):
    files = re.findall(r"`([\w.-]+\.(?:py|js|css|html|sh|json))`", text)
    # The folder `examples` belongs to the device's own item.
    missing = [file for file in files if not any((folder(name) / part / file).is_file() for part in ("", "examples"))]
    assert missing == []


def test_each_package_has_an_item():
    named = {folder(name) for name, _ in ITEMS}
    packages = {path.parent for path in FILES if path.name == "__init__.py" and path.parts[len(REPO.parts)] != "tests"}
    # These packages need no item: a row of a table names the files of `words`, and the other two have only rooms, which
    # have items of their own.
    inner = {path for path in packages if path.name in ("words", "undertone_aggregator", "undertone_operate")}
    assert sorted(path.relative_to(REPO).as_posix() for path in packages - inner - named) == []

"""The stored notes of studies are the notes that the studies' code writes, so pages and code agree."""

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import undertone_studies
from undertone_studies.registry import EXPERIMENTS

SOURCES = Path(undertone_studies.__file__).parent
RESULTS = Path(__file__).parents[2] / "docs/results"
STORED = [name for name in EXPERIMENTS.names() if (RESULTS / f"{name}.json").exists()]
# The beginning of a note that has no source: somebody made a part of the rows again and wrote the note by hand.
BY_HAND = "The rows with ε below .1 are of"
# A text with figures is recognised by its fixed parts if they have at least this many characters together.
FIXED = 30


@pytest.mark.parametrize("name", STORED)
def test_stored_notes_are_the_notes_of_the_source(name):
    patterns = [pattern for path in modules(SOURCES / f"experiments/{name.replace('-', '_')}.py")
                for pattern in patterns_of(path)]  # fmt: skip
    for note in json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["notes"]:
        known = note.startswith(BY_HAND) or any(re.fullmatch(pattern, note, re.DOTALL) for pattern in patterns)
        assert known, f"docs/results/{name}.json has a note that its source does not have: {note}"


def modules(path: Path) -> set[Path]:
    """Return the module of a study and all modules of studies that it imports, directly or indirectly."""
    found, waiting = set(), [path]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        waiting += [file for module in imported(path) if (file := file_of(module)).exists()]
    return found


# Many studies import the same modules, so each module is read once.
@functools.cache
def parsed(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    return tuple(node.module for node in parsed(path) if isinstance(node, ast.ImportFrom) and node.module)


def file_of(module: str) -> Path:
    return SOURCES.parent / f"{module.replace('.', '/')}.py"


@functools.cache
def patterns_of(path: Path) -> tuple[str, ...]:
    """Return a regular expression for each text in a module. It allows anything in place of a figure."""
    return tuple(_patterns(path))


def _patterns(path: Path) -> Iterator[str]:
    for node in parsed(path):
        if isinstance(node, ast.expr):
            parts = parts_of(node)
            if None not in parts or sum(map(len, filter(None, parts))) >= FIXED:
                yield "".join(".+" if part is None else re.escape(part) for part in parts)


def parts_of(node: ast.expr) -> list[str | None]:
    """Return the fixed parts of a text, with None in place of each figure."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [part for value in node.values for part in parts_of(value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return parts_of(node.left) + parts_of(node.right)
    return [None]

"""Every command that a printed text names exists, and has the options that the text gives with it.

The texts are all strings of the packages except docstrings, and those of the web pages. Placeholders for values are not
parsed.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from support.micropython import REPO
from undertone.app import app
from undertone_device.__main__ import _parser

# Package -> at least how many of its files name a command, so that the test fails if it finds no texts.
PACKAGES = {"shared": 0, "device": 3, "aggregator": 30, "simulator": 6, "cli": 15}
# These strings begin with the program's name but are no commands. They are hashed, or seed random numbers.
LABELS = tuple(
    f"undertone {label}"
    for label in (
        "agreement ",
        "behaviour ",
        "campaign 2",
        "chaos ",
        "demo cohort ",
        "hand-over ",
        "join device secret",
    )
)
_CALL = re.compile(r"(?<![\w/])undertone(?P<device>-device| device)?(?=(?P<words> [a-z-][^\n`]*))")
# A word followed by one of these signs is the last word of a command.
_END = re.compile(r"[,;:.)!?'\"]+$")


def texts_of(path: Path) -> Iterator[str]:
    """Yield the string literals of a file; in an f-string, X stands for each expression in braces."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from re.findall(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`', source) if path.suffix != ".html" else [source]
        return
    tree = ast.parse(source)
    owned = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body and isinstance(body[0], ast.Expr):
            owned.add(id(body[0].value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in owned:
            yield node.value


def calls_of(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Yield each command in a text: whether it is a device's command, and its words up to the end of the clause."""
    for call in _CALL.finditer(text):
        if f"{call[0]}{call['words']}".startswith(LABELS):
            continue
        words = []
        for word in call["words"].split():
            words.append(_END.sub("", word))
            if _END.search(word) and not word.endswith("..."):
                break
        yield call["device"] is not None, words


def fault(device: bool, words: list[str]) -> str:
    """Return what is wrong with a command, or "" if it is right."""
    if device:
        (commands,) = [
            each for each in _parser("undertone device")._actions if isinstance(each, argparse._SubParsersAction)
        ]
        if not words or words[0] not in commands.choices:
            return f"undertone device has no command {' '.join(words[:1])!r}"
        known = set(commands.choices[words[0]]._option_string_actions)
        path, words = words[:1], words[1:]
    else:
        command, path = get_command(app), []
        while hasattr(command, "list_commands") and words and not words[0].startswith("-"):
            child = command.get_command(None, words[0])
            if child is None:
                return f"there is no undertone {' '.join([*path, words[0]])}"
            path, words, command = [*path, words[0]], words[1:], child
        known = {"--help", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"undertone {' '.join(path)} has no {', '.join(unknown)}" if unknown else ""


def calls_by_file(package: str) -> dict[Path, list[tuple[str, bool, list[str]]]]:
    """Return for each file that names commands the list of (text, whether it is a device's command, its words)."""
    files = (path for kind in ("py", "js", "html", "json") for path in sorted((REPO / package).rglob(f"*.{kind}")))
    calls = {
        path: [(text, *call) for text in texts_of(path) for call in calls_of(text)]
        for path in files
        if "node_modules" not in path.parts
    }
    return {path: found for path, found in calls.items() if found}


@pytest.mark.parametrize(("package", "least"), PACKAGES.items(), ids=list(PACKAGES))
def test_each_command_that_a_text_names_exists(package: str, least: int) -> None:
    calls = calls_by_file(package)
    assert len(calls) >= least
    faults = {
        (str(path.relative_to(REPO)), text): why
        for path, found in calls.items()
        for text, device, words in found
        if (why := fault(device, words))
    }
    assert faults == {}


def test_a_command_that_does_not_exist_is_found() -> None:
    said = "say undertone qury, undertone query FILE --newst 4; or undertone device flsh X: `undertone devices add 5`"
    assert [bool(fault(*call)) for call in calls_of(said)] == [True, True, True, False]

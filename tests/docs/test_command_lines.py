"""The command lines of pages are accepted by their commands: the options exist, and have values of their types.

Lines with `…`, `...` or `|` are left out. `test_commands.py` runs whole blocks of some pages.
"""

import re
import shlex

import pytest
import typer
from typer.main import get_command

from support.micropython import REPO
from undertone.app import _Usage, app
from undertone_device.__main__ import _parser as device_parser
from undertone_shared.errors import Invalid

PAGES = [
    path
    for folder in ("", "docs", "device", "aggregator", "simulator")
    for path in sorted((REPO / folder).glob("*.md"))
    if path.name != "CHANGELOG.md"
]
# Words that stand for a number that the reader chooses.
PLACEHOLDERS = {"N": "5", "E": "1"}
# These labels are hashed. They are no commands.
LABELS = ("undertone agreement 1", "undertone join device secret")
_BLOCK = re.compile(r"```(?:sh|console)?\n(.*?)```", re.DOTALL)
_CALLS = ("undertone ", "undertone-device ")
_INLINE = re.compile(r"`(undertone(?:-device)? [^`]+)`")
_INDENTED = re.compile(r"^ {4,}(undertone(?:-device)? .*)$", re.MULTILINE)
# On these pages the reader has installed undertone-device, which has no command ``undertone``.
OF_DEVICES = ("docs/boards.md", "docs/esp32-p1.md", "docs/firmware.md", "docs/pi-sml.md", "docs/sensors.md")


def lines_of(text: str) -> list[str]:
    """The lines of a page that call ``undertone`` or ``undertone-device``, with continued lines joined."""
    found = []
    for block in _BLOCK.findall(text):
        whole = block.replace("\\\n", " ")
        found += [line.strip() for line in whole.splitlines() if line.strip().startswith(_CALLS)]
    found += [" ".join(line.split()) for line in _INLINE.findall(text)]
    return found + _INDENTED.findall(text)


def fault(line: str) -> str:
    """What is wrong with a command line, or "" if it is right.

    Without an option in the line, only the command is checked, and not its arguments.
    """
    line = re.split(r"\s+[|>&]|\s+#|;", line)[0]
    if line.removeprefix("undertone ").split()[0] == "COMMAND" or line in LABELS:
        return ""
    program, *words = shlex.split(line)
    if program == "undertone-device":
        return fault_of_device(words)
    words = [PLACEHOLDERS.get(word, word) for word in words]
    command, path = get_command(app), []
    while words and hasattr(command, "list_commands"):
        child = command.get_command(None, words[0])
        if child is None:
            return f"there is no {' '.join([*path, words[0]])}"
        path.append(words.pop(0))
        command = child
    if path[:1] == ["device"]:
        return fault_of_device(words)
    if not any(word.startswith("-") for word in words):
        return ""
    try:
        command.make_context(" ".join(path), list(words))
    except _Usage as error:
        # A page may name an option without its value, or without other options that the command needs.
        alone = ("Missing", f"Option '{words[-1]}' requires an argument")
        return "" if error.format_message().startswith(alone) else error.format_message()
    except typer.Exit:
        pass
    return ""


def fault_of_device(words: list[str]) -> str:
    """What is wrong with the words after ``undertone-device``, or "" if they are right."""
    try:
        device_parser("undertone-device").parse_args(words)
    except Invalid as error:
        named = len(words) < 2 or not any(word.startswith("-") for word in words)
        return "" if "required" in str(error) or (named and "invalid choice" not in str(error)) else str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPO)))
def test_each_command_line_of_a_page_is_correct(page) -> None:
    lines = lines_of(page.read_text(encoding="utf-8"))
    faults = {line: fault(line) for line in lines if "…" not in line and "..." not in line and "|" not in line}
    assert {line: why for line, why in faults.items() if why} == {}


@pytest.mark.parametrize("page", OF_DEVICES)
def test_a_page_for_who_has_the_device_alone_calls_its_own_command(page: str) -> None:
    lines = lines_of((REPO / page).read_text(encoding="utf-8"))
    assert [line for line in lines if re.match(r"undertone device \S", line)] == []


def test_a_wrong_line_is_found() -> None:
    assert fault("undertone-device flsh FOLDER")
    assert fault("undertone-device flash FOLDER --prt /dev/ttyACM0 --port /dev/ttyACM0")
    assert fault("undertone device flash FOLDER --prt /dev/ttyACM0 --port /dev/ttyACM0")
    assert fault("undertone-device flash FOLDER --port /dev/ttyACM0 --sensor sensor.py") == ""
    assert fault("undertone-device flash --meters") == ""
    assert fault("undertone query a.sqlite --newst 4")
    assert fault("undertone qury a.sqlite")
    assert fault("undertone plan --devices many")
    assert fault("undertone query a.sqlite --newest 4   # four") == ""
    assert lines_of("```sh\nundertone plan \\\n  --devices 5\n```\n `undertone\nquery`") == [
        "undertone plan    --devices 5"
    ]

"""The structure of the code: modules do not import each other in circles, and each kind of thing has one table."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.micropython import REPO

FOLDERS = ("shared", "device", "aggregator", "simulator", "cli")
MODULES = sorted(
    path for folder in FOLDERS for path in (REPO / folder).rglob("*.py") if "node_modules" not in path.parts
)


def name_of(path: Path) -> str:
    """The module's dotted name, as it is imported."""
    parts = path.relative_to(REPO).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


BY_NAME = {name_of(path): path for path in MODULES}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """Our modules that a module imports anywhere: when it is loaded, in a function, or for type checkers alone."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in BY_NAME)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in BY_NAME else node.module for name in whole if node.module in BY_NAME)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The sets of two or more modules that import each other, directly or indirectly (Tarjan 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    closed = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in arrows[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            together = stack[at:]
            del stack[at:]
            if len(together) > 1:
                closed.append(sorted(together))

    for name in arrows:
        if name not in index:
            visit(name)
    return closed


def rooms_of(package: str) -> dict[str, set[str]]:
    """Which subpackages of a package import which of its other subpackages."""
    depth = package.count(".") + 1
    rooms: dict[str, set[str]] = {}
    for name, path in BY_NAME.items():
        room = name.split(".")[depth : depth + 1]
        if not name.startswith(package + ".") or (f"{package}.{room[0]}" == name and path.name != "__init__.py"):
            continue
        others = {other.split(".")[depth] for other in imported(path) if other.startswith(package + ".")}
        rooms.setdefault(room[0], set()).update(others - {room[0]})
    return {room: {other for other in others if other in rooms} for room, others in rooms.items()}


def test_no_two_modules_import_each_other() -> None:
    arrows = {name: set(imported(path)) - {name} for name, path in BY_NAME.items()}
    assert circles(arrows) == []


PACKAGES = sorted(name for name, path in BY_NAME.items() if path.name == "__init__.py")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_rooms_of_a_package_import_each_other(package: str) -> None:
    assert circles(rooms_of(package)) == []


# The packages that consist of rooms (subpackages). In some of them, a few modules belong to no room.
HOUSES = ("undertone_aggregator", "undertone_device")
IN_PART = ("undertone_operate", "undertone_central")
ROOMS = sorted(name for name in PACKAGES if re.fullmatch(rf"({'|'.join((*HOUSES, *IN_PART))})\.\w+", name))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_docstring_names(room: str) -> None:
    """The line "May import: ..." in a room's docstring names the other rooms of the package that it may import."""
    words = re.search(r"^May import: ([a-z, ]+)\.", BY_NAME[room].read_text(encoding="utf-8"), re.M)
    assert words, "the docstring has no line 'May import: ...'"
    allowed = set() if words[1] == "nothing" else set(words[1].split(", "))
    package, name = room.split(".")
    assert rooms_of(package)[name] == allowed


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_where_to_start_reading(room: str) -> None:
    docstring = ast.get_docstring(parsed(BY_NAME[room])) or ""
    modules = re.findall(r"``([\w/]+\.py)``", docstring.partition("Start reading: ")[2])
    assert modules
    assert [module for module in modules if not (BY_NAME[room].parent / module).is_file()] == []


def test_no_module_is_outside_the_rooms() -> None:
    outside = [name for name in BY_NAME if name.rpartition(".")[0] in HOUSES and name not in ROOMS]
    assert outside == ["undertone_device.__main__"]


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


def test_kinds_are_looked_up_in_tables() -> None:
    """What depends on the kind of a mechanism is in the table of mechanisms, and not in branches by `isinstance`."""
    text = {path: path.read_text(encoding="utf-8") for path in MODULES}
    branches = [path.name for path in MODULES if re.search(r"isinstance\([^)]*(Mechanism|Hybrid)", text[path])]
    # Reports for the threshold use the Square Wave by definition. So scalar.py may ask which mechanism they use: it
    # refuses a campaign with another one.
    assert branches == ["scalar.py"]


READS_OR_WRITES = re.compile(r"\b(read_text|write_text|open|fdopen)\(|\b(text|universal_newlines)\b")


def by_the_locale(module: ast.Module) -> list[int]:
    """Lines that read or write text without stating the encoding, so that the result depends on the locale."""
    return [call.lineno for call in ast.walk(module) if isinstance(call, ast.Call) and _by_the_locale(call)]


def _by_the_locale(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    words = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    if "encoding" in words:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) < (2 if name == "write_text" else 1)
    if name in ("open", "fdopen"):
        # The mode is taken to be the last positional argument. If there are four, the last one is the encoding, and no
        # mode is found.
        values = [*(getattr(each, "value", None) for each in call.args[-1:]), words.get("mode")]
        modes = [each for each in values if isinstance(each, str) and re.fullmatch("[rwax][bt+]*", each)]
        bare = len(call.args) == 1 and "mode" not in words and isinstance(call.func, ast.Name)
        return bare or any("b" not in mode for mode in modes)
    return words.get("text") is True or words.get("universal_newlines") is True


def test_text_has_a_stated_encoding() -> None:
    """Without a stated encoding, Python uses the locale's, and another machine may misread the file or fail."""
    files = [*MODULES, *(path for folder in ("tests", "scripts", "docs") for path in (REPO / folder).rglob("*.py"))]
    # Only these files are parsed: parsing takes most of this test's time.
    files = [path for path in files if READS_OR_WRITES.search(path.read_text(encoding="utf-8"))]
    found = {str(path.relative_to(REPO)): by_the_locale(parsed(path)) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "Path(name).read_text()",
        "path.write_text(text)",
        "open(name)",
        "open(name, 'w')",
        "path.open(mode='a')",
        "os.fdopen(handle, 'w')",
        "subprocess.run(command, text=True)",
    ],
)
def test_text_by_the_locale_is_found(line: str) -> None:
    assert by_the_locale(ast.parse(line)) == [1]
    stated = line.replace("()", "(encoding='utf-8')") if line.endswith("()") else f"{line[:-1]}, encoding='utf-8')"
    assert by_the_locale(ast.parse(stated)) == []


@pytest.mark.parametrize(
    "line", ["open(name, 'rb')", "path.open('wb')", "open(name, 'a', 1, 'ascii')", "run(text='1')"]
)
def test_other_calls_are_not_text_by_the_locale(line: str) -> None:
    assert by_the_locale(ast.parse(line)) == []

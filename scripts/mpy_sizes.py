"""Prints what each module of shared/ and device/ weighs as .mpy, the form that boards load.

usage: .venv/bin/python scripts/mpy_sizes.py
"""

import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "tests"))

from support.micropython import SOURCES, compile_mpy  # noqa: E402

# Line numbers and assertions left out, as a release ships it.
OPTIMISE = 3


def sizes(package: Path) -> dict[str, int]:
    """Bytes of each compiled module of a package, by name."""
    with tempfile.TemporaryDirectory() as out:
        compiled = compile_mpy(package, Path(out), optimise=OPTIMISE)
        return {path.stem: path.stat().st_size for path in compiled}


def main() -> None:
    for source in SOURCES:
        for package in sorted(source.glob("undertone_*")):
            modules = sizes(package)
            for name, size in modules.items():
                print(f"{package.name}.{name:20} {size:6,}")
            print(f"{package.name + ' in all':{len(package.name) + 21}} {sum(modules.values()):6,}\n")


if __name__ == "__main__":
    main()

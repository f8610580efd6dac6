"""Copy the pages' npm packages, in the versions of the lock files, into folders ``vendor``; run no install scripts.

usage: python scripts/vendor.py    (needs npm; the wheel's build runs it, too)
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WEB = ROOT / "aggregator/undertone_aggregator/web"
_PHONE = ROOT / "device/phone"
_MICROPYTHON = "@micropython/micropython-webassembly-pyscript"
# (folder of package.json and its lock, folder of the copies, files)
Page = tuple[Path, Path, tuple[str, ...]]
WEB: Page = (
    _WEB / "npm",
    _WEB / "static/vendor",
    ("uplot/dist/uPlot.iife.min.js", "uplot/dist/uPlot.min.css", "uplot/LICENSE"),
)
PHONE: Page = (
    _PHONE / "npm",
    _PHONE / "vendor",
    tuple(f"{_MICROPYTHON}/{name}" for name in ("micropython.mjs", "micropython.wasm")),
)


def missing(*pages: Page) -> list[Path]:
    """Return the copies that do not exist."""
    copies = [target / Path(name).name for _, target, names in pages for name in names]
    return [path for path in copies if not path.exists()]


def vendor(*pages: Page) -> list[Path]:
    """Write the files anew; return them. Raises RuntimeError if npm is missing or fails."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "npm was not found, so the package lacks the page's chart library and the phone's MicroPython: install npm"
        )
    return [path for source, target, names in pages for path in _fetch(npm, source, target, names)]


def _fetch(npm: str, source: Path, target: Path, names: tuple[str, ...]) -> list[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, scratch)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, encoding="utf-8", timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"npm ci failed: {done.stderr.strip()[-500:]}")
        target.mkdir(exist_ok=True)
        return [Path(shutil.copy(Path(scratch) / "node_modules" / name, target)) for name in names]


if __name__ == "__main__":
    try:
        for path in vendor(WEB, PHONE):
            print(path.relative_to(ROOT))
    except RuntimeError as error:
        sys.exit(str(error))

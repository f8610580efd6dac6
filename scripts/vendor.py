"""Copy the page's packages from npm into web/static/vendor, by the lock file and without running their scripts.

usage: python scripts/vendor.py    (needs npm; the wheel's build runs it, too)
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parents[1] / "aggregator/undertone_aggregator/web"
VENDOR = WEB / "static/vendor"
FILES = ("uplot/dist/uPlot.iife.min.js", "uplot/dist/uPlot.min.css", "uplot/LICENSE")


def vendor() -> list[Path]:
    """Write the files anew. Raises RuntimeError with npm's message."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm was not found: the page's chart library cannot be put into the package")
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(WEB / "npm" / name, scratch)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"npm ci failed: {done.stderr.strip()[-500:]}")
        VENDOR.mkdir(exist_ok=True)
        return [Path(shutil.copy(Path(scratch) / "node_modules" / name, VENDOR)) for name in FILES]


if __name__ == "__main__":
    try:
        for path in vendor():
            print(path.relative_to(WEB))
    except RuntimeError as error:
        sys.exit(str(error))

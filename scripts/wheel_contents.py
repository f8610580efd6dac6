"""Names what a wheel lacks, or holds beyond the source files of our packages; exit code 1 then."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("shared", "device", "aggregator", "simulator", "cli")


def expected() -> set[str]:
    """The committed files of the packages, as the wheel calls them."""
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return {name.partition("/")[2] for name in listed if name.split("/")[1].startswith("undertone")}


def main(wheel: str) -> int:
    """Compare."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    missing, extra = sorted(expected() - held), sorted(held - expected())
    for text, names in (("is missing", missing), ("does not belong there", extra)):
        for name in names:
            print(f"{name} {text}", file=sys.stderr)
    return 1 if missing or extra else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

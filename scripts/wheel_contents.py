"""Print the files that a wheel lacks or has beyond what pyproject.toml says; exit code 1 if there are any."""

import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def committed(folder: str) -> list[str]:
    """Return the repository's files below a folder, or the one file of that name."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def _place(pattern: str, moved: dict[str, str]) -> str:
    """Return the place in the wheel of files that a build fetches."""
    for source, target in moved.items():
        if pattern.startswith(f"{source}/"):
            return target + pattern.removeprefix(source)
    return pattern.partition("/")[2]


def main(wheel: str) -> int:
    """Compare a wheel with the repository."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    inside = build["targets"]["wheel"]
    expected = {name.partition("/")[2] for package in inside["packages"] for name in committed(package)}
    for source, target in inside["force-include"].items():
        expected |= {target + name.removeprefix(source) for name in committed(source)}
    fetched = [_place(pattern, inside["force-include"]) for pattern in build["artifacts"]]
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    extra = {name for name in held - expected if not any(fnmatch(name, pattern) for pattern in fetched)}
    lacking = [pattern for pattern in fetched if not any(fnmatch(name, pattern) for name in held)]
    for text, names in (("is missing", [*sorted(expected - held), *lacking]), ("does not belong there", sorted(extra))):
        for name in names:
            print(f"{name} {text}", file=sys.stderr)
    return 1 if extra or lacking or expected - held else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

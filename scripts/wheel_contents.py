"""Print which files a wheel lacks, and which it should not have, according to its pyproject.toml and hatch_build.py.

The exit code is 1 if there are any.
"""

import runpy
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def committed(path: Path) -> list[str]:
    """Return git's files at or below a path (tracked, or neither tracked nor ignored), relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", str(path)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def expected(project: Path) -> tuple[set[str], list[str]]:
    """Return what pyproject.toml and hatch_build.py put into a wheel: git's files, and patterns of fetched files."""
    build = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    inside = build["targets"]["wheel"]
    moved = {package: package.rpartition("/")[2] for package in inside["packages"]} | inside["force-include"]
    hook = runpy.run_path(str(project / "hatch_build.py"))
    moved |= {outside: in_wheel for outside, _, in_wheel in hook.get("OUTSIDE", ())}
    files = set()
    for source, target in moved.items():
        place = (project / source).resolve().relative_to(ROOT)
        files |= {target + name.removeprefix(str(place)) for name in committed(place)}
    fetched = []
    for pattern in build["artifacts"]:
        for source, target in moved.items():
            if pattern.startswith(f"{source}/"):
                fetched.append(target + pattern.removeprefix(source))
    return files, fetched


def main(wheel: str) -> int:
    """Compare a wheel with the repository."""
    device = Path(wheel).name.startswith("undertone_device-")
    files, fetched = expected(ROOT / "device" if device else ROOT)
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    extra = {name for name in held - files if not any(fnmatch(name, pattern) for pattern in fetched)}
    lacking = [pattern for pattern in fetched if not any(fnmatch(name, pattern) for name in held)]
    for text, names in (("is missing", [*sorted(files - held), *lacking]), ("does not belong there", sorted(extra))):
        for name in names:
            print(f"{name} {text}", file=sys.stderr)
    return 1 if extra or lacking or files - held else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

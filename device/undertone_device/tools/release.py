"""A release for boards: main.py, compiled modules and a package.json with the sha256 of each module, in one zip.

Boards fetch the unpacked modules from any web server with `undertone_device.board.update`, which checks them against
the sha256 of package.json that the owner gives.
"""

import hashlib
import json
import tempfile
import zipfile
from pathlib import Path

from undertone_device.tools.compile import board_files, compile_boards
from undertone_device.tools.shipped import LISTS, shipped

# A fixed date makes the same zip from the same sources.
_DATE = (2000, 1, 1, 0, 0, 0)


def release(out: Path) -> str:
    """Write the zip, its folder named by the version; return the sha256 of package.json. Raises Invalid, OSError."""
    version = json.loads(shipped("package.json").read_text(encoding="utf-8"))["version"]
    with tempfile.TemporaryDirectory() as scratch:
        compiled = compile_boards(Path(scratch), board_files(*LISTS))
        contents = {path.relative_to(scratch).as_posix(): path.read_bytes() for path in compiled}
    contents["main.py"] = shipped("main.py").read_bytes()
    modules = sorted(name for name in contents if name != "main.py")
    package = {
        "version": version,
        "urls": [[name, name] for name in modules],
        "sha256": {name: hashlib.sha256(contents[name]).hexdigest() for name in modules},
    }
    contents["package.json"] = json.dumps(package, indent=1).encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sorted(contents):
            file.writestr(zipfile.ZipInfo(f"undertone-{version}/{name}", _DATE), contents[name], zipfile.ZIP_DEFLATED)
    return hashlib.sha256(contents["package.json"]).hexdigest()

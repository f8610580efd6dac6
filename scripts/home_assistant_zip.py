"""Write the integration for Home Assistant and the device's packages to one zip: home_assistant_zip.py ZIP.

Unpack it as custom_components/undertone, or let HACS do so.
"""

import sys
import zipfile
from pathlib import Path

REPO = Path(__file__).parents[1]
INTEGRATION = REPO / "device/homeassistant/custom_components/undertone"
# Package -> its folder.
PACKAGES = {"undertone_shared": REPO / "shared", "undertone_device": REPO / "device"}
# Programs for boards and for PCs, which no home needs.
LEFT_OUT = ("undertone_device/board/", "undertone_device/tools/")


def files() -> dict[str, Path]:
    """Return a map: path in the zip -> file."""
    found = {str(path.relative_to(INTEGRATION)): path for path in INTEGRATION.rglob("*")}
    for package, folder in PACKAGES.items():
        for path in sorted({*(folder / package).rglob("*.py"), *(folder / package).rglob("*.json")}):
            place = str(path.relative_to(folder))
            if not place.startswith(LEFT_OUT):
                found[f"packages/{place}"] = path
    return {place: path for place, path in sorted(found.items()) if path.is_file() and "__pycache__" not in place}


def main(target: str) -> None:
    """Write the zip."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, path in files().items():
            # With a fixed date, the same files always give the same zip.
            archive.writestr(zipfile.ZipInfo(place, (2026, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(*sys.argv[1:])

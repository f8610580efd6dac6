"""A build step of the device's distribution: fetch the phone's MicroPython, and add what stands outside this folder."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Path in a clone, seen from this folder -> path in the sdist -> path in the wheel.
OUTSIDE = (
    ("../shared/undertone_shared", "undertone_shared", "undertone_shared"),
    ("../package.json", "package.json", "undertone_device/shipped/package.json"),
    ("../sensors.json", "sensors.json", "undertone_device/shipped/sensors.json"),
)


class Device(BuildHookInterface):  # type: ignore[type-arg]
    """The build step, for a clone and for an unpacked sdist; a clone without npm is built with a warning."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        clone = (root / OUTSIDE[0][0]).is_dir()
        if clone:
            self._fetch(root.parent / "scripts")
        for outside, in_sdist, in_wheel in OUTSIDE:
            source = root / (outside if clone else in_sdist)
            build_data["force_include"][str(source)] = in_sdist if self.target_name == "sdist" else in_wheel

    def _fetch(self, scripts: Path) -> None:
        sys.path.insert(0, str(scripts))
        import vendor

        if vendor.missing(vendor.PHONE):
            try:
                vendor.vendor(vendor.PHONE)
            except RuntimeError as error:
                self.app.display_warning(str(error))

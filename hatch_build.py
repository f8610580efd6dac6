"""The build's own step: the page's chart library goes into the wheel; git holds its name and checksum alone."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))


class Vendor(BuildHookInterface):  # type: ignore[type-arg]
    """Runs scripts/vendor.py unless its files are there; a build without npm goes on and warns."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        import vendor

        missing = [name for name in vendor.FILES if not (vendor.VENDOR / Path(name).name).exists()]
        if missing:
            try:
                vendor.vendor()
            except RuntimeError as error:
                self.app.display_warning(str(error))

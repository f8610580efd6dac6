"""A build step: fetch the page's chart library for the wheel; git holds only its name and checksum."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))


class Vendor(BuildHookInterface):  # type: ignore[type-arg]
    """Run scripts/vendor.py unless its files exist; a build without npm continues with a warning."""

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

"""A build step: fetch the web page's npm files for the wheel; git holds only their names and checksums."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))


class Vendor(BuildHookInterface):  # type: ignore[type-arg]
    """Fetch the files by scripts/vendor.py unless they exist. If this fails, as without npm, the build only warns."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        import vendor

        if vendor.missing(vendor.WEB):
            try:
                vendor.vendor(vendor.WEB)
            except RuntimeError as error:
                self.app.display_warning(str(error))

"""The integration's modules that do not need Home Assistant, importable as the package ``undertone_in_home``."""

import sys
import types

from support.micropython import REPO

FOLDER = REPO / "device/homeassistant/custom_components/undertone"
PACKAGE = "undertone_in_home"


def _package() -> None:
    # The package's own __init__ imports Home Assistant. This stand-in only knows the folder.
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(FOLDER)]
    sys.modules.setdefault(PACKAGE, package)


_package()

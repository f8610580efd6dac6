"""Folders with the files of the devices. They are in the configuration folder, which survives updates."""

import shutil
from pathlib import Path

from homeassistant.core import HomeAssistant

from .const import DOMAIN


def device_folder(hass: HomeAssistant, name: str) -> Path:
    """Return the folder of a device's files."""
    return Path(hass.config.path(".storage", DOMAIN, name))


def forget(folder: Path) -> None:
    """Delete a device's files with its credentials; it may block."""
    shutil.rmtree(folder, ignore_errors=True)

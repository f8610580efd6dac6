"""Backups of Home Assistant: a restored ledger is out of date, so the copy of the ledger in a backup is marked."""

from homeassistant.core import HomeAssistant

from .const import DOMAIN, FOLDER
from .folders import device_folder
from .participation import mark_backup


async def async_pre_backup(hass: HomeAssistant) -> None:
    """Mark every state folder before it is copied."""
    await _mark(hass, True)


async def async_post_backup(hass: HomeAssistant) -> None:
    """Remove the marks from the folders of this running system."""
    await _mark(hass, False)


async def _mark(hass: HomeAssistant, on: bool) -> None:
    for entry in hass.config_entries.async_entries(DOMAIN):
        await hass.async_add_executor_job(mark_backup, device_folder(hass, entry.data[FOLDER]), on)

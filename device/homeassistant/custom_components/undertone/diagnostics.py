"""Diagnostics that a person may send to somebody who helps: no reading, no secret, no address."""

from typing import Any

from homeassistant.core import HomeAssistant

from undertone_device.host.words import DEFAULT

from .const import FOLDER
from .entity import UndertoneEntry
from .folders import device_folder
from .participation import stored

_FIELDS = (
    "online paused counts most_a_day recent month ever lifetime losses sequence rest_seconds rest_by pause"
    " period_used period_limit cap outbox dropped refusals signers campaign"
).split()


async def async_get_config_entry_diagnostics(hass: HomeAssistant, entry: UndertoneEntry) -> dict[str, Any]:
    """Return the policy's bounds and the device's status, without what names a place, a person or a reading."""
    participation = entry.runtime_data
    status = participation.state or {}
    agreed = await hass.async_add_executor_job(stored, device_folder(hass, entry.data[FOLDER]), DEFAULT)
    return {
        "measures": agreed["measures"],
        "guarantee": agreed["expert"],
        "status": {name: status[name] for name in _FIELDS if name in status},
        "error": participation.error,
    }

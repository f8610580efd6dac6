"""Diagnostics that a person may send to somebody who helps: no reading, no secret, no address."""

from typing import Any

from homeassistant.core import HomeAssistant

from .const import OFFER
from .entity import UndertoneEntry

_FIELDS = (
    "online paused counts most_a_day recent month ever lifetime losses sequence rest_seconds rest_by pause"
    " period_used period_limit cap outbox dropped refusals signers campaign"
).split()


async def async_get_config_entry_diagnostics(hass: HomeAssistant, entry: UndertoneEntry) -> dict[str, Any]:
    """Return the offer and the device's status, without what names a place, a person or a reading."""
    participation = entry.runtime_data
    status = participation.state or {}
    offer = entry.data[OFFER]
    return {
        "measures": offer["measures"],
        "reports": offer["reports"],
        "guarantee": offer["guarantee"],
        "status": {name: status[name] for name in _FIELDS if name in status},
        "error": participation.error,
    }
